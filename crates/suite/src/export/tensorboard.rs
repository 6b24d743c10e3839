//! TensorBoard's event files, a folder a run, as TensorBoard tells runs apart. What is new is appended: TensorBoard reads on where it was.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_experiment::event_file::{file_header, scalar_event};

use super::names::Names;
use super::{Measured, Sink, Target};

/// How files of ours end: only they are replaced.
const ENDING: &str = ".tonnage";

pub(super) fn begin(target: &Target) -> io::Result<Box<dyn Sink>> {
    fs::create_dir_all(&target.folder)?;
    Ok(Box::new(TensorBoard { folder: target.folder.clone(), names: Names::default(), written: HashMap::new() }))
}

struct TensorBoard {
    folder: PathBuf,
    names: Names,
    written: HashMap<String, Written>,
}

/// What was written of a run.
struct Written {
    file: File,
    /// The last step of every metric.
    last: HashMap<String, f64>,
    /// The time of the last look at the machine.
    looked_ms: u64,
}

impl Sink for TensorBoard {
    fn take(&mut self, runs: &[Measured]) -> io::Result<()> {
        for one in runs {
            if !self.written.contains_key(&one.id) {
                let place = self.folder.join(self.names.run_label(one));
                self.written.insert(one.id.clone(), Written::begin(&place, one.began)?);
            }
            if let Some(written) = self.written.get_mut(&one.id) {
                written.add(one)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<String> {
        Ok(format!("{} runs, a folder each", self.written.len()))
    }
}

impl Written {
    /// A new file; what an earlier export wrote there is removed, so that nothing stands there twice.
    fn begin(place: &Path, began: f64) -> io::Result<Self> {
        fs::create_dir_all(place)?;
        for entry in fs::read_dir(place)?.flatten() {
            let is_ours = |name: &str| name.starts_with("events.out.tfevents.") && name.ends_with(ENDING);
            if entry.file_name().to_str().is_some_and(is_ours) {
                fs::remove_file(entry.path())?;
            }
        }
        let path = place.join(format!("events.out.tfevents.{}{ENDING}", began as u64));
        let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
        file.write_all(&file_header(began))?;
        Ok(Self { file, last: HashMap::new(), looked_ms: 0 })
    }

    /// Adds what is new of a run, in one write.
    fn add(&mut self, one: &Measured) -> io::Result<()> {
        let seconds = one.run.metric("seconds");
        let mut points: Vec<(f64, &str, f64)> = Vec::new();
        for (name, series) in &one.run.series {
            let last = self.last.get(name).copied().unwrap_or(f64::NEG_INFINITY);
            points.extend(
                series.points().filter(|(step, _)| *step > last).map(|(step, value)| (step, name.as_str(), value)),
            );
        }
        points.small_sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut events = Vec::new();
        for (step, name, value) in points {
            let at = one.began + seconds.and_then(|seconds| seconds.value_at(step)).unwrap_or(0.0);
            events.extend(scalar_event(name, step, at, value));
            self.last.insert(name.to_owned(), step);
        }
        // System metrics have no step: they stand at the seconds of the run.
        for look in one.looks.iter().filter(|look| look.at_ms > self.looked_ms) {
            for (name, value) in &look.metrics {
                events.extend(scalar_event(name, look.seconds, look.at_ms as f64 / 1e3, *value));
            }
        }
        self.looked_ms = one.looks.last().map_or(self.looked_ms, |look| look.at_ms.max(self.looked_ms));
        self.file.write_all(&events)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_experiment::run::Run;
    use tonnage_experiment::source::{Limits, gather_runs};

    use super::*;
    use crate::system::Look;

    #[test]
    fn what_comes_later_is_appended_and_nothing_stands_twice() {
        let folder = std::env::temp_dir().join(format!("tonnage-live-events-{}", std::process::id()));
        let measured = |steps: u32, looks: u64| {
            let mut run = Run::default();
            (0..steps).for_each(|step| run.push("loss", f64::from(step), f64::from(step) / 8.0, 0));
            run.finish();
            let look = |at: u64| Look {
                at_ms: at * 1000,
                seconds: at as f64,
                metrics: [("system.gpu.0.temp".to_owned(), 60.0)].into(),
            };
            let looks = (1..=looks).map(look).collect();
            [Measured { id: "a".to_owned(), run, looks, began: 0.0, has_ended: false }]
        };
        let target = Target { folder: folder.clone(), python: PathBuf::new() };
        for _ in 0..2 {
            let mut sink = begin(&target).unwrap();
            for (steps, looks) in [(3, 1), (3, 1), (9, 4)] {
                sink.take(&measured(steps, looks)).unwrap();
            }
            let read = gather_runs(&folder, &Limits::default()).unwrap();
            assert_eq!(read.runs.len(), 1);
            assert_eq!(read.runs[0].series["loss"].len(), 9);
            assert_eq!(read.runs[0].series["system.gpu.0.temp"].points().last(), Some((4.0, 60.0)));
            assert!(read.runs[0].notes.is_empty(), "{:?}", read.runs[0].notes);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
