//! [`Settled`]: whether a long job has come to where further steps or passes find memory as earlier ones did. Then all that
//! follow do the same in the same places, and none of them changes a peak.
//!
//! Steps ask for the same again and again; what may differ is where the allocator finds it. So its own replay follows the
//! trace, on a device that never runs out, and compares how blocks lie when steps end. They lie alike after every step, or
//! after every second, where a variable finds its new value's place before it gives up the old one, and so on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::repetition::Repetition;
use crate::alloc::{AllocatorConfig, Arrangement, Follower};
use crate::job::JobSpec;
use crate::tensor::Context;
use crate::trace::Trace;
use crate::units::MIB;

#[cfg(test)]
pub(super) use tests::run_whole;
pub(super) use tests::runs_whole;

/// From this many events on what only repeats is left out, wherever the allocator finds it.
const ENOUGH_EVENTS: usize = 1 << 20;
/// The same of generated tokens' events, each as often as it is replayed for one question beside its own device: seconds.
const ENOUGH_REPLAYED: u64 = 1 << 24;
/// So many steps, and so many passes of a step, are run of any job: what a job of ordinary length shows is all of it.
const RUN_WHOLE: u64 = 8;
/// A job with fewer events is run whole: the replay that follows it would cost more than it saves.
const WORTH_FOLLOWING: usize = 1 << 14;
/// The longest round of pieces after which blocks lie as before it.
const LONGEST_ROUND: usize = 26;
/// So many rounds must be alike: how blocks lie does not say which of two equal ones holds what, and had two changed places,
/// they would be back after another round.
const ROUNDS: usize = 3;

/// After so many pieces small blocks that never came back to where they were are left to wander.
const WANDERING: usize = 16;

/// By so much the small pool may grow in what is left out then: two of its segments. Peaks of jobs that were run whole are
/// within it (tests).
pub const WANDERING_ALLOWANCE: u64 = 4 * MIB;

/// Steps that are run of any job: the state appears in the first, from the second on they allocate the same, and a third shows what the
/// allocator makes of repetition.
const STEPS_RUN: u32 = 3;
/// Passes of a step that are run of any job: from the third on they allocate the same, and a fourth shows the same.
const PASSES_RUN: u64 = 4;
/// So many that are alike are run before others like them are left out: from the second on they allocate the same, and the
/// third shows what the allocator makes of it.
pub(super) const LIKE: u64 = 3;
/// With so many events, seconds and hundreds of MiB, what only shows that once more is left out too: a step and a pass of each.
const TOO_MANY_EVENTS: usize = 1 << 21;

/// Whether so much is recorded that what only repeats is left out, wherever the allocator finds it.
pub(super) fn has_enough(context: &Context) -> bool {
    let others = context.replays() - 1;
    // Copies of an earlier step's tokens are replayed as well.
    let replayed = || context.read_trace(Trace::grown_events).saturating_mul(others);
    context.events() >= ENOUGH_EVENTS || others > 0 && replayed() >= ENOUGH_REPLAYED
}

/// What may repeat.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Step,
    Pass,
}

/// How blocks lay when pieces ended, each as a hash: all of them, and those of the large pool.
#[derive(Default)]
struct Ends {
    seen: u64,
    arrangements: Vec<u64>,
    large: Vec<u64>,
}

impl Ends {
    fn note(&mut self, arrangement: &Arrangement) {
        self.arrangements.push(hash_of(arrangement));
        self.large.push(hash_of(arrangement.large()));
    }

    /// After how many pieces blocks lie as they did.
    fn round(&self) -> Option<usize> {
        round_of(&self.arrangements)
    }

    /// After how many pieces the large pool's blocks lie as they did, while neither pool grew and small blocks were never
    /// seen to come back to where they were.
    fn round_of_large(&self) -> Option<usize> {
        round_of(&self.large).filter(|_| self.large.len() >= WANDERING)
    }
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn round_of(arrangements: &[u64]) -> Option<usize> {
    (1..=LONGEST_ROUND).find(|round| {
        let first = arrangements.len().checked_sub(round * ROUNDS);
        let last = first.and_then(|first| arrangements.get(first..));
        last.is_some_and(|last| last.iter().zip(&last[*round..]).all(|(before, after)| before == after))
    })
}

/// Follows the trace of a job.
pub(super) struct Settled<'a> {
    context: &'a Rc<Context>,
    config: &'a AllocatorConfig,
    /// Whether a job's steps, and the passes of a step, are alike: generating now and then they are not.
    repeats: [bool; 2],
    /// Whether a step that is not among the first takes more than they do.
    turns_late: bool,
    follower: Option<Follower>,
    ends: [Ends; 2],
    small_blocks_wander: bool,
}

impl<'a> Settled<'a> {
    pub(super) fn new(job: &'a JobSpec, context: &'a Rc<Context>) -> Self {
        let (follower, ends) = (None, Default::default());
        let turns_late = job.turns_late();
        Self {
            context,
            config: &job.allocator,
            repeats: [true; 2],
            turns_late,
            follower,
            ends,
            small_blocks_wander: false,
        }
    }

    /// Of a job that generates before every so many passes, of which each step has `of_step`; never with `u64::MAX`.
    pub(super) fn with_generation(self, every: u64, of_step: u64) -> Self {
        let is_never = every == u64::MAX;
        Self { repeats: [is_never || of_step.is_multiple_of(every), is_never], ..self }
    }

    /// Begins `step`, with which so many are left to run; not where all of them do what those before did.
    pub(super) fn begin_next(&mut self, run: &mut Repetition, (step, left): (u32, u64)) -> bool {
        if self.leaves_out_step((step, left)) {
            return false;
        }
        run.steps = step;
        self.begin_step();
        self.context.begin_step(step);
        true
    }

    /// Whether `step` and all that are left to run with it may be left out.
    pub(super) fn leaves_out_step(&mut self, (step, left): (u32, u64)) -> bool {
        self.is_enough(Piece::Step, left) && step > STEPS_RUN - u32::from(self.has_too_many())
    }

    /// Whether the passes of a step that are left after `pass`, the next to run, may be left out; so many stand open at a time.
    pub(super) fn leaves_out_after(&mut self, pass: u64, left: u64, open: u64) -> bool {
        self.is_enough(Piece::Pass, left) && pass + 1 >= PASSES_RUN + open - u64::from(self.has_too_many())
    }

    /// At the end of a piece, where so many that follow may be left out: how many that are alike stand for them.
    pub(super) fn alike(&mut self, piece: Piece, left_out: u64) -> Option<u64> {
        self.is_enough(piece, left_out).then(|| LIKE - u64::from(self.has_too_many()))
    }

    fn has_too_many(&self) -> bool {
        self.context.events() >= TOO_MANY_EVENTS && !runs_whole()
    }

    /// A step begins, whose passes are compared with one another.
    pub(super) fn begin_step(&mut self) {
        self.ends[Piece::Pass as usize] = Ends::default();
    }

    /// At the end of a piece: whether so many that follow may be left out.
    fn is_enough(&mut self, piece: Piece, left_out: u64) -> bool {
        if self.turns_late && matches!(piece, Piece::Step) {
            return false;
        }
        if has_enough(self.context) {
            return true;
        }
        let events = self.context.events();
        let ends = &mut self.ends[piece as usize];
        ends.seen += 1;
        if !self.repeats[piece as usize] || ends.seen <= RUN_WHOLE || events < WORTH_FOLLOWING || runs_whole() {
            return false;
        }
        let follower = self.follower.get_or_insert_with(|| Follower::new(self.config));
        // Following very many tokens takes as long as it saves.
        let follow = |trace: &Trace| if trace.is_long() { Ok(None) } else { follower.follow_trace(trace) };
        let arrangement = match self.context.read_trace(follow) {
            Ok(Some(arrangement)) => arrangement,
            Ok(None) => return false,
            // No device has so much: the job is refused, whatever follows.
            Err(_) => return true,
        };
        ends.note(&arrangement);
        // Whole rounds are left out, so that what comes after them finds memory as it would.
        let is_whole = |round: usize| left_out.is_multiple_of(round as u64);
        if ends.round().is_some_and(is_whole) {
            return true;
        }
        let wander = ends.round_of_large().is_some_and(is_whole);
        self.small_blocks_wander |= wander;
        wander
    }

    /// What was run, and how it came to its end.
    pub(super) fn close(&self, run: Repetition) -> Repetition {
        Repetition { small_blocks_wander: self.small_blocks_wander, ..run }
    }
}

#[cfg(not(test))]
mod tests {
    pub(crate) const fn runs_whole() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::{WANDERING_ALLOWANCE, WORTH_FOLLOWING};
    use crate::estimate::SimulatedJob;
    use crate::job::{JobSource, JobSpec, from_case};
    use crate::tensor::{LOWER_SIZES, TOO_LARGE};

    thread_local! {
        static WHOLE: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn runs_whole() -> bool {
        WHOLE.get()
    }

    /// What `simulate` makes of a job of which nothing is left out and no pass copied.
    pub(crate) fn run_whole<T>(simulate: impl FnOnce() -> T) -> T {
        WHOLE.set(true);
        let simulated = simulate();
        WHOLE.set(false);
        simulated
    }

    /// Events, and the bytes that the job needs: allocated, reserved, and the least that it goes through on.
    fn run(job: &JobSpec, whole: bool) -> (usize, [u64; 3]) {
        WHOLE.set(whole);
        let simulated = SimulatedJob::new(job).unwrap();
        WHOLE.set(false);
        let (allocated, reserved) = simulated.replay_peaks().unwrap();
        (simulated.trace().events.len(), [allocated, reserved, simulated.least_reserved().unwrap()])
    }

    /// A small GPT-2 for many steps.
    fn check(changes: &Value) {
        let gpt2 = json!({"family": "gpt2", "n_layer": 2, "n_embd": 192, "n_head": 3, "vocab_size": 5000});
        let mut case = json!({"model": gpt2, "micro_batch": 3, "seq_len": 96, "steps": 250, "precision": "amp_bf16"});
        case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        check_case(&case);
    }

    fn check_case(changes: &Value) {
        let job = from_case(changes).unwrap();
        let ((events, bytes), (all_events, expected)) = (run(&job, false), run(&job, true));
        assert_eq!(bytes, expected, "{changes}");
        assert!(events < all_events / 2, "{changes}: {events} of {all_events}");
    }

    #[test]
    fn steps_that_are_left_out_change_no_peak() {
        check(&json!({}));
        check(&json!({"precision": "bf16", "keep_outputs": true, "optimizer": "sgd", "clip_grad_norm": 1.0}));
        check(&json!({"zero_grad_set_to_none": false, "gradient_checkpointing": true, "seq_len": 100}));
        check(&json!({"kind": "trainer"}));
    }

    /// Rows that grow through 64 lengths come to a million events before the first whole one.
    #[test]
    fn whole_rows_are_run_however_much_the_shorter_ones_asked_for() {
        let text = "sources = [\"a.txt\"]\nepochs = 100\nseq_len_start = 2\nseq_len_end = 256\nmodel_embd = 64\nmodel_head = 2\n\
            model_layer = 16\nbatch_size = 2\ngradient_accumulation_steps = 8\n";
        let job = JobSource::from_file("a.toml", text).resolve(&[]).unwrap().job;
        let ((events, bytes), (_, whole)) = (run(&job, false), run(&job, true));
        assert!(events > super::ENOUGH_EVENTS, "{events}");
        assert_eq!(bytes[0], whole[0]);
    }

    /// Two million events of a step and more: the third step and a pass of each are left out as well.
    #[test]
    fn what_is_left_out_of_very_long_jobs_changes_no_peak() {
        let text = "model = { model_type = \"mamba\", hidden_size = 16, num_hidden_layers = 8, state_size = 4, vocab_size = 50 }\n\
            seq_len = 2048\nsteps = 2\ngradient_accumulation_steps = 6\n";
        for framework in ["loop", "trainer"] {
            let text = format!("{text}framework = \"{framework}\"\n");
            let job = JobSource::from_file("job.toml", &text).resolve(&[]).unwrap().job;
            let ((events, bytes), (all_events, expected)) = (run(&job, false), run(&job, true));
            assert!(events > super::TOO_MANY_EVENTS && events < all_events, "{events} of {all_events}");
            assert_eq!(bytes, expected, "{framework}");
        }
    }

    /// A list of GPUs asks for as many replays of one simulation; each of its steps generates.
    #[test]
    fn generating_steps_are_left_out_sooner_where_many_replays_serve_one_question() {
        let model = json!({"family": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 500});
        let case = json!({"kind": "trl_grpo", "model": model, "prompt_len": 16, "completion_len": 256, "steps": 40});
        let job = from_case(&case).unwrap();
        let run = |replays: u64| {
            let simulated = SimulatedJob::with_other_devices(&job, &[], replays).unwrap();
            (simulated.trace().events.len(), simulated.replay_peaks().unwrap())
        };
        let ((fewer, bytes), (all, expected)) = (run(1 << 10), run(1));
        assert_eq!(bytes.0, expected.0);
        assert!(fewer < all / 2, "{fewer} of {all}");
    }

    /// A node's later steps copy the tokens of its first.
    #[test]
    fn copied_generations_count_where_many_replays_serve_one_question() {
        let model = json!({"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500});
        let case = json!({"kind": "swarm_node", "model": model, "steps": 100});
        let job = from_case(&case).unwrap();
        let run = |replays: u64| {
            let simulated = SimulatedJob::with_other_devices(&job, &[], replays).unwrap();
            (simulated.trace().events.len(), simulated.replay_peaks().unwrap())
        };
        let ((fewer, bytes), (all, expected)) = (run(1 << 8), run(1));
        assert_eq!(bytes.0, expected.0);
        assert!(fewer < all / 2, "{fewer} of {all}");
    }

    #[test]
    fn small_blocks_that_wander_move_the_peak_by_less_than_is_allowed() {
        let text = "model = { model_type = \"hrm\", vocab_size = 11 }\ntask = \"hrm\"\nseq_len = 64\nsteps = 120\n";
        let job = JobSource::from_file("job.toml", text).resolve(&[]).unwrap().job;
        let ((events, bytes), (all_events, expected)) = (run(&job, false), run(&job, true));
        assert!(events < all_events / 2, "{events} of {all_events}");
        assert_eq!(bytes[0], expected[0]);
        for (left_out, whole) in bytes.into_iter().zip(expected) {
            assert!(whole.abs_diff(left_out) <= WANDERING_ALLOWANCE, "{left_out} for {whole}");
        }
    }

    #[test]
    fn a_job_that_no_device_could_hold_ends_early() {
        let gpt2 = json!({"family": "gpt2", "n_layer": 2, "n_embd": 192, "n_head": 3, "vocab_size": 5000});
        let of_passes = |passes: u32| {
            let case =
                json!({"kind": "trainer", "model": gpt2, "micro_batch": 1, "seq_len": 1024, "grad_accum": passes});
            from_case(&case).unwrap()
        };
        // All batches together are more than 16 TiB, or the labels of all in one tensor.
        let job = of_passes(1 << 30);
        let simulated = SimulatedJob::new(&job).unwrap();
        assert!(simulated.trace().events.len() < 8 * WORTH_FOLLOWING, "{}", simulated.trace().events.len());
        assert!(simulated.replay_peaks().is_err());
        let refused = SimulatedJob::new(&of_passes(u32::MAX)).map(|_| ()).unwrap_err();
        assert_eq!((refused.to_string(), refused.hint()), (TOO_LARGE.to_owned(), Some(LOWER_SIZES)));
    }

    #[test]
    fn passes_that_are_left_out_change_no_peak() {
        check(&json!({"steps": 2, "grad_accum": 300}));
        check(&json!({"steps": 2, "grad_accum": 300, "clip_grad_norm": 1.0, "precision": "fp32"}));
    }
}
