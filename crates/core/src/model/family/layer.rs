//! What a decoder hands to each of its layers, and how it calls them
//! (transformers/modeling_layers.py, `GradientCheckpointingLayer`).

use std::rc::Rc;

use crate::building::Module;
use crate::model::nn::KvCache;
use crate::tensor::{Tensor, checkpoint};

use super::RunOptions;

/// The arguments of one layer's forward call beside the hidden states.
#[derive(Clone)]
pub(crate) struct LayerCall {
    pub cos: Tensor,
    pub sin: Tensor,
    /// Read by `flash_attention_2` and by layers with rotary embeddings of their own; alive as long as what a checkpointed
    /// layer needs to run again.
    pub position_ids: Tensor,
    pub mask: Option<Tensor>,
    /// The mask of what keeps a state, where a layer has attention beside it.
    pub linear_mask: Option<Tensor>,
    /// A copy of the embeddings, where layers read it.
    pub embedded: Option<Tensor>,
    pub cache: Option<Rc<KvCache>>,
    /// Whether `generate` decodes: the cache had tokens before this pass.
    pub decodes: bool,
}

/// A layer of a decoder.
pub(crate) trait DecoderLayer: 'static {
    /// Its place in the module tree.
    fn module(&self) -> &Module;

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor;
}

impl DecoderLayer for Box<dyn DecoderLayer> {
    fn module(&self) -> &Module {
        (**self).module()
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        (**self).forward(residual, call)
    }
}

/// What a layer does to each token by itself.
pub(crate) trait FeedForward: 'static {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor;

    /// The same with the router's logits, which the layer holds to its end where the block returns them.
    fn forward_routed(&self, x: &Tensor, call: &LayerCall) -> (Tensor, Option<Tensor>) {
        (self.forward(x, call), None)
    }
}

impl FeedForward for Box<dyn FeedForward> {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        (**self).forward(x, call)
    }

    fn forward_routed(&self, x: &Tensor, call: &LayerCall) -> (Tensor, Option<Tensor>) {
        (**self).forward_routed(x, call)
    }
}

/// Calls a layer, which is recomputed in backward (and then sees no cache) where layers are checkpointed.
pub(crate) fn call_layer<L: DecoderLayer>(
    layer: &Rc<L>,
    hidden_states: &Tensor,
    mut call: LayerCall,
    options: &RunOptions,
) -> Tensor {
    if options.checkpoints_layers() {
        call.cache = None;
    }
    options.mode.note_hidden_states(hidden_states);
    let layer = Rc::clone(layer);
    let recomputes = options.checkpoints_layers();
    call_region(hidden_states, options, move |hidden_states| {
        let tables = layer.module().cast_tables([&call.cos, &call.sin], recomputes);
        let cast = tables.map(|[cos, sin]| LayerCall { cos, sin, ..call.clone() });
        let call = cast.as_ref().unwrap_or(&call);
        layer.module().call(hidden_states, |hidden_states| layer.forward(hidden_states, call))
    })
}

/// Calls what a layer runs, which is recomputed in backward where layers are checkpointed.
pub(crate) fn call_region(
    hidden_states: &Tensor,
    options: &RunOptions,
    region: impl Fn(&Tensor) -> Tensor + 'static,
) -> Tensor {
    if options.checkpoints_layers() { checkpoint(hidden_states, region) } else { region(hidden_states) }
}
