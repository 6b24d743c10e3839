//! Stretches of a trace that happen many times with sizes that grow: tokens that are generated. How much of them is replayed.

use super::{AllocationId, Event, Trace};
use crate::units::MIB;

/// A stretch of events that happens several times, each time with sizes that are larger by the same: tokens that are
/// generated one after another. The last time is the one that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growing {
    /// Index of the event after its last.
    pub until: usize,
    /// How many events it has.
    pub stretch: usize,
    /// How often it happens, the recorded time among them.
    pub times: u64,
    /// How much of it a replay leaves out, but for its `whole` times.
    pub stride: Stride,
    /// How many of the first and of the last times are run.
    pub whole: (u64, u64),
    /// Whether small requests of those last times are given blocks as they come.
    pub places_last: bool,
    /// By how many bytes allocations are larger than the time before; the others stay as they are.
    pub growth: Vec<(AllocationId, i64)>,
    /// What it frees that it did not allocate, and what it leaves in its place for the next time.
    pub carried: Vec<(AllocationId, AllocationId)>,
}

/// What a replay of many times does not do each time; 0 and 1 are each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stride {
    /// One of so many times is run, and the recorded one.
    pub times: u64,
    /// Of those that are run, the small requests of one of so many are given blocks. Those of the others are only counted:
    /// in the small pool a block is as large as its request, wherever it lies.
    pub small: u64,
}

/// The first tokens of a generation, of which a replay leaves nothing out.
const FIRST_TOKENS: u64 = 64;
/// The last tokens of a generation, of which a replay leaves nothing out.
pub const LAST_TOKENS: u64 = 512;
/// Both where there is no upper bound anyway ([`Trace::passes_over_segments`]).
const ENDS_OF_UNBOUNDED: u64 = 16;
/// Stretches that are so many of their own lengths apart belong to one generation.
const APART: usize = 8;

impl Growing {
    /// The time that a replay runs after this one; from 0.
    pub fn size_after(&self, time: u64) -> u64 {
        let last = self.times.saturating_sub(1);
        let stride = self.stride.times.max(1);
        let until = self.times.saturating_sub(self.whole.1).min(last);
        let is_run = stride == 1 || time < self.whole.0 || time >= until;
        if is_run { time + 1 } else { time.saturating_add(stride).min(until) }
    }

    /// Whether all small requests of a time are given blocks.
    pub fn places_all(&self, time: u64) -> bool {
        time < self.whole.0 || (self.places_last && time >= self.times.saturating_sub(self.whole.1))
    }

    /// Whether an allocation has another size each time.
    fn grows(&self, id: AllocationId) -> bool {
        self.growth.binary_search_by_key(&id, |(id, _)| *id).is_ok()
    }

    /// How many bytes fewer than recorded an allocation asks for, `back` times before the recorded one.
    pub fn size_less(&self, id: AllocationId, back: u64) -> i64 {
        let growth = self.growth.binary_search_by_key(&id, |(id, _)| *id).map_or(0, |at| self.growth[at].1);
        growth.saturating_mul(i64::try_from(back).unwrap_or(i64::MAX))
    }
}

/// The largest request of PyTorch's small pool (`kSmallSize`, c10/core/AllocatorConfig.h, 2.11).
const SMALL_SIZE: u64 = 1 << 20;
/// As long as what grows gets a segment of another size (`ROUND_LARGE`) for no fewer than four tokens that are replayed, fewer
/// tokens leave the peak as it is. In larger leaps segments are passed over that the allocator would have taken: of 100,000
/// tokens it kept half as much in leaps of 0.9 MB.
const LARGEST_LEAP: u64 = 2 * MIB / 4;
/// From so many events of growing stretches on a trace is long: a twentieth of a second.
const LONG: u64 = 1 << 20;
/// So many are replayed one by one: a second. Of more, small requests get blocks in about [`FEWER`] alone.
const ALL: u64 = 1 << 25;
/// Events that stand for more than [`ALL`].
const FEWER: u64 = 1 << 22;
/// So many large and growing requests and frees are replayed one by one: three seconds.
const MOST_LARGE: u64 = 1 << 25;
/// Those that stand for more than [`MOST_LARGE`]: still some hundred tokens of a generation.
const FEWER_LARGE: u64 = 1 << 23;

/// How many times as many tokens as usual a simulation may leap over, of a generation of so many events that is replayed so often:
/// its replays leave out as many of them. None of the last ones.
pub fn leap_factor(events: u64, replays: u64) -> u64 {
    events.saturating_mul(replays).div_ceil(ALL).max(1)
}

/// One of how many times is run of stretches that do so much one by one in all replays.
const fn stride_of(one_by_one: u64) -> u64 {
    if one_by_one > MOST_LARGE { one_by_one.div_ceil(FEWER_LARGE) } else { 1 }
}

/// Whether replays pass over segments of a generation of so many tokens, each of `events`, of which so much is done one by one
/// and grows by so many bytes: then there is no upper bound, and a simulation need not tell its tokens apart by scratch.
pub fn will_be_unbounded(tokens: u64, (events, one_by_one): (u64, u64), growth: u64, replays: u64) -> bool {
    let of_all = |each: u64| each.saturating_mul(tokens).saturating_mul(replays);
    let times = if of_all(events) > ALL { stride_of(of_all(one_by_one)) } else { 1 };
    passes_over_segments(times, growth)
}

/// Whether segments are passed over where one of so many times is run, and what is asked for grows by so much each time.
const fn passes_over_segments(times: u64, growth: u64) -> bool {
    times > 1 && growth.saturating_mul(times) > LARGEST_LEAP
}

impl Trace {
    /// Whether a replay takes so long that the least memory is not searched for by one after another.
    pub fn is_long(&self) -> bool {
        self.grown_events() > LONG
    }

    /// Events of all growing stretches.
    pub fn grown_events(&self) -> u64 {
        let events = |growing: &Growing| (growing.stretch as u64).saturating_mul(growing.times);
        self.growing.iter().map(events).fold(0, u64::saturating_add)
    }

    /// Events of growing stretches that one replay goes through, after what it leaves out.
    pub fn replayed_grown_events(&self) -> u64 {
        let events = |growing: &Growing| {
            let ends = growing.whole.0.saturating_add(growing.whole.1).min(growing.times);
            let each = growing.stride.times.max(1).saturating_mul(growing.stride.small.max(1));
            (growing.stretch as u64).saturating_mul(ends + (growing.times - ends) / each)
        };
        self.growing.iter().map(events).fold(0, u64::saturating_add)
    }

    /// What a replay that counts small requests still does one by one, of all growing stretches: large requests, those of
    /// another size each time, and their frees.
    fn grown_one_by_one(&self) -> u64 {
        self.one_by_one(|growing| growing.times)
    }

    /// The same of one replay, after what it leaves out.
    pub fn replayed_one_by_one(&self) -> u64 {
        self.one_by_one(|growing| {
            let ends = growing.whole.0.saturating_add(growing.whole.1).min(growing.times);
            ends.saturating_add((growing.times - ends) / growing.stride.times.max(1))
        })
    }

    /// The same, of stretches that are run so many times.
    fn one_by_one(&self, times: impl Fn(&Growing) -> u64) -> u64 {
        let begin = |(index, event): (usize, &Event)| match event {
            Event::Growing(at) => Some((index, self.growing.get(*at as usize)?)),
            _ => None,
        };
        let is_large = |id: AllocationId| self.allocations.get(id as usize).is_some_and(|one| one.bytes > SMALL_SIZE);
        let requests = |(index, growing): (usize, &Growing)| {
            let stretch = self.events.get(index..growing.until).unwrap_or_default();
            let is_one = |event: &&Event| match event {
                Event::Alloc(id) => is_large(*id) || growing.grows(*id),
                _ => false,
            };
            times(growing).saturating_mul(2 * stretch.iter().filter(is_one).count() as u64)
        };
        self.events.iter().enumerate().filter_map(begin).map(requests).fold(0, u64::saturating_add)
    }

    /// Where so many replays of every growing stretch would take long together, each leaves out what lies between, and one of
    /// several counts small requests of the last tokens too.
    pub fn bound_replay(&mut self, replays: u64) {
        let events = self.grown_events().saturating_mul(replays);
        if events > ALL {
            let one_by_one = self.grown_one_by_one().saturating_mul(replays);
            let times = stride_of(one_by_one);
            let stride = Stride { times, small: events.div_ceil(FEWER).div_ceil(times) };
            self.stride(stride, replays == 1);
        }
    }

    /// Between the first and the last tokens of each generation a replay leaves out so much; of the last small requests are
    /// given blocks as they come, or as between.
    pub fn stride(&mut self, stride: Stride, places_last: bool) {
        let is_growing = |(index, event): (usize, &Event)| match event {
            Event::Growing(at) => Some((index, *at as usize)),
            _ => None,
        };
        let begun: Vec<(usize, usize)> = self.events.iter().enumerate().filter_map(is_growing).collect();
        let continues = |one: &(usize, usize), next: &(usize, usize)| {
            let growing = self.growing.get(one.1);
            growing.is_some_and(|growing| next.0.saturating_sub(growing.until) <= APART * growing.stretch)
        };
        let is_unbounded = self.leaps_over_segments(stride.times);
        let generations: Vec<Vec<usize>> =
            begun.chunk_by(continues).map(|generation| generation.iter().map(|(_, at)| *at).collect()).collect();
        for generation in generations {
            let times = |at: &usize| self.growing.get(*at).map_or(0, |growing| growing.times);
            let mut after: u64 = generation.iter().map(times).sum();
            let is_left_out = after > FIRST_TOKENS + LAST_TOKENS;
            let (first_tokens, last_tokens) = match is_unbounded && is_left_out {
                true => (ENDS_OF_UNBOUNDED, ENDS_OF_UNBOUNDED),
                false => (FIRST_TOKENS, LAST_TOKENS),
            };
            let mut before = 0;
            for at in generation {
                let Some(growing) = self.growing.get_mut(at) else { continue };
                after = after.saturating_sub(growing.times);
                let whole = |tokens: u64, beside: u64| tokens.saturating_sub(beside).min(growing.times);
                (growing.whole, growing.places_last) =
                    ((whole(first_tokens, before), whole(last_tokens, after)), places_last);
                let (first, last) = growing.whole;
                growing.stride = if first + last < growing.times {
                    stride
                } else if first < growing.times && !places_last {
                    Stride { times: 1, ..stride }
                } else {
                    Stride::default()
                };
                before += growing.times;
            }
        }
    }

    /// How much of the tokens that lie between a replay leaves out.
    pub fn replayed_stride(&self) -> Stride {
        self.growing.iter().map(|growing| growing.stride).max().unwrap_or_default()
    }

    /// Whether a replay that leaves tokens out passes over segments that the allocator would have taken.
    pub fn passes_over_segments(&self) -> bool {
        self.leaps_over_segments(self.replayed_stride().times)
    }

    /// The same, where one of so many times is run.
    fn leaps_over_segments(&self, times: u64) -> bool {
        let growths = self.growing.iter().flat_map(|growing| &growing.growth);
        let growth = growths.map(|(_, bytes)| bytes.unsigned_abs()).max().unwrap_or(0);
        passes_over_segments(times, growth)
    }

    /// Every growing stretch as often as it happens.
    pub(super) fn grown(&self) -> Self {
        let mut trace = Self { events: Vec::new(), growing: Vec::new(), ..self.clone() };
        // Where each event stands now.
        let mut moved = Vec::with_capacity(self.events.len() + 1);
        // What stands for an allocation in the recorded time of the stretch that runs.
        let mut carried: Vec<(AllocationId, AllocationId)> = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            moved.push(trace.events.len());
            match *event {
                Event::Growing(at) => {
                    let Some(growing) = self.growing.get(at as usize) else { continue };
                    let stretch = self.events.get(index + 1..growing.until).unwrap_or_default();
                    carried.clear();
                    (1..growing.times)
                        .rev()
                        .for_each(|back| trace.append_smaller(stretch, growing, back, &mut carried));
                }
                Event::Free(id) => {
                    let found = carried.iter().position(|(old, _)| *old == id);
                    trace.events.push(Event::Free(found.map_or(id, |at| carried.swap_remove(at).1)));
                }
                event => trace.events.push(event),
            }
        }
        moved.push(trace.events.len());
        for repeat in &mut trace.repeats {
            repeat.until = moved.get(repeat.until).copied().unwrap_or(repeat.until);
        }
        trace
    }

    /// Appends a growing stretch as it was `back` times before the recorded one; `carried` says what stands for what it
    /// frees, and afterwards for what the next time frees.
    fn append_smaller(
        &mut self,
        stretch: &[Event],
        growing: &Growing,
        back: u64,
        carried: &mut Vec<(AllocationId, AllocationId)>,
    ) {
        let mut own: std::collections::HashMap<AllocationId, AllocationId> = std::collections::HashMap::new();
        for event in stretch {
            match *event {
                Event::Alloc(id) => {
                    let Some(mut allocation) = self.allocations.get(id as usize).copied() else { continue };
                    allocation.bytes = allocation.bytes.saturating_add_signed(-growing.size_less(id, back));
                    let new = self.allocations.len() as AllocationId;
                    self.allocations.push(allocation);
                    own.insert(id, new);
                    self.events.push(Event::Alloc(new));
                }
                Event::Free(id) => {
                    let earlier = || carried.iter().find(|(old, _)| *old == id).map(|(_, new)| *new);
                    let freed = own.get(&id).copied().or_else(earlier).unwrap_or(id);
                    self.events.push(Event::Free(freed));
                }
                event => self.events.push(event),
            }
        }
        *carried = growing.carried.iter().filter_map(|(old, new)| Some((*old, *own.get(new)?))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_replayed() {
        let growing = Growing { until: 3, stretch: 2, times: 20, whole: (2, 3), ..Growing::default() };
        let replayed = |stride| {
            let growing = Growing { stride: Stride { times: stride, small: 1 }, ..growing.clone() };
            let events = vec![Event::Growing(0), Event::Alloc(0), Event::Alloc(1)];
            let allocations = [SMALL_SIZE, SMALL_SIZE + 1].map(crate::trace::Allocation::of_bytes).to_vec();
            Trace { events, allocations, growing: vec![growing], ..Trace::default() }.replayed_one_by_one()
        };
        assert_eq!([0, 1, 4].map(replayed), [40, 40, 2 * (2 + 3 + 15 / 4)]);
    }
}
