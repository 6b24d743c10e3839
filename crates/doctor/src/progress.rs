//! What says that a job lives: steps that rise, a training that ended well, a launcher that starts it again.

use crate::line::Line;
use crate::text::{find_phrase, has_phrase, read_integer, text_after};

/// A step that a line states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The line, from 1.
    pub line: u64,
    /// The rank that wrote it, where the line says so.
    pub rank: Option<u32>,
    pub step: u64,
    /// Of how many, where it says so.
    pub of: Option<u64>,
    /// Whether these are epochs rather than steps.
    pub is_epoch: bool,
}

/// Bars that count something else than steps, by the words before them.
const OTHER_BARS: &[&str] = &[
    "oading",
    "Map",
    "ownload",
    "okeniz",
    "ilter",
    "Fetching",
    "rocessing",
    "aving",
    "esolving",
    "Generating train",
    "Generating test",
    "Running",
    "Capturing",
    "Building",
    "Casting",
    "Pushing",
    "Upload",
    "Extracting",
    "Packing",
    "Validating files",
    "Setting",
    "Converting",
    "Quantizing",
    "Evaluating",
    "Validation DataLoader",
    "Adding EOS",
    "Truncating",
    "Applying",
];
/// Words before the number of a step.
const STEPS: &[&str] = &[
    "step ",
    "step: ",
    "Step ",
    "Step: ",
    "steps ",
    "'step': ",
    "\"step\": ",
    "global_step ",
    "global_step=",
    "global_step: ",
    "step=",
    "Step=",
    "iteration ",
    "Iteration ",
    "iter ",
    "Iter ",
    "iter: ",
    "Iter: ",
    "iters: ",
    "num_updates: ",
    "\"num_updates\": \"",
    "iter=",
    "it: ",
    "step:",
    "Step:",
    "update ",
];
const EPOCHS: &[&str] =
    &["'epoch': ", "\"epoch\": ", "Epoch ", "epoch ", "Epoch: ", "epoch: ", "Epoch: [", "Epoch [", "epoch=", "Epoch: "];
/// Words that make a line with a number one of a training.
const METRICS: &[&str] = &[
    "nll",
    "imgs/s",
    "samples/s",
    "loss",
    "Loss",
    "it/s",
    "s/it",
    "lr",
    "acc",
    "reward",
    "tokens/s",
    "perplexity",
    "ppl",
    "elapsed",
    "grad_norm",
];

/// Bytes of a row, and figures with a fraction in it.
const LONGEST_ROW: usize = 240;
const FRACTIONS: usize = 3;

impl Progress {
    /// The progress that a line states.
    pub(crate) fn of_line(text: &str, line: u64, rank: Option<u32>) -> Option<Self> {
        if let Some((epoch, of)) = read_epoch(text) {
            return Some(Self { line, rank, step: epoch * 1000, of: of.checked_mul(1000), is_epoch: true });
        }
        if let Some((step, of)) = read_bar(text) {
            return Some(Self { line, rank, step, of: Some(of), is_epoch: false });
        }
        if let Some((step, of)) = read_count(text) {
            return Some(Self { line, rank, step, of: Some(of), is_epoch: false });
        }
        if let Some(step) = read_row(text) {
            return Some(Self { line, rank, step, of: None, is_epoch: true });
        }
        if !METRICS.iter().any(|metric| has_phrase(text, metric)) {
            return None;
        }
        let number = |words: &[&str]| words.iter().find_map(|word| numbered_step(text, word));
        if let Some((step, of)) = number(STEPS) {
            return Some(Self { line, rank, step, of, is_epoch: false });
        }
        if let Some((step, of)) = read_bracketed(text) {
            return Some(Self { line, rank, step, of: Some(of), is_epoch: false });
        }
        // Epochs are stated in parts: thousandths keep their order.
        let epoch = EPOCHS.iter().find_map(|word| thousandths(text_after(text, word)?))?;
        Some(Self { line, rank, step: epoch, of: None, is_epoch: true })
    }
}

/// `  5%|#  | 12/500 [01:11<1:10:03,  3.52s/it]`, where it counts steps.
fn read_bar(text: &str) -> Option<(u64, u64)> {
    let percent = find_phrase(text, "%|")?;
    let words = text.get(..percent)?;
    let counts = text_after(text.get(percent + 2..)?, "| ")?;
    let (done, rest) = counts.split_once('/')?;
    let of = read_integer(rest)?;
    let is_rate = has_phrase(rest, "it/s") || has_phrase(rest, "s/it");
    if OTHER_BARS.iter().any(|other| has_phrase(words, other)) || !is_rate {
        return None;
    }
    Some((done.trim().parse().ok()?, of))
}

/// `Epoch 7/60` alone on a line (Keras), `   7/100   5.41G   1.2   0.9` (YOLO: the epoch, the GPU's memory, figures).
fn read_epoch(text: &str) -> Option<(u64, u64)> {
    let keras = text.strip_prefix("Epoch ").map(|rest| rest.trim_end_matches(':'));
    let yolo = || {
        let (epochs, rest) = text.trim_start().split_once(' ')?;
        let memory = rest.split_whitespace().next()?.strip_suffix('G')?;
        memory.parse::<f64>().is_ok().then_some(epochs)
    };
    let (epoch, of) = keras.or_else(yolo)?.split_once('/')?;
    let epoch: u64 = epoch.trim().parse().ok().filter(|epoch| *epoch < u64::MAX / 1000)?;
    Some((epoch, of.trim().parse().ok()?))
}

/// `Train: 0 [  50/1251 (  4%)]` (timm)
fn read_bracketed(text: &str) -> Option<(u64, u64)> {
    let (step, rest) = text.split_once('[')?.1.split_once('/')?;
    let (of, rest) = rest.split_once(' ')?;
    let is_share = rest.trim_start().starts_with('(') && has_phrase(rest, "%)");
    Some((step.trim().parse().ok()?, of.parse().ok().filter(|_| is_share)?))
}

/// `Batch: 50  over  395`, `batch 3/16`: a line that says no more than that.
fn read_count(text: &str) -> Option<(u64, u64)> {
    let rest = ["Batch", "batch"].iter().find_map(|word| text.strip_prefix(word))?.trim_start_matches([':', ' ']);
    let end = rest.find(|character: char| !character.is_ascii_digit())?;
    let (step, rest) = rest.split_at_checked(end)?;
    let of = ["/", "over ", "of "].iter().find_map(|word| rest.trim_start().strip_prefix(word))?;
    Some((step.parse().ok()?, of.trim().parse().ok()?))
}

/// Whether a line may be a row of a table of epochs.
pub(crate) fn may_be_row(text: &str) -> bool {
    text.len() < LONGEST_ROW
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_digit())
}

/// `trn   12   13.1619   558.4405   0.1284   0.1109`: a set's name, the epoch, figures; the epoch in thousandths.
fn read_row(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().filter(|_| may_be_row(text));
    let is_name = words.next()?.chars().all(|c| c.is_ascii_alphabetic());
    let epoch: u64 = words.next()?.parse().ok()?;
    let figures: Vec<&str> = words.collect();
    let all = figures.iter().all(|word| word.parse::<f64>().is_ok());
    let fractions = figures.iter().filter(|word| word.contains('.')).count();
    let is_row = is_name && all && fractions >= FRACTIONS;
    epoch.checked_mul(1000).filter(|_| is_row)
}

/// `step 12/500`: the number behind `word`, and what it is of.
fn numbered_step(text: &str, word: &str) -> Option<(u64, Option<u64>)> {
    let at = find_phrase(text, word)?;
    let glued = text.get(..at)?.ends_with(|character: char| character.is_alphanumeric());
    let rest = text.get(at + word.len()..)?.trim_start_matches(['[', ' ']);
    let step = read_integer(rest).filter(|_| !glued)?;
    let rest = rest.trim_start_matches(|character: char| character.is_ascii_digit()).trim_start();
    Some((step, rest.strip_prefix('/').or_else(|| rest.strip_prefix("of ")).and_then(read_integer)))
}

fn thousandths(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (whole, fraction) = text.get(..end)?.split_once('.').unwrap_or((text.get(..end)?, ""));
    let padded: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(padded.parse().ok()?)
}

/// Whether the line says that the training ended well.
pub(crate) fn is_success(line: &Line) -> bool {
    let text = line.text.as_str();
    let places = SUCCESSES.iter().filter_map(|words| Some(find_phrase(text, words)? + words.len()));
    let Some(end) = places.min() else { return false };
    // seff's, whose exit code is 0 whatever became of the job.
    let other_state = text.starts_with("State: ") && !has_phrase(text, "COMPLETED");
    // detectron2's hooks say how long it took, however it ended.
    let other_state = other_state || text.ends_with(" on hooks)");
    let quoted = text.contains('`') && !has_phrase(text, "`Trainer.fit` stopped: `max_");
    // What the next sentence asks for is another thing: `Training completed. Do not forget ...`.
    let rest = text.get(end..).unwrap_or_default();
    let sentence = find_phrase(rest, ". ").and_then(|stop| text.get(..end + stop)).unwrap_or(text);
    let denials = ["not ", "if ", "after ", "until ", "when ", "before ", "will ", "n't ", "once "];
    let denied = denials.iter().any(|word| has_phrase(sentence, word))
        || ["Failed", "failed", "FAILED", "Error"].iter().any(|word| has_phrase(text, word));
    !quoted && !other_state && (!denied || has_phrase(text, "'train_runtime':"))
}

/// Whether the line ends a run of tests in which none failed, whatever they printed: unittest's and pytest's.
pub(crate) fn is_tests_end(text: &str) -> bool {
    let inside = text.trim_matches('=').trim();
    let passed = has_phrase(inside, " passed") && has_phrase(inside, " in ") && inside.ends_with(['s', ')']);
    text == "OK"
        || has_phrase(text, "100% tests passed, 0 tests failed")
        || text.starts_with("OK (skipped=")
        || (passed && !has_phrase(inside, " failed") && !inside.starts_with("failed") && !has_phrase(inside, " error"))
}

/// What trainers and launchers say when all went well.
pub(crate) const SUCCESSES: &[&str] = &[
    "train_runtime",
    "worker group successfully finished",
    "Trainer.fit` stopped: `max_",
    "raining complete",
    "raining finished",
    "raining is complete",
    "raining has finished",
    "raining done",
    "Finished training",
    "inished successfully",
    "ompleted successfully",
    "exited with code 0",
    "exit code 0",
    "exit status 0",
    "exited without errors",
    "epochs done",
    "COMPLETED ExitCode 0:0",
    // HTCondor's.
    "Normal termination (return value 0)",
    "with exit-code 0.",
    "All done",
    "Total training time",
    "done training in",
    "End of training",
    "End training",
    "SUCCESS: all ranks",
    "SUCCEEDED",
    "HTTP/1.1\" 200",
    // Optuna's trials, Sphinx.
    "finished with value",
    "build succeeded",
];

/// Whether the line says that the job was started again.
pub(crate) fn is_restart(line: &Line) -> bool {
    RESTARTS.iter().any(|words| has_phrase(&line.text, words)) && !line.text.contains('`')
}

pub(crate) const RESTARTS: &[&str] = &[
    "estarting worker group",
    "DUE TO JOB REQUEUE",
    "estarting training",
    "e-starting training",
    "etrying training",
    "Restarting job",
    "restart count",
    "Resuming training from",
    "Resuming from checkpoint",
    "Resumed from checkpoint",
    "resuming from",
    "Resume from checkpoint",
    "Continuing training from checkpoint",
    // Ray Tune's trials.
    "ttempting to restore trial",
    "ttempting to recover trial",
    "restarting from checkpoint",
    // What begins a run of its own: logs that are appended to have several.
    "racking run with wandb version",
    "nohup: ignoring input",
    "Setting OMP_NUM_THREADS environment variable",
    "main] cmd =",
    // A shell's prompt with the next command.
    "$ python",
    "$ torchrun",
    "$ accelerate launch",
    "$ deepspeed",
    "$ CUDA_VISIBLE_DEVICES=",
    "~# python",
    "]# python",
    "> python",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_as_trainers_write_them() {
        let step = |text: &str| Progress::of_line(text, 1, None).map(|found| (found.step, found.of));
        let cases = [
            ("  5%|#  | 12/500 [01:11<1:10:03,  3.52s/it]", Some((12, Some(500)))),
            ("{'loss': 1.2, 'grad_norm': 0.8, 'epoch': 0.25}", Some((250, None))),
            ("step 12/500 | loss 2.31 | lr 1e-4", Some((12, Some(500)))),
            ("\titers: 1300, epoch: 2 | loss: 0.7443", Some((1300, None))),
            ("iteration      120/     500 | elapsed time per iteration", Some((120, Some(500)))),
            ("Epoch: [3]  [ 20/500]  eta: 0:10 lr: 0.1 loss: 2.1", Some((3000, None))),
            ("Loading checkpoint shards: 50%|##  | 1/2 [00:01<00:01, 1.0s/it]", None),
            ("trn   12       13.1619   558.4405     0.1284     0.1109    88.9100", Some((12000, None))),
            ("dset  epoch      mcost      mtime       cerr       werr       wacc", None),
            ("Step 1: loading the model", None),
            ("Batch: 50  over  395", Some((50, Some(395)))),
            ("batch 3 of the first shard", None),
            ("RuntimeError: loss is 3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(step(text), expected, "{text}");
        }
    }

    #[test]
    fn an_end_is_told_from_talk_of_it() {
        let is = |text: &str| is_success(&Line::new(text.as_bytes()));
        assert!(
            is("{'train_runtime': 12.1, 'train_loss': 0.2}")
                && is("[INFO] [default] worker group successfully finished.")
        );
        assert!(is("`Trainer.fit` stopped: `max_epochs=3` reached.") && is("Training complete in 3m"));
        assert!(is("Training completed. Do not forget to share your model on huggingface.co/models =)"));
        assert!(!is("Training completed. 2 uploads failed") && !is("Training completed if not told otherwise"));
        assert!(!is("when training finished the model is saved") && !is("Training finished with Error"));
    }

    #[test]
    fn tests_that_pass_end_well() {
        assert!(
            ["OK", "OK (skipped=2)", "=== 12 passed, 1 skipped in 3.21s ==="].iter().all(|text| is_tests_end(text))
        );
        assert!(!is_tests_end("=== 1 failed, 12 passed in 3.21s ===") && !is_tests_end("tokens passed in"));
    }

    #[test]
    fn texts_of_the_lists_are_found() {
        for words in SUCCESSES {
            assert!(is_success(&Line::new(words.as_bytes())) || words.contains('`'), "{words}");
        }
        for words in RESTARTS {
            assert!(is_restart(&Line::new(words.as_bytes())), "{words}");
        }
    }
}
