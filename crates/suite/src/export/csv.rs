//! Two long tables, a line a point: `metrics.csv` by steps, `system.csv` by seconds. Replaced as a whole.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Measured, Sink, Target, replace_file};

pub(super) fn begin(target: &Target) -> io::Result<Box<dyn Sink>> {
    fs::create_dir_all(&target.folder)?;
    Ok(Box::new(Csv { folder: target.folder.clone(), runs: 0 }))
}

struct Csv {
    folder: PathBuf,
    runs: usize,
}

impl Sink for Csv {
    fn take(&mut self, runs: &[Measured]) -> io::Result<()> {
        let mut metrics = "configuration,seed,step,metric,value\n".to_owned();
        let mut system = "configuration,seed,seconds,metric,value\n".to_owned();
        for one in runs {
            let configuration = quoted_field(&one.run.identity.configuration);
            let seed = one.run.identity.seed.map_or_else(String::new, |seed| seed.to_string());
            for (metric, series) in &one.run.series {
                let metric = quoted_field(metric);
                for (step, value) in series.points() {
                    metrics.push_str(&format!("{configuration},{seed},{step},{metric},{value}\n"));
                }
            }
            for look in &one.looks {
                for (metric, value) in &look.metrics {
                    let metric = quoted_field(metric);
                    system.push_str(&format!("{configuration},{seed},{},{metric},{value}\n", look.seconds));
                }
            }
        }
        self.runs = runs.len();
        replace_file(&self.folder.join("metrics.csv"), metrics.as_bytes())?;
        replace_file(&self.folder.join("system.csv"), system.as_bytes())
    }

    fn finish(&mut self) -> io::Result<String> {
        Ok(format!("{} runs in metrics.csv and system.csv", self.runs))
    }
}

fn quoted_field(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
