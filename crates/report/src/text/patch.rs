//! Changes to a job as they are written: keys of a job file, and the words of what the user trains with.

use tonnage_core::job::{JobSpec, Key, Kind};
use tonnage_core::plan::framework::{Line, Patch};
use tonnage_core::plan::remedy::Change;

use super::paint::{DIM, paint_text, wrap_text};
use crate::look::Look;

/// The lines for `changes`; `job` is the job with them.
pub(super) fn patch_lines(job: &JobSpec, changes: &[Change], look: &Look) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let framework = job.framework;
    let patch = framework.patch(job, changes);
    let keys: Vec<String> = changes.iter().map(|(key, value)| assignment_text(key, value)).collect();
    let title = "in the job file (--write FILE writes it):";
    let mut text = format!("  {}\n", paint_text(DIM, &wrap_text(title, look.width, 2)));
    keys.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    if patch.lines.is_empty() {
        return text;
    }
    text.push_str(&format!("  {}\n", paint_text(DIM, &format!("for {}:", framework.name()))));
    text.push_str(&format!(
        "    {}\n",
        wrap_text(&patch.command(framework), look.width.saturating_sub(4), 0).replace('\n', " \\\n      ")
    ));
    text.push_str(&rest_lines(&patch, look));
    text
}

fn rest_lines(patch: &Patch, look: &Look) -> String {
    let label = |line: &Line| match line {
        Line::Config(_) => "config",
        Line::Code(_) => "code",
        _ => "note",
    };
    let one = |line: &Line| {
        let text = wrap_text(line.text(), look.width.saturating_sub(12), 0).replace('\n', "\n            ");
        format!("    {:<8}{text}\n", label(line))
    };
    patch.rest().map(one).collect()
}

/// `optimizer = "adamw_fused"`: a line of a job file that holds wherever it stands before the first table.
fn assignment_text(key: &str, value: &str) -> String {
    let quoted = match Key::find(key).map(|key| key.kind) {
        Some(Kind::Size { .. } | Kind::Number { .. } | Kind::Switch) => value.to_owned(),
        _ => format!("\"{value}\""),
    };
    format!("{key} = {quoted}")
}
