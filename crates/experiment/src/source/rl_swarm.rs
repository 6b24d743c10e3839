//! rl-swarm's `metrics.jsonl` in the shared-folder layout, `experiments/NAME/logs/NODE/metrics.jsonl`: a line a round of a node.
//! A reward is the sum over the completions of that round, and a file mixes rows of several kinds (research on seed 0).

use std::io::BufRead;

use super::json_lines::Rows;
use super::lines::{Line, Lines};
use super::{Found, Place, Reader};
use crate::record::Total;

pub(super) const READER: Reader = Reader {
    name: "rl-swarm",
    files: "metrics.jsonl with `node_id`, `experiment` and `round`",
    takes: |name, head| {
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let has = |key: &[u8]| memchr::memmem::find(first, key).is_some();
        name.ends_with(".jsonl") && has(b"\"node_id\"") && has(b"\"experiment\"") && has(b"\"round\"")
    },
    read: read_rl_swarm,
};

fn read_rl_swarm(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut rows = Rows::new(place);
    let mut names: Option<(String, String)> = None;
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next()? {
        match line {
            Line::TooLong(number) => rows.found.pass_over(number, "the line is longer than a mebibyte"),
            Line::Bytes(number, bytes) => {
                if names.is_none() {
                    names = experiment_and_node(bytes);
                }
                rows.read_line(number, bytes);
            }
        }
    }
    let mut found = rows.finish_rows()?;
    let (experiment, node) = names.unwrap_or_default();
    for run in &mut found.runs {
        run.identity.configuration.clone_from(&experiment);
        run.identity.node = Some(node.clone()).filter(|node| !node.is_empty());
        run.place = format!("{}#{experiment}#{node}", place.folder());
        run.identity.reward.of_completions = Some(Total::Sum);
        let samples = run.metric("num_samples").and_then(|samples| samples.values().first().copied());
        run.identity.reward.completions = samples.filter(|samples| *samples >= 1.0).map(|samples| samples as u64);
        run.notes.push("a reward is the sum over a round's completions, as rl-swarm writes it".to_owned());
    }
    Ok(found)
}

/// The names of the experiment and the node.
fn experiment_and_node(line: &[u8]) -> Option<(String, String)> {
    let mut room = Vec::new();
    let pairs = super::flat::read_object(line, &mut room).ok()?;
    let text =
        |key: &str| pairs.iter().find(|(name, _)| name == key).and_then(|(_, value)| value.text()).map(str::to_owned);
    Some((text("experiment")?, text("node_id")?))
}
