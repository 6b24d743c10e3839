//! Layers that do the same while decoding: one of each kind runs on tensors, and its events are copied for the others.
//!
//! A pass over a filled KV cache calls dozens of layers that differ in their place only. [`AlikeLayers`] belongs to a
//! cache, so to one call of `generate`. In the first pass that finds the cache filled every layer runs, and those whose
//! events are, renamed, those of an earlier layer are noted. In later passes the earlier layer stands for them wherever
//! all that they read looks the same: input, cache entry, mask, rotary tables. Any other layer runs.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::cache::{CacheEntry, KvCache};
use super::layers::Module;
use crate::tensor::{Look, Renaming, Stretch, Tensor};

/// So many kinds of layers are told apart in a pass.
const MOST_KINDS: usize = 4;

/// What layers read beside the hidden states and the cache: a mask, rotary tables.
type Shared = SmallVec<[Option<Look>; 3]>;

/// Which layers of a model do the same.
#[derive(Default)]
pub(super) struct AlikeLayers(RefCell<State>);

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
struct Call {
    layer: usize,
    module: u32,
    input: Look,
    shared: Shared,
    before: CacheEntry,
}

/// A call, what it did, and what it left.
struct Recorded {
    call: Call,
    stretch: Stretch,
    after: CacheEntry,
    output: Look,
}

/// Calls a decoder's layer; `shared` is what all layers of the pass are called with.
pub(crate) fn call_layer(
    module: &Module,
    layer: usize,
    hidden_states: &Tensor,
    shared: &[Option<&Tensor>],
    cache: Option<&KvCache>,
    forward: impl FnOnce(&Tensor) -> Tensor,
) -> Tensor {
    let cached = cache.filter(|_| !hidden_states.context().is_grad_enabled() && !module.has_hooks());
    let Some((cache, before)) = cached.and_then(|cache| Some((cache, cache.entry(layer)?))) else {
        return module.call(hidden_states, forward);
    };
    let shared = shared.iter().map(|tensor| tensor.map(Tensor::look)).collect();
    let call = Call { layer, module: module.id(), input: hidden_states.look(), shared, before };
    let mut state = cache.alike.0.borrow_mut();
    if let Some(output) = state.echo(&call, hidden_states, cache) {
        return output;
    }
    let context = hidden_states.context();
    let moment = context.moment();
    let output = module.call(hidden_states, forward);
    if let Some(after) = cache.entry(layer) {
        let stretch = context.stretch_since(&moment);
        state.note(Recorded { call, stretch, after, output: output.look() }, hidden_states);
    }
    output
}

impl AlikeLayers {
    /// What is known of the layers, for a cache that goes on for another.
    pub(super) fn inherited(&self) -> Self {
        let like = self.0.borrow().like.clone();
        Self(RefCell::new(State { like, ..State::default() }))
    }
}

impl State {
    /// Copies what an earlier layer did, where it is known to do the same.
    fn echo(&mut self, call: &Call, hidden_states: &Tensor, cache: &KvCache) -> Option<Tensor> {
        if self.seen != call.before.seen {
            self.recorded.clear();
            self.seen = call.before.seen;
        }
        let like = self.like.get(call.layer).copied().flatten()?;
        let earlier = self.recorded.iter().find(|earlier| earlier.call.layer == like && earlier.stands_for(call))?;
        let context = hidden_states.context();
        let renamed = context.echo(&earlier.stretch, &earlier.renaming(call));
        let tensor = |look: &Look| Some(Tensor::over(context, renamed(look.allocation?), look));
        let (keys, values) = (tensor(&earlier.after.keys)?, tensor(&earlier.after.values)?);
        cache.replace(call.layer, keys, values, earlier.after.seen);
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
                && context.is_echo(&earlier.stretch, &recorded.stretch, &earlier.renaming(call))
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
                .map(|look| look.allocation.map(|id| recorded.stretch.place(id)))
        };
        self.after.resembles(&other.after) && self.output.resembles(&other.output) && places(self) == places(other)
    }

    /// What changes when it stands for `call`.
    fn renaming(&self, call: &Call) -> Renaming {
        let pair = |old: &Look, new: &Look| old.allocation.zip(new.allocation);
        let (old, new) = (&self.call.before, &call.before);
        Renaming {
            modules: call.module.wrapping_sub(self.call.module),
            freed: [pair(&old.keys, &new.keys), pair(&old.values, &new.values)],
        }
    }

    /// Whether it leaves its output and its cache entry, of tensors of their own, and frees the entry that was there.
    fn is_self_contained(&self, hidden_states: &Tensor) -> bool {
        let (before, after) = (&self.call.before, &self.after);
        let made = [&after.keys, &after.values, &self.output].map(|look| look.allocation.filter(|_| !look.is_view));
        let freed = [&before.keys, &before.values].map(|look| look.allocation);
        let ([Some(keys), Some(values), Some(output)], [Some(old_keys), Some(old_values)]) = (made, freed) else {
            return false;
        };
        hidden_states.context().leaves(&self.stretch, [keys, values, output], [old_keys, old_values])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::dtype::DType;
    use crate::gpu::Gpu;
    use crate::op::full;
    use crate::tensor::Context;
    use crate::trace::Trace;

    const LAYERS: usize = 3;
    const PASSES: u64 = 5;

    /// Decodes with layers whose inner widths are these; returns how often a layer ran, and the trace.
    fn decode(widths: [u64; LAYERS], copies: bool) -> (usize, Trace) {
        let context = Context::new(Gpu::parse("h100").unwrap().device());
        let modules = [0; LAYERS].map(|_| Module::new(&context, context.register_module("layer".to_owned())));
        let cache = KvCache::new(Vec::new());
        let ran = Cell::new(0);
        {
            let _no_grad = context.set_grad_enabled(false);
            for _ in 0..PASSES {
                let mut hidden_states = full(&context, "embedding.default", &[1, 1, 1, 8], DType::Float32);
                for (layer, module) in modules.iter().enumerate() {
                    let forward = |hidden_states: &Tensor| {
                        let _module = module.enter();
                        ran.set(ran.get() + 1);
                        cache.update(layer, hidden_states, hidden_states);
                        full(&context, "mm.default", &[widths[layer]], DType::Float32);
                        hidden_states + hidden_states
                    };
                    hidden_states = if copies {
                        call_layer(module, layer, &hidden_states, &[None], Some(&cache), forward)
                    } else {
                        module.call(&hidden_states, forward)
                    };
                }
            }
        }
        drop(cache);
        (ran.get(), Rc::clone(&context).take_trace())
    }

    #[test]
    fn alike_layers_are_copied_after_the_second_pass_and_the_trace_is_the_same() {
        let (ran, trace) = decode([64; LAYERS], true);
        let (ran_all, expected) = decode([64; LAYERS], false);
        assert_eq!((ran, ran_all), (2 * LAYERS + 3, 5 * LAYERS));
        assert_eq!(trace, expected);
    }

    #[test]
    fn a_layer_that_differs_runs() {
        let (ran, trace) = decode([64, 96, 64], true);
        assert_eq!(ran, 2 * LAYERS + 3 * 2);
        assert_eq!(trace, decode([64, 96, 64], false).1);
    }
}
