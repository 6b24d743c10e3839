//! Generates tokens one after another, and leaps over those that do as foretold.

use crate::job::keys;
use std::rc::Rc;

use crate::tensor::{Context, Doubles, Growth, Landing, Leap, MOST_EVENTS, Tensor, Token};
use crate::trace::{LAST_TOKENS, leap_factor};

/// The longest leap of a generation whose tokens are all replayed. Kernels choose how to split their work by blocks of 64 keys and
/// more, so that no choice is made and unmade within one. Where a replay leaves tokens out, longer leaps come to those before the
/// last: what is between a leap's ends is of the sizes that lie between theirs.
const LONGEST_LEAP: u64 = 64;

/// The most events of all tokens. One of [`LONGEST_LEAP`] is run, and a replay leaves out more: seconds.
const MOST_REPLAYED: u64 = 1 << 31;
/// After so many tokens it is known how many events one has.
const FEW: u64 = 3;

/// What lives from token to token.
pub(super) trait Leaping: Sized {
    /// Over how many tokens it can be moved at once.
    fn room(&self) -> u64;

    /// The same so many tokens later.
    fn doubled(&self, doubles: &mut Doubles, tokens: u64) -> Self;

    /// Every tensor that it holds.
    fn for_each(&self, see: impl FnMut(&Tensor));
}

/// Runs so many tokens, each by `run`, or as if.
pub(super) fn run_leaping<S: Leaping>(context: &Rc<Context>, mut state: S, tokens: u64, run: impl Fn(&mut S)) -> S {
    let mut last: Option<Token> = None;
    let mut growth: Option<Growth> = None;
    let (mut done, mut leap, mut longest) = (0, 1, LONGEST_LEAP);
    let (mut strides, mut has_missed) = (Strides::default(), false);
    while done < tokens && !is_too_long(context, last.as_ref(), done, tokens) {
        let wanted = strides.tokens_left(done).map_or(leap, |left| left.min(longest));
        let most = most_at_once(wanted, tokens - done).min(state.room().saturating_add(1));
        #[cfg(test)]
        let most = if tests::LEAPS.get() { most } else { 1 };
        if let (Some(before), Some(foretold), 2..) = (&last, &growth, most) {
            match try_leap(context, &mut state, (before, foretold), most, &run) {
                Some(token) => {
                    last = Some(token);
                    done += most;
                    strides.note_hit(done);
                    leap = (leap * 2).min(longest);
                    continue;
                }
                None => {
                    leap = most / 2;
                    has_missed = true;
                    strides.note_miss(done);
                }
            }
            if leap > 1 {
                continue;
            }
        }
        let moment = context.moment();
        run(&mut state);
        let token = context.token_since(&moment, last.as_ref());
        growth = last.as_ref().and_then(|before| context.growth(before, &token, tokens));
        last = Some(token);
        if std::mem::take(&mut has_missed) {
            strides.note_change(done);
        }
        done += 1;
        leap = leap.max(2);
        let events = last.as_ref().map_or(0, Token::events);
        longest = LONGEST_LEAP.saturating_mul(leap_factor(events.saturating_mul(tokens), context.replays()));
    }
    if let Some(token) = &last {
        context.count_grown(token.events().saturating_mul(done).min(MOST_REPLAYED - context.grown()));
    }
    state
}

/// The tokens from one that does something else than foretold to the next such one: kernels change their minds every so many keys.
#[derive(Default)]
struct Strides {
    /// The token with which the current stride began.
    begin: u64,
    /// The last token that did something else.
    latest: u64,
    /// How long the stride before was.
    tokens: u64,
    /// Whether the one before that was as long.
    are_equal: bool,
}

/// So many tokens after a change it is known again how sizes grow.
const UNTIL_KNOWN: u64 = 2;

impl Strides {
    /// A token did something else than foretold; of several that follow one another the first counts.
    fn note_change(&mut self, token: u64) {
        if token > self.latest + 1 {
            let tokens = token - self.begin;
            let are_equal = tokens == self.tokens && tokens >= LONGEST_LEAP;
            *self = Self { begin: token, latest: token, tokens, are_equal };
        }
        self.latest = token;
    }

    /// Over how many tokens to leap next; `None` where strides are not equal. Two at once ask whether a stride ends.
    fn tokens_left(&self, done: u64) -> Option<u64> {
        let into = done - self.begin;
        let left = if into < UNTIL_KNOWN { 1 } else { self.tokens.saturating_sub(into).max(2) };
        self.are_equal.then_some(left)
    }

    /// After so many tokens a leap came as foretold: the stride is longer than those before, if it should have ended.
    fn note_hit(&mut self, done: u64) {
        self.are_equal &= done - self.begin <= self.tokens;
    }

    /// After so many tokens one did not: something changes within the stride, if it should not have ended.
    fn note_miss(&mut self, done: u64) {
        self.are_equal &= done - self.begin == self.tokens;
    }
}

/// How many of `left` tokens a leap may take: of the last ones no replay leaves any out.
fn most_at_once(leap: u64, left: u64) -> u64 {
    if left > LAST_TOKENS { leap.min(left - LAST_TOKENS) } else { leap.min(left).min(LONGEST_LEAP) }
}

/// Runs the token that is so many tokens after the last one; `None`, and nothing has happened, where it does something else
/// than foretold.
fn try_leap<S: Leaping>(
    context: &Rc<Context>,
    state: &mut S,
    (before, foretold): (&Token, &Growth),
    tokens: u64,
    run: impl Fn(&mut S),
) -> Option<Token> {
    let mut doubles = Doubles::default();
    let mut later = state.doubled(&mut doubles, tokens - 1);
    let originals = doubles.let_go()?;
    let leap: Leap = context.begin_leap();
    let moment = context.moment();
    run(&mut later);
    let token = context.token_since(&moment, Some(before));
    match context.land_leap(before, token, foretold, tokens) {
        Landing::Stands(token) => {
            originals.forget();
            *state = later;
            Some(token)
        }
        Landing::Joined(token, renamed) => {
            originals.forget();
            let mut doubles = Doubles::renamed(renamed);
            *state = later.doubled(&mut doubles, 0);
            doubles.let_go()?.forget();
            Some(token)
        }
        Landing::Misses => {
            later.for_each(Tensor::forget_storage);
            drop(later);
            context.take_back(&leap);
            None
        }
    }
}

/// Refuses a job whose tokens are too many to run, or to replay.
fn is_too_long(context: &Context, last: Option<&Token>, done: u64, tokens: u64) -> bool {
    let most = last.filter(|_| done == FEW).map(|token| (MOST_REPLAYED - context.grown()) / token.events().max(1));
    if let Some(most) = most.filter(|most| *most < tokens) {
        context.fail_unsimulated(&[keys::MAX_NEW_TOKENS, keys::COMPLETION_LEN], || format!("`max_new_tokens` or `completion_len`: {tokens} tokens; of this model and this job at most {most} are simulated"));
        return true;
    }
    let is_too_long = context.events() >= MOST_EVENTS;
    if is_too_long {
        context.fail_unsimulated(&[keys::MAX_NEW_TOKENS, keys::COMPLETION_LEN], || {
            format!("{tokens} new tokens: of this model and this job at most {done} are simulated")
        });
    }
    is_too_long
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::Strides;
    use crate::alloc::{AllocatorConfig, CachingAllocator, OutOfMemory, Replayed, Stats, replay_trace};
    use crate::gpu::{Device, catalog};
    use crate::job::{JobSource, from_case};
    use crate::step::{simulate, simulate_with_other_devices, try_to_simulate};
    use crate::trace::{AllocationId, Event, Stride, Trace};
    use crate::units::MIB;
    use crate::work::Work;

    thread_local! {
        /// Whether tokens are leapt over.
        pub(super) static LEAPS: Cell<bool> = const { Cell::new(true) };
    }

    /// Every event with what it allocates, by the order of birth.
    fn events(trace: &Trace) -> Vec<(Option<String>, u32)> {
        let mut births: HashMap<AllocationId, u32> = HashMap::new();
        let mut event = |event: &Event| match *event {
            Event::Alloc(id) => {
                let born = births.len() as u32;
                births.insert(id, born);
                let allocation = &trace.allocations[id as usize];
                let origin = trace.origin(allocation);
                (Some(format!("{} {:?} {}", allocation.bytes, origin, trace.module(allocation))), born)
            }
            Event::Free(id) => (None, births[&id]),
            Event::Phase(at) => (Some(trace.phases[at as usize].label()), at),
            Event::EmptyCache => (Some("empty_cache".to_owned()), 0),
            Event::Repeat(_) | Event::Growing(_) => panic!("is unrolled"),
        };
        trace.events.iter().map(&mut event).collect()
    }

    /// The trace as recorded, and unrolled; and what was computed.
    fn run(case: &Value, leaps: bool) -> (Trace, Trace, Work) {
        LEAPS.set(leaps);
        let simulation = simulate(&from_case(case).unwrap()).unwrap();
        LEAPS.set(true);
        let unrolled = simulation.trace.unrolled();
        (simulation.trace, unrolled, simulation.work)
    }

    fn check(case: &Value) -> usize {
        let (recorded, leapt, work) = run(case, true);
        let (whole, expected, all_work) = run(case, false);
        let (leapt, expected) = (events(&leapt), events(&expected));
        if let Some(at) = (0..leapt.len().max(expected.len())).find(|at| leapt.get(*at) != expected.get(*at)) {
            panic!("{case}: event {at} is {:?}, not {:?}", leapt.get(at), expected.get(at));
        }
        for (step, (phase, all)) in work.phases.iter().zip(&all_work.phases).enumerate() {
            let (flops, whole) = (phase.amount.flops.total(), all.amount.flops.total());
            assert!(flops.abs_diff(whole) <= whole / 1_000_000, "{case}: phase {step}: {flops}, not {whole}");
        }
        whole.events.len() / recorded.events.len().max(1)
    }

    fn models() -> Vec<Value> {
        let llama = json!({
            "family": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
        });
        let with = |changes: Value| {
            let mut model = llama.clone();
            model.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            model
        };
        vec![
            llama.clone(),
            with(json!({"family": "qwen3", "head_dim": 32, "num_key_value_heads": 4})),
            with(json!({"family": "mistral", "sliding_window": 40})),
            with(json!({"family": "gemma2", "head_dim": 16, "sliding_window": 32})),
            with(json!({"family": "phi3", "num_key_value_heads": 4, "rope_scaling": {"rope_type": "longrope"}})),
            json!({"family": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 2, "vocab_size": 512}),
        ]
    }

    #[test]
    fn what_is_leapt_over_is_what_every_token_does() {
        let mut state = 7_u64;
        let mut draw = move |among: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % among
        };
        for model in models() {
            for _ in 0..3 {
                let precision = ["fp32", "bf16"][draw(2) as usize];
                let attention = ["sdpa", "eager", "math"][draw(3) as usize];
                let case = json!({
                    "model": model, "task": "generate", "micro_batch": 1 + draw(5), "seq_len": 1 + draw(90),
                    "max_new_tokens": 1 + draw(400), "precision": precision, "attn": attention,
                });
                check(&case);
            }
        }
    }

    /// What the allocator makes of a trace on a device of so many bytes.
    fn replayed(trace: &Trace, capacity: Option<u64>) -> Result<Replayed, (Box<OutOfMemory>, Box<Replayed>)> {
        let mut allocator = CachingAllocator::new(AllocatorConfig::default(), capacity);
        replay_trace(&mut allocator, trace).map_err(|failed| (failed.oom, failed.replayed))
    }

    #[test]
    fn the_allocator_does_the_same_when_small_requests_are_left_out() {
        for (rows, tokens, kv_heads, changes) in [
            (32, 90, 8, json!({})),
            (40, 70, 8, json!({"family": "gemma2", "head_dim": 64, "sliding_window": 64})),
            (3, 120, 2, json!({"family": "qwen3", "head_dim": 256})),
        ] {
            let mut model = json!({
                "family": "llama", "hidden_size": 512, "intermediate_size": 640, "num_hidden_layers": 9,
                "num_attention_heads": 8, "num_key_value_heads": kv_heads, "vocab_size": 512,
            });
            model.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let case = json!({
                "model": model, "task": "generate", "micro_batch": rows, "seq_len": 40, "max_new_tokens": tokens,
                "precision": "bf16",
            });
            let (recorded, unrolled, _) = run(&case, true);
            let expected = replayed(&unrolled, None);
            assert_eq!(replayed(&recorded, None), expected, "{case}");
            let reserved = expected.unwrap().total.peak_reserved;
            for share in [70, 90, 97, 99] {
                let capacity = Some(reserved / 100 * share);
                assert_eq!(replayed(&recorded, capacity), replayed(&unrolled, capacity), "{case} on {share} %");
            }
        }
    }

    /// The peak of reserved bytes where a replay leaves out so much, and as it is; that of allocated bytes is as it is where
    /// every token is replayed.
    fn reserved(case: &Value, (stride, places_last): (Stride, bool), config: &AllocatorConfig) -> (u64, u64) {
        let mut trace = simulate(&from_case(case).unwrap()).unwrap().trace;
        let peaks = |trace: &Trace| {
            let mut allocator = CachingAllocator::new(config.clone(), None);
            replay_trace(&mut allocator, trace).unwrap()
        };
        let every = peaks(&trace);
        trace.stride(stride, places_last);
        assert!(trace.replayed_stride() == stride, "{case}: nothing is left out");
        let fewer = peaks(&trace);
        if stride.times <= 1 {
            let counted = |stats: &Stats| (stats.peak_allocated, stats.peak_requested, stats.peak_rounded512);
            assert_eq!(counted(&fewer.total), counted(&every.total), "{case}");
            let now = |stats: &Stats| (stats.allocated, stats.requested, stats.rounded512);
            assert_eq!(now(&fewer.total), now(&every.total), "{case}");
            assert!(fewer.phases.iter().map(counted).eq(every.phases.iter().map(counted)), "{case}");
        }
        (fewer.total.peak_reserved, every.total.peak_reserved)
    }

    /// Long generations of models that are small enough to replay every token of, so that the small pool counts for much.
    fn long_generations(tokens: u64) -> Vec<Value> {
        let case = |(rows, kv_heads, precision): (u64, u64, &str)| {
            json!({
                "model": {
                    "family": "llama", "hidden_size": 512, "intermediate_size": 640, "num_hidden_layers": 6,
                    "num_attention_heads": 8, "num_key_value_heads": kv_heads, "vocab_size": 512,
                },
                "task": "generate", "micro_batch": rows, "seq_len": 40, "max_new_tokens": tokens, "precision": precision,
            })
        };
        [(1, 8, "bf16"), (8, 4, "bf16"), (16, 2, "bf16"), (3, 8, "amp_bf16")].map(case).to_vec()
    }

    #[test]
    fn tokens_that_are_left_out_move_the_peak_little() {
        for case in long_generations(3000) {
            for times in [2, 14, 60] {
                let alone = (Stride { times, small: 1 }, true);
                let one_of_many = (Stride { times, small: 60 }, false);
                for strides in [alone, one_of_many] {
                    let (fewer, every) = reserved(&case, strides, &AllocatorConfig::default());
                    assert!(fewer.abs_diff(every) <= every / 25, "{case}: {fewer}, not {every}, with {strides:?}");
                }
            }
        }
    }

    /// Then there is no upper bound, and the lower one is that of fewer tokens.
    #[test]
    fn leaps_over_segments_take_no_more_than_every_token() {
        for case in long_generations(3000) {
            for times in [200, 900] {
                let (fewer, every) = reserved(&case, (Stride { times, small: 60 }, false), &AllocatorConfig::default());
                assert!(fewer <= every + every / 25, "{case}: {fewer}, not {every}, with one of {times}");
            }
        }
    }

    #[test]
    fn small_requests_that_are_only_counted_move_the_peak_by_segments() {
        for (case, config) in long_generations(2000)
            .iter()
            .zip([AllocatorConfig::default(), AllocatorConfig::expandable()].iter().cycle())
        {
            for small in [2, 60, 400] {
                let stride = Stride { times: 1, small };
                for places_last in [true, false] {
                    let (fewer, every) = reserved(case, (stride, places_last), config);
                    assert!(fewer.abs_diff(every) <= 8 * MIB, "{case}: {fewer}, not {every}, {small}, {places_last}");
                }
            }
        }
    }

    #[test]
    fn equal_strides_are_leapt_to_their_end_and_other_ones_are_not() {
        let mut strides = Strides::default();
        for change in [100, 101, 356, 612] {
            assert_eq!(strides.tokens_left(change), None, "{change}");
            strides.note_change(change);
        }
        let left = [613, 614, 700, 867].map(|done| strides.tokens_left(done));
        assert_eq!(left, [Some(1), Some(254), Some(168), Some(2)]);
        strides.note_hit(868);
        strides.note_miss(868);
        strides.note_change(868);
        assert_eq!(strides.tokens_left(870), Some(254));
        strides.note_hit(1126);
        assert_eq!(strides.tokens_left(1126), None, "this one is longer");
    }

    /// Of one replay of many a simulation runs fewer tokens, and the peak of allocated bytes is that of all.
    #[test]
    fn longer_leaps_leave_the_allocated_peak_as_it_is() {
        for case in long_generations(3000) {
            let job = from_case(&case).unwrap();
            let simulated = |replays: u64| simulate_with_other_devices(&job, &[], replays).unwrap().trace;
            let (all, fewer) = (simulated(1), simulated(1 << 20));
            let peak = |trace: &Trace| {
                let mut allocator = CachingAllocator::new(AllocatorConfig::default(), None);
                replay_trace(&mut allocator, trace).unwrap().total.peak_allocated
            };
            assert_eq!(peak(&fewer), peak(&all), "{case}");
            assert!(fewer.events.len() <= all.events.len(), "{case}");
        }
    }

    /// Every kind of GPU splits the work of a kernel otherwise after other numbers of keys: told apart by that scratch, a token of
    /// about every 64 was recorded.
    #[test]
    fn scratch_tells_no_tokens_apart_where_replays_pass_over_segments() {
        let source = JobSource::model("qwen2.5-7b").set("task", "grpo").set("completion_len", 10_000);
        let job = source.resolve(&[]).unwrap().job;
        let devices: Vec<Device> = catalog().iter().map(|row| row.gpu().device()).collect();
        let trace = simulate_with_other_devices(&job, &devices, 185).unwrap().trace;
        assert!(trace.events.len() < 200_000, "{} events", trace.events.len());
    }

    #[test]
    fn most_tokens_are_leapt_over() {
        for model in models() {
            let case =
                json!({"model": model, "task": "generate", "micro_batch": 2, "seq_len": 16, "max_new_tokens": 600});
            let fewer = check(&case);
            assert!(fewer >= 5, "{model}: only {fewer} times fewer events");
        }
    }

    #[test]
    fn what_was_simulated_in_vain_is_counted() {
        let model = models().remove(0);
        let case = json!({"model": model, "task": "generate", "micro_batch": 2, "seq_len": 16,
            "max_new_tokens": 4_000_000_000_u64});
        let (error, events) = try_to_simulate(&from_case(&case).unwrap(), &[], 1).err().unwrap();
        assert!(error.to_string().contains("tokens"), "{error}");
        assert!(events > 0, "{events}");
    }
}
