//! The preflight: the job against what the GPU has now, with the arithmetic, and with what would fit.

use tonnage_core::estimate::Fit;
use tonnage_core::job::{JobSpec, Spreading};
use tonnage_core::plan::fit::GpuVerdict;
use tonnage_core::units::Bytes;

use super::batches::{Batches, Choice, choose_batch};
use super::{Job, Room};

/// What a preflight found.
#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    /// The job as it was asked for; `None` where it cannot be estimated.
    pub asked: Option<GpuVerdict>,
    /// The largest equal batch that fits, where the one asked for does not.
    pub instead: Option<Choice>,
    /// The sentence for people.
    pub text: String,
}

impl Preflight {
    /// Holds `job` against `room`; batches are tried from its own down to `least`.
    pub fn of(job: &Job<'_>, room: &Room, least: u64) -> Self {
        let Some(mut asked) = choose_batch(job, None, &[], room) else {
            let text = "the job cannot be estimated; it starts unchecked".to_owned();
            return Self { asked: None, instead: None, text };
        };
        asked.verdict.total_bytes = asked.verdict.total_bytes.saturating_sub(room.less_bytes);
        // What was seen to need less was seen at this batch, at no other.
        let others = Room { less_bytes: 0, ..room.clone() };
        let instead = match asked.verdict.fit {
            Fit::DoesNotFit => {
                // What was asked for may be tight as well.
                let smaller = (Some(job.spec.micro_batch_size), false);
                Batches::of(&job.spec, least).largest_batch(job, &[], &others, smaller)
            }
            _ => None,
        };
        let text = verdict_text(job, room, &asked.verdict, instead.as_ref());
        Self { asked: Some(asked.verdict), instead, text }
    }

    /// Whether nothing says that the job does not fit as it was asked for.
    pub fn fits(&self) -> bool {
        self.asked.as_ref().is_none_or(GpuVerdict::may_fit)
    }
}

fn verdict_text(job: &Job<'_>, room: &Room, asked: &GpuVerdict, instead: Option<&Choice>) -> String {
    let verdict = match asked.fit {
        Fit::Fits => "fits",
        Fit::Tight => "fits tightly",
        Fit::NotKnown => "it is not known whether that fits, as what is left out or unchecked has no bound",
        Fit::DoesNotFit => "does not fit",
    };
    let need = needs_words(job, asked, room);
    let mut text = format!("{need}, {} has {}: {verdict}", job.spec.gpu.name, has_words(room));
    if asked.fit == Fit::DoesNotFit {
        text.push_str(&format!("; {}", would_fit(&job.spec, asked, instead)));
    }
    text
}

fn needs_words(job: &Job<'_>, asked: &GpuVerdict, room: &Room) -> String {
    let total = asked.total_bytes.saturating_add(room.correction.offset_bytes);
    let corrected = match (room.correction.offset_bytes, room.less_bytes) {
        (0, 0) => String::new(),
        (0, less) => format!(" (seen before: {} less than calculated)", Bytes(less)),
        (more, _) => format!(" (seen before: {} more than calculated)", Bytes(more)),
    };
    let facts = job.spec.task.facts();
    match facts.spreading() {
        Spreading::Nodes { .. } => {
            let each = facts.processes_per_gpu();
            let product = match facts.lease() {
                Some(lease) => held_under_a_lease(asked, lease, each),
                None => format!("{each} x {}", Bytes(total / each.max(1))),
            };
            format!("{each} nodes on a GPU need {} ({product}){corrected}", Bytes(total))
        }
        _ => format!("the job needs {}{corrected}", Bytes(total)),
    }
}

/// `1 trains with 13.18 GiB, 7 wait with 2.20 GiB each`
fn held_under_a_lease(asked: &GpuVerdict, lease: u64, nodes: u64) -> String {
    let training = lease.min(nodes);
    let words = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let train = words(training, "trains", "train at once");
    match asked.room.first().map(|room| room.each) {
        Some(each) => format!(
            "{train} with {}, {} with {} each",
            Bytes(each.training),
            words(nodes - training, "waits", "wait"),
            Bytes(each.resting)
        ),
        None => train,
    }
}

fn has_words(room: &Room) -> String {
    let usable = room.correction.usable_bytes.unwrap_or(room.usable_bytes);
    let less = match room.taken_bytes.max(room.used_bytes) {
        0 => return Bytes(usable).to_string(),
        taken if taken == room.taken_bytes => format!("{} promised to other runs", Bytes(taken)),
        used => format!("{} in use now", Bytes(used)),
    };
    format!("{} ({} less {less})", Bytes(room.available()), Bytes(usable))
}

fn would_fit(job: &JobSpec, asked: &GpuVerdict, instead: Option<&Choice>) -> String {
    if let Spreading::Nodes { .. } = job.task.facts().spreading() {
        let room = |room: &tonnage_core::estimate::Room| match room.lease {
            None => format!("{} would fit", room.processes),
            Some(lease) => format!("{} with a lease of {lease}", room.processes),
        };
        return asked.room.iter().map(room).collect::<Vec<_>>().join(", ");
    }
    // Why it is no more than tight, and the next larger one does not fit.
    let tight = |verdict: &GpuVerdict| match verdict.fit {
        Fit::Tight => format!(", tightly: up to {} with what was not measured", Bytes(verdict.safe_bytes)),
        Fit::NotKnown => ", and more that is not known: no size surely is enough".to_owned(),
        Fit::Fits | Fit::DoesNotFit => String::new(),
    };
    let found = |choice: &Choice| Some((choice.batch?, choice.verdict.total_bytes, tight(&choice.verdict)));
    match instead.and_then(found) {
        Some((batch, total, tight)) => format!(
            "micro_batch_size {} with gradient_accumulation_steps {} is the same effective batch and needs {}{}",
            batch.micro_batch_size,
            batch.gradient_accumulation_steps,
            Bytes(total),
            tight
        ),
        None => "no micro-batch of the same effective batch would fit (`tonnage plan` shows remedies)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tonnage_core::job::from_case;

    use super::*;
    use tonnage_core::plan::batch::Batch;
    use tonnage_core::plan::fit::verdict_on;

    #[test]
    fn a_size_is_named_only_where_one_surely_is_enough() {
        let job = from_case(&json!({"micro_batch": 4})).unwrap();
        let tight = |safe_bytes: u64| {
            let mut verdict = verdict_on(&job, &job.gpu).unwrap();
            let fit = if safe_bytes == u64::MAX { Fit::NotKnown } else { Fit::Tight };
            (verdict.fit, verdict.total_bytes) = (fit, 3 << 30);
            (verdict.safe_bytes, verdict.usable_bytes) = (safe_bytes, 4 << 30);
            verdict
        };
        let says = |safe_bytes: u64| {
            let choice = Choice { batch: Some(Batch::of(&job)), verdict: tight(safe_bytes), more_bytes: 0 };
            would_fit(&job, &tight(safe_bytes), Some(&choice))
        };
        assert!(says(5 << 30).ends_with("needs 3.00 GiB, tightly: up to 5.00 GiB with what was not measured"));
        let unknown = says(u64::MAX);
        assert!(unknown.ends_with("and more that is not known: no size surely is enough"), "{unknown}");
    }
}
