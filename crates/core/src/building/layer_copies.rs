//! Layers that do the same while decoding: one of each kind runs on tensors, and its events are copied for the others.
//!
//! A pass over a filled KV cache calls dozens of layers that differ in their place only. [`LayerCopies`] belongs to a
//! cache, so to one call of `generate`. In the first pass that finds the cache filled every layer runs, and those whose
//! events are, renamed, those of an earlier layer are noted. In later passes the earlier layer stands for them wherever
//! all that they read looks the same: input, cache entry, mask, rotary tables. Any other layer runs.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::cache_layers::{CacheEntry, CacheLayers};
use crate::tensor::{Renaming, Tensor, TensorMeta, TraceSlice};

/// So many kinds of layers are told apart in a pass.
const MOST_KINDS: usize = 4;

/// What layers read beside the hidden states and the cache: a mask, rotary tables.
pub(super) type Shared = SmallVec<[Option<TensorMeta>; 3]>;

/// Which layers of a model do the same.
#[derive(Default)]
pub(crate) struct LayerCopies(RefCell<State>);

#[derive(Default)]
struct State {
    /// By layer: the earlier one that does the same.
    like: Vec<Option<usize>>,
    /// What was recorded in this pass: a layer of each kind.
    recorded: Vec<Recorded>,
    /// Tokens in the cache when the pass began.
    seen: u64,
}

/// What a layer is called with.
pub(super) struct Call {
    pub layer: usize,
    pub module: u32,
    pub input: TensorMeta,
    pub shared: Shared,
    pub before: CacheEntry,
}

/// A call, what it did, and what it left.
struct Recorded {
    call: Call,
    slice: TraceSlice,
    after: CacheEntry,
    output: TensorMeta,
}

impl LayerCopies {
    /// The layer's output: copied from an earlier layer that does the same, else what `forward` makes.
    pub(super) fn call(
        &self,
        call: Call,
        hidden_states: &Tensor,
        layers: &CacheLayers,
        forward: impl FnOnce() -> Tensor,
    ) -> Tensor {
        let mut state = self.0.borrow_mut();
        if let Some(output) = state.copy(&call, hidden_states, layers) {
            return output;
        }
        let context = hidden_states.context();
        let moment = context.moment();
        let output = forward();
        if let Some(after) = layers.entry(call.layer) {
            let slice = context.slice_since(&moment);
            state.note(Recorded { call, slice, after, output: output.meta() }, hidden_states);
        }
        output
    }

    /// What is known of the layers, for a cache that goes on for another.
    pub(crate) fn inherited(&self) -> Self {
        let like = self.0.borrow().like.clone();
        Self(RefCell::new(State { like, ..State::default() }))
    }
}

impl State {
    /// Copies what an earlier layer did, where it is known to do the same.
    fn copy(&mut self, call: &Call, hidden_states: &Tensor, layers: &CacheLayers) -> Option<Tensor> {
        if self.seen != call.before.seen {
            self.recorded.clear();
            self.seen = call.before.seen;
        }
        let like = self.like.get(call.layer).copied().flatten()?;
        let earlier = self.recorded.iter().find(|earlier| earlier.call.layer == like && earlier.stands_for(call))?;
        let context = hidden_states.context();
        let renamed = context.copy_renamed(&earlier.slice, &earlier.renaming(call));
        let tensor = |meta: &TensorMeta| Some(Tensor::over(context, renamed(meta.allocation?), meta));
        let (keys, values) = (tensor(&earlier.after.keys)?, tensor(&earlier.after.values)?);
        layers.replace(call.layer, keys, values, earlier.after.seen);
        tensor(&earlier.output)
    }

    /// Compares a call with those of earlier layers in this pass, and keeps it where it is of a new kind.
    fn note(&mut self, recorded: Recorded, hidden_states: &Tensor) {
        if !recorded.is_self_contained(hidden_states) {
            return;
        }
        let call = &recorded.call;
        let alike = |earlier: &&Recorded| {
            let context = hidden_states.context();
            earlier.stands_for(call)
                && earlier.leaves_like(&recorded)
                && context.is_copy(&earlier.slice, &recorded.slice, &earlier.renaming(call))
        };
        if let Some(earlier) = self.recorded.iter().find(alike) {
            self.like.resize(self.like.len().max(call.layer + 1), None);
            self.like[call.layer] = Some(earlier.call.layer);
        } else if self.recorded.len() < MOST_KINDS {
            self.recorded.push(recorded);
        }
    }
}

impl Recorded {
    /// Whether a later layer is called with what looks the same.
    fn stands_for(&self, call: &Call) -> bool {
        self.call.input.resembles(&call.input)
            && self.call.shared == call.shared
            && self.call.before.resembles(&call.before)
    }

    /// Whether what it leaves looks like what `other` leaves, and lies at the same place among its allocations.
    fn leaves_like(&self, other: &Self) -> bool {
        let places = |recorded: &Self| {
            [&recorded.after.keys, &recorded.after.values, &recorded.output]
                .map(|meta| meta.allocation.map(|id| recorded.slice.place(id)))
        };
        self.after.resembles(&other.after) && self.output.resembles(&other.output) && places(self) == places(other)
    }

    /// What changes when it stands for `call`.
    fn renaming(&self, call: &Call) -> Renaming {
        let pair = |old: &TensorMeta, new: &TensorMeta| old.allocation.zip(new.allocation);
        let (old, new) = (&self.call.before, &call.before);
        Renaming {
            modules: call.module.wrapping_sub(self.call.module),
            freed: [pair(&old.keys, &new.keys), pair(&old.values, &new.values)],
        }
    }

    /// Whether it leaves its output and its cache entry, of tensors of their own, and frees the entry that was there.
    fn is_self_contained(&self, hidden_states: &Tensor) -> bool {
        let (before, after) = (&self.call.before, &self.after);
        let made = [&after.keys, &after.values, &self.output].map(|meta| meta.allocation.filter(|_| !meta.is_view));
        let freed = [&before.keys, &before.values].map(|meta| meta.allocation);
        let ([Some(keys), Some(values), Some(output)], [Some(old_keys), Some(old_values)]) = (made, freed) else {
            return false;
        };
        hidden_states.context().leaves(&self.slice, [keys, values, output], [old_keys, old_values])
    }
}
