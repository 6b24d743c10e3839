//! Tokens that do the same with sizes that grow evenly: a few of them are run, the others follow from those.
//!
//! A token's events are compared with those of the one before it: where both do the same, their sizes say by how much each
//! allocation grows. Then a later token is run next, on [`Doubles`] of all that lives from token to token. If it asks for
//! what the growth foretells, it stands for the tokens before it ([`Event::Growing`]); else all is taken back.

use super::{Moment, TraceSlice};
use crate::tensor::context::Context;
use crate::tensor::counter::Tally;
use crate::tensor::handle::Tensor;
use crate::tensor::layout::Layout;
use tonnage_alloc::trace::{Allocation, AllocationId, Category, Event, Growing, Trace, will_be_unbounded};

/// What one token did.
pub struct Token {
    slice: TraceSlice,
    /// `None` where it did more than allocate and free what it or the token before it had allocated.
    did: Option<Vec<Did>>,
    /// Index of the leap that ended with it, in [`Trace::growing`](tonnage_alloc::trace::Trace).
    leap: Option<usize>,
}

/// How a leap ended.
pub enum Landing {
    /// The token stands for those before it.
    Stands(Token),
    /// It did what the leap before foretold as well, and is one with it: its allocations have other names now.
    Joined(Token, Renamed),
    /// It did something else.
    Misses,
}

/// Allocations from `first` on are named `by` less.
#[derive(Clone, Copy)]
pub struct Renamed {
    first: AllocationId,
    by: AllocationId,
}

impl Token {
    /// How many events it has.
    pub fn events(&self) -> u64 {
        self.slice.events.len() as u64
    }

    fn allocations<'t>(&self, trace: &'t Trace) -> &'t [Allocation] {
        let TraceSlice { allocations, .. } = &self.slice;
        &trace.allocations[allocations.start as usize..allocations.end as usize]
    }
}

/// An event of a token. Allocations are named by their place among those of their token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Did {
    Alloc,
    FreeOwn(AllocationId),
    FreeEarlier(AllocationId),
}

/// By how many bytes each allocation of a token is larger than that of the token before it.
pub struct Growth {
    bytes: Vec<i64>,
    /// The scratch of kernels, where tokens are not told apart by it; else nothing.
    untold: Vec<bool>,
}

impl Growth {
    /// Whether the allocation at this place is scratch that may be of any size.
    fn is_untold(&self, place: usize) -> bool {
        self.untold.get(place) == Some(&true) && self.bytes.get(place) == Some(&0)
    }
}

/// Whether it lives inside one operator alone.
fn is_scratch(allocation: &Allocation) -> bool {
    allocation.category == Category::OpInternal
}

/// A leap that was begun: what it takes to take it back.
pub struct Leap {
    moment: Moment,
    workspaces: [[bool; 2]; 2],
    tally: Tally,
}

impl Context {
    /// What the token did that began at `moment`.
    pub fn token_since(&self, moment: &Moment, before: Option<&Token>) -> Token {
        let slice = self.slice_since(moment);
        let trace = self.trace.borrow();
        let place = |slice: &TraceSlice, id: AllocationId| slice.allocations.contains(&id).then(|| slice.place(id));
        let did = |event: &Event| match *event {
            Event::Alloc(_) => Some(Did::Alloc),
            Event::Free(id) => {
                let earlier = || place(&before?.slice, id).map(Did::FreeEarlier);
                place(&slice, id).map(Did::FreeOwn).or_else(earlier)
            }
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => None,
        };
        let did = trace.events[slice.events.clone()].iter().map(did).collect();
        drop(trace);
        Token { slice, did, leap: None }
    }

    /// What grows from one token to the next; `None` where they do not do the same. `tokens` are generated in all: where replays
    /// of so many tell nothing of scratch, these are not told apart by it.
    pub fn growth(&self, earlier: &Token, later: &Token, tokens: u64) -> Option<Growth> {
        let sizes = self.sizes_beside(earlier, later, None)?;
        let bytes: Vec<i64> = sizes.iter().map(|(earlier, later)| later - earlier).collect();
        let trace = self.trace.borrow();
        let scratch: Vec<bool> = later.allocations(&trace).iter().map(is_scratch).collect();
        let kept = || bytes.iter().zip(&scratch).filter(|(_, is_scratch)| !**is_scratch).map(|(growth, _)| growth);
        let most = kept().map(|growth| growth.unsigned_abs()).max().unwrap_or(0);
        let one_by_one = 2 * kept().filter(|growth| **growth != 0).count() as u64;
        let is_told = !will_be_unbounded(tokens, (later.events(), one_by_one), most, self.replays());
        let untold = if is_told { Vec::new() } else { scratch };
        Some(Growth { bytes, untold })
    }

    /// The sizes of the allocations of two tokens, which agree in all else. Scratch that `growth` does not tell apart is what the
    /// later one has, on other devices too.
    fn sizes_beside(&self, earlier: &Token, later: &Token, growth: Option<&Growth>) -> Option<Vec<(i64, i64)>> {
        let trace = self.trace.borrow();
        let (these, those) = (earlier.allocations(&trace), later.allocations(&trace));
        let beside = |(place, (one, other)): (usize, (&Allocation, &Allocation))| {
            let one = match growth.is_some_and(|growth| growth.is_untold(place)) {
                true => Allocation { bytes: other.bytes, other_size: other.other_size, ..*one },
                false => *one,
            };
            let agrees = Allocation { bytes: 0, ..one } == Allocation { bytes: 0, ..*other };
            agrees.then_some((one.bytes as i64, other.bytes as i64))
        };
        let do_the_same = earlier.did.is_some() && earlier.did == later.did && these.len() == those.len();
        if do_the_same { these.iter().zip(those).enumerate().map(beside).collect() } else { None }
    }

    /// Begins a leap: the next token that is run may stand for those before it.
    pub fn begin_leap(&self) -> Leap {
        let leap = Leap { moment: self.moment(), workspaces: self.workspaces.get(), tally: self.counter.tally() };
        let mut trace = self.trace.borrow_mut();
        let at = trace.growing.len() as u32;
        trace.growing.push(Growing::default());
        trace.events.push(Event::Growing(at));
        drop(trace);
        leap
    }

    /// Ends a leap of so many tokens from the one that did `before`: whether `token` did what `growth` foretells.
    pub fn land_leap(&self, before: &Token, mut token: Token, growth: &Growth, tokens: u64) -> Landing {
        let Some(sizes) = self.sizes_beside(before, &token, Some(growth)) else { return Landing::Misses };
        let foretold = |((before, now), growth): (&(i64, i64), &i64)| *now == before + growth * tokens as i64;
        if sizes.len() != growth.bytes.len() || !sizes.iter().zip(&growth.bytes).all(foretold) {
            return Landing::Misses;
        }
        self.counter.interpolate(&before.slice.tallies, &token.slice.tallies, tokens - 1);
        if let Some(joined) = self.join_tokens(before, &token, growth, tokens) {
            return joined;
        }
        let (own, earlier) = (token.slice.allocations.start, before.slice.allocations.start);
        let grows = |(place, growth): (usize, &i64)| (*growth != 0).then_some((own + place as AllocationId, *growth));
        let carried = |did: &Did| match did {
            Did::FreeEarlier(place) => Some((earlier + place, own + place)),
            Did::Alloc | Did::FreeOwn(_) => None,
        };
        let growing = Growing {
            until: token.slice.events.end,
            stretch: token.slice.events.len(),
            times: tokens,
            growth: growth.bytes.iter().enumerate().filter_map(grows).collect(),
            carried: token.did.iter().flatten().filter_map(carried).collect(),
            ..Growing::default()
        };
        let mut trace = self.trace.borrow_mut();
        if let Some(last) = trace.growing.last_mut() {
            *last = growing;
        }
        token.leap = trace.growing.len().checked_sub(1);
        Landing::Stands(token)
    }

    /// Makes one leap of two that grow alike, the first of which ended with `before`.
    fn join_tokens(&self, before: &Token, token: &Token, growth: &Growth, tokens: u64) -> Option<Landing> {
        let mut trace = self.trace.borrow_mut();
        let trace = &mut *trace;
        let at = before.leap?;
        let (first, own) = (before.slice.allocations.start, token.slice.allocations.start);
        let grows = |(place, growth): (usize, &i64)| (*growth != 0).then_some((first + place as AllocationId, *growth));
        let earlier = trace.growing.get_mut(at)?;
        if !earlier.growth.iter().copied().eq(growth.bytes.iter().enumerate().filter_map(grows)) {
            return None;
        }
        earlier.times += tokens;
        for place in 0..growth.bytes.len() {
            trace.allocations[first as usize + place] = trace.allocations[own as usize + place];
        }
        trace.events.truncate(before.slice.events.end);
        trace.allocations.truncate(before.slice.allocations.end as usize);
        trace.growing.truncate(at + 1);
        let slice = TraceSlice {
            events: before.slice.events.clone(),
            allocations: before.slice.allocations.clone(),
            phases: before.slice.phases.clone(),
            tallies: token.slice.tallies,
        };
        let joined = Token { slice, did: token.did.clone(), leap: before.leap };
        Some(Landing::Joined(joined, Renamed { first: own, by: own - first }))
    }

    /// Takes all back that came since the leap began. Nothing that was allocated since may still be held.
    pub fn take_back(&self, leap: &Leap) {
        let mut trace = self.trace.borrow_mut();
        trace.events.truncate(leap.moment.event);
        trace.allocations.truncate(leap.moment.allocation as usize);
        trace.growing.pop();
        self.workspaces.set(leap.workspaces);
        self.counter.set(&leap.tally);
    }
}

/// Tensors that stand for others, over the same memory, while a leap is tried.
#[derive(Default)]
pub struct Doubles {
    pairs: Vec<(Tensor, Tensor)>,
    /// Whether some tensor could not be doubled.
    failed: bool,
    renamed: Option<Renamed>,
}

/// What doubles stand for.
pub struct Originals(Vec<Tensor>);

impl Doubles {
    /// Doubles of tensors whose allocations have other names.
    pub fn renamed(renamed: Renamed) -> Self {
        Self { renamed: Some(renamed), ..Self::default() }
    }

    /// One that stands for `tensor`, with so many more elements along a dimension.
    pub fn double_tensor(&mut self, tensor: &Tensor, longer: Option<(usize, u64)>) -> Tensor {
        let Some(id) = tensor.allocation() else { return tensor.clone() };
        if let Some((_, double)) = self.pairs.iter().find(|(original, _)| original.is_same(tensor)) {
            return double.clone();
        }
        let mut meta = tensor.meta();
        if let Some((dim, by)) = longer {
            let sizes = tensor.sizes();
            if by > 0 {
                self.failed |= !tensor.is_contiguous();
                meta = meta.resized(Layout::contiguous(sizes.with(dim, sizes[dim] + by)));
            }
        }
        self.failed |= self.pairs.iter().any(|(original, _)| original.allocation() == Some(id));
        let name = self.renamed.filter(|renamed| id >= renamed.first).map_or(id, |renamed| id - renamed.by);
        let double = Tensor::over(tensor.context(), name, &meta);
        self.pairs.push((tensor.clone(), double.clone()));
        double
    }

    /// Lets go of the doubles, which others hold by now. `None`, and the memory is the originals', where not all could be
    /// doubled.
    pub fn let_go(self) -> Option<Originals> {
        if self.failed {
            self.pairs.iter().for_each(|(_, double)| double.forget_storage());
            return None;
        }
        Some(Originals(self.pairs.into_iter().map(|(original, _)| original).collect()))
    }
}

impl Originals {
    /// The memory is the doubles' from now on.
    pub fn forget(self) {
        self.0.iter().for_each(Tensor::forget_storage);
    }
}
