//! What the guides would compare as suites: every configuration simulated, by the same reader and plan as `tonnage suite`.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use tonnage_core::job::JobSource;
use tonnage_core::plan::appraisal::appraise;
use tonnage_core::plan::time::Scale;
use tonnage_suite::expand::{Typed, expand_file};
use tonnage_suite::file::SuiteFile;

use super::markdown::{markdown_table, see_command, size_text};
use super::question::word;

/// A suite's file, and what its guide says of its configurations, in their order.
struct Suite {
    file: &'static str,
    guide: &'static [&'static str],
}

const SUITES: [Suite; 3] = [
    Suite {
        file: "examples/suites/lilwill.toml",
        guide: &[
            "0.54 GB, reasonable",
            "0.31 GB, \"~50% reduction\"",
            "\"smaller batches use less memory\"",
            "\"shorter sequences use less\"",
            "\"future feature\"",
        ],
    },
    Suite { file: "examples/suites/grpo-judge.toml", guide: &["\"6 to 8 GB, any GPU\", at any batch"; 3] },
    Suite { file: "examples/suites/hrm-sudoku.toml", guide: &["a laptop with 8 GB"; 7] },
];

pub fn suites_section() -> Result<String> {
    let mut text = "## 7. The guides' comparisons as suites\n\n\
        What a guide advises to try is a suite: `tonnage suite plan` says of every configuration what it needs before one is started, and \
        `tonnage suite run` packs those that fit together. Those of SAPO and of HRM on ARC are in sections 1 and 4 \
        ([sapo-gpt2.toml](../examples/suites/sapo-gpt2.toml), [hrm-arc.toml](../examples/suites/hrm-arc.toml)).\n\n"
        .to_owned();
    for suite in &SUITES {
        text.push_str(&of_suite(suite)?);
    }
    Ok(text)
}

fn of_suite(suite: &Suite) -> Result<String> {
    let wrong = |error: tonnage_core::job::JobError| anyhow!("{}: {error}", suite.file);
    let file = SuiteFile::read(&fs::read_to_string(suite.file)?).map_err(wrong)?;
    let all = expand_file(&file, &Typed::default()).map_err(wrong)?;
    anyhow::ensure!(all.len() == suite.guide.len(), "{} has {} configurations", suite.file, all.len());
    let beside = Path::new(suite.file).parent().unwrap_or(Path::new("")).join(file.job.as_deref().unwrap_or_default());
    let job = fs::canonicalize(beside)?;
    let source = JobSource::from_file(job.display().to_string(), fs::read_to_string(&job)?).pin();
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for (one, guide) in all.iter().zip(suite.guide) {
        let job = source.resolve(&one.changes).map_err(wrong)?.job;
        let judgement =
            appraise(&job, &job.gpu, Scale::own(&job)).map_err(|error| anyhow!("{}: {error}", one.name))?.verdict;
        figures.push(size_text(judgement.total_bytes));
        let runs = one.seeds.len().to_string();
        let verdict = format!("{} on the {}", word(judgement.fit), job.gpu.name);
        rows.push([one.name.clone(), runs, (*guide).to_owned(), size_text(judgement.total_bytes), verdict]);
    }
    figures.dedup();
    let head = ["configuration", "runs", "guide", "ours, a run", "verdict"];
    let name = Path::new(suite.file).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let command = format!("tonnage suite plan {}", suite.file);
    Ok(format!("### {name}\n\n{}{}", markdown_table(head, &rows), see_command(&command, &figures)))
}
