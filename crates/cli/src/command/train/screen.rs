//! What a training shows: the estimate before it, its progress, what was measured.

use tonnage_core::estimate::Fit;
use tonnage_core::plan::fit::verdict_on;
use tonnage_core::record::PredictionRecord;
use tonnage_core::units::Bytes;
use tonnage_torch::Device;
use tonnage_train::grpo::GrpoReport;
use tonnage_train::grpo::swarm::{SwarmNote, SwarmReport};
use tonnage_train::reasoning::{HrmReport, PuzzleReport};
use tonnage_train::training::{Event, Held, StepReport};

use super::job::TrainJob;
use super::shown_bytes;
use crate::failure::Failure;
use crate::job_input::on_a_gpu;
use crate::terminal::Terminal;

/// Says what the job takes of a GPU.
///
/// # Errors
/// When it cannot be simulated.
pub fn print_estimate(job: &TrainJob, device: Device, terminal: &Terminal) -> Result<(), Failure> {
    let on_gpu = device != Device::Cpu;
    let resolved = if on_gpu {
        on_a_gpu(job.source.clone(), "a training on a GPU is held against it").resolve(&[])?
    } else {
        job.resolved.clone()
    };
    let verdict = verdict_on(&resolved.job, &resolved.job.gpu)?;
    let word = match verdict.fit {
        Fit::Fits => "fits",
        Fit::Tight => "is tight on",
        Fit::NotKnown => "may fit (what is left out has no bound)",
        Fit::DoesNotFit => "does not fit",
    };
    let gpu = &resolved.job.gpu.name;
    let peaks = format!(
        "{} allocated and {} reserved at the peak, {} with the context",
        shown_bytes(verdict.peak_allocated_bytes),
        shown_bytes(verdict.peak_reserved_bytes),
        shown_bytes(verdict.total_bytes)
    );
    let ranks = resolved.job.parallel.world_size;
    let of_each = if ranks > 1 { format!(" of each of {ranks} ranks") } else { String::new() };
    let line = if on_gpu {
        format!("estimate{of_each}: {peaks}: {word} {gpu} ({})", Bytes(verdict.usable_bytes))
    } else {
        format!(
            "estimate for a GPU ({gpu}){of_each}: {peaks}; of the CPU's memory nothing is predicted, it is measured"
        )
    };
    terminal.say(&line);
    Ok(())
}

/// A line for what happened; `predicted` is what the guard was told.
pub fn event_line(event: &Event, predicted: Option<&PredictionRecord>) -> String {
    match event {
        Event::Resumed { step, from } => format!("going on after step {step}, from {}", from.display()),
        Event::Step(report) => step_line(report),
        Event::Measured(held) => measured_line(held, predicted),
        Event::Evaluated { step, loss, .. } => {
            format!("evaluated after step {step}: loss {loss:.4}, perplexity {:.2}", loss.exp())
        }
        Event::Grpo(report) => grpo_line(report),
        Event::EvaluatedReward(found) => format!(
            "evaluated after step {} on {} held-out questions: reward {:.3} greedy, {:.3} sampled",
            found.step, found.questions, found.greedy, found.sampled
        ),
        Event::Round(report) => round_line(report),
        Event::Swarm(note) => swarm_line(note),
        Event::Reasoned(report) => hrm_line(report),
        Event::EvaluatedPuzzles(found) => puzzle_line(found),
        Event::WarmedUp { steps, reward, seconds } => {
            format!("learnt from answers in {steps} steps ({}): completions earn {reward:.3}", shown_duration(*seconds))
        }
        Event::StoppedEarly { step, patience, epochs } => {
            let what = if *epochs { "epochs" } else { "evaluations" };
            format!("ends after step {step}: no lower loss in {patience} {what}")
        }
        Event::Saved { step, path } => format!("saved step {step} to {}", path.display()),
    }
}

fn step_line(report: &StepReport) -> String {
    let norm = report.grad_norm.map_or_else(String::new, |norm| format!(", grad norm {norm:.2}"));
    let skipped = if report.skipped > 0 { format!(", {} skipped", report.skipped) } else { String::new() };
    format!(
        "step {}/{}: loss {:.4}, lr {:.2e}{norm}{skipped}, {:.0} tokens/s, {} left",
        report.step,
        report.steps,
        report.loss,
        report.learning_rate,
        report.tokens_per_second,
        shown_duration(report.seconds_left)
    )
}

fn grpo_line(report: &GrpoReport) -> String {
    let kl = report.kl.map_or_else(String::new, |kl| format!(", KL {kl:.4}"));
    format!(
        "step {}/{}: reward {:.3}, {:.0} % of groups all alike, length {:.1}, {:.0} % cut off, entropy {:.3}{kl}, loss {:.4}, lr {:.2e}, \
         {} left",
        report.step,
        report.steps,
        report.pay.mean,
        report.pay.dead_groups * 100.0,
        report.completion_tokens,
        report.truncated * 100.0,
        report.entropy,
        report.loss,
        report.learning_rate,
        shown_duration(report.seconds_left)
    )
}

fn round_line(report: &SwarmReport) -> String {
    let loss = report.loss.map_or_else(|| ", nothing to learn from".to_owned(), |loss| format!(", loss {loss:.4}"));
    format!(
        "step {}/{}: reward {:.3} of its own, {:.3} of all trained on, {} of {} groups differ, {} of {} foreign groups taken{loss}, \
         {} left",
        report.step,
        report.steps,
        report.on_policy,
        report.training_set,
        report.live_groups,
        report.groups,
        report.chosen,
        report.pool,
        shown_duration(report.seconds_left)
    )
}

fn swarm_line(note: &SwarmNote) -> String {
    match note {
        SwarmNote::Joined { name, round, asks } => format!("{name} takes part from round {round}, asking {asks}"),
        SwarmNote::Identical { others, round } => format!(
            "in round {round} {} had the same weights as this node: they train on the same groups, and are one model under several \
             names (other questions for each node, or fewer swarm.external_questions)",
            others.join(", ")
        ),
        SwarmNote::SmallPool { pool, wanted, round } => format!(
            "in round {round} {pool} foreign groups could be chosen and {wanted} were wanted: every node takes all there are (more nodes, \
             or fewer swarm.external_questions)"
        ),
        SwarmNote::Missing { names, round } => format!("round {round} ended without {}", names.join(", ")),
    }
}

fn hrm_line(report: &HrmReport) -> String {
    let halted = report.halted.map_or_else(String::new, |halted| {
        format!(
            ", of rows that halted {:.3} solved, {:.3} of cells, after {:.1} segments",
            halted.exact_accuracy, halted.accuracy, halted.steps
        )
    });
    format!(
        "step {}/{}: loss {:.4}{halted}, halting {:.4}, lr {:.2e}, {} left",
        report.step,
        report.steps,
        report.loss,
        report.q_halt_loss,
        report.learning_rate,
        shown_duration(report.seconds_left)
    )
}

fn puzzle_line(found: &PuzzleReport) -> String {
    let passes: String = found.passes().iter().map(|(k, share)| format!(", pass@{k} {share:.3}")).collect();
    format!(
        "evaluated after step {} on {} held-out puzzles: {:.3} solved, {:.3} of cells{passes}",
        found.step,
        found.results.len(),
        found.exact_accuracy(),
        found.token_accuracy()
    )
}

fn measured_line(held: &Held, predicted: Option<&PredictionRecord>) -> String {
    match (held, predicted) {
        (Held::Gpu(memory), Some(predicted)) => format!(
            "measured {} allocated, {} reserved; predicted {} and {}",
            shown_bytes(memory.peak_allocated),
            shown_bytes(memory.peak_reserved),
            shown_bytes(predicted.peak_allocated_bytes),
            shown_bytes(predicted.peak_reserved_bytes)
        ),
        (Held::Gpu(memory), None) => {
            format!(
                "measured {} allocated, {} reserved",
                shown_bytes(memory.peak_allocated),
                shown_bytes(memory.peak_reserved)
            )
        }
        (Held::Host(Some(bytes)), _) => {
            format!("measured {} of host memory, PyTorch's libraries included", shown_bytes(*bytes))
        }
        (Held::Host(None), _) => "this system does not tell how much host memory it takes".to_owned(),
    }
}

/// `45 s`, `3 min 20 s`, `2 h 5 min`
fn shown_duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_as_progress() {
        let report = StepReport {
            step: 30,
            steps: 200,
            epoch: 0.5,
            loss: 3.25,
            learning_rate: 3e-4,
            grad_norm: Some(1.5),
            skipped: 0,
            tokens_per_second: 15_203.4,
            tokens_trained: 1,
            seconds: 1.0,
            seconds_left: 125.0,
        };
        let line = event_line(&Event::Step(report), None);
        assert_eq!(line, "step 30/200: loss 3.2500, lr 3.00e-4, grad norm 1.50, 15203 tokens/s, 2 min 5 s left");
        let mut tracker = tonnage_core::progress::Tracker::default();
        tracker.read_line(&line, 0);
        assert_eq!(tracker.progress().map(|progress| (progress.step, progress.total)), Some((30, Some(200))));
    }
}
