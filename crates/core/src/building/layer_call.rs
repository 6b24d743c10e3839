//! How a model calls its layers.

use super::cache_layers::CacheLayers;
use super::layer_copies::{Call, LayerCopies};
use super::module::Module;
use crate::tensor::Tensor;

/// Calls a decoder's layer; `shared` is what all layers of the pass are called with. While decoding, a layer that does what
/// an earlier one did is copied ([`layer_copies`](super::layer_copies)).
pub(crate) fn call_layer(
    module: &Module,
    layer: usize,
    hidden_states: &Tensor,
    shared: &[Option<&Tensor>],
    cache: Option<(&CacheLayers, &LayerCopies)>,
    forward: impl FnOnce(&Tensor) -> Tensor,
) -> Tensor {
    let cached = cache.filter(|_| !hidden_states.context().is_grad_enabled() && !module.has_hooks());
    let Some((layers, copies, before)) =
        cached.and_then(|(layers, copies)| Some((layers, copies, layers.entry(layer)?)))
    else {
        return module.call(hidden_states, forward);
    };
    let shared = shared.iter().map(|tensor| tensor.map(Tensor::meta)).collect();
    let call = Call { layer, module: module.id(), input: hidden_states.meta(), shared, before };
    copies.call(call, hidden_states, layers, || module.call(hidden_states, forward))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::dtype::DType;
    use crate::gpu::Gpu;
    use crate::model::nn::KvCache;
    use crate::op::full;
    use crate::tensor::Context;
    use crate::trace::Trace;

    const LAYERS: usize = 3;
    const PASSES: u64 = 5;

    /// Decodes with layers whose inner widths are these; returns how often a layer ran, and the trace.
    fn decode(widths: [u64; LAYERS], copies: bool) -> (usize, Trace) {
        let context = Context::new(Gpu::parse("h100").unwrap().device());
        let modules =
            [0; LAYERS].map(|_| Module::new(&context, context.register_module("layer".to_owned()), &Rc::default()));
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
                        call_layer(module, layer, &hidden_states, &[None], Some(cache.parts()), forward)
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
