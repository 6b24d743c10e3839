//! GPT-BigCode: SantaCoder and StarCoder (transformers/models/gpt_bigcode/modeling_gpt_bigcode.py): GPT-2's blocks, whose heads share one
//! key and one value.

mod attention;
mod config;

use std::rc::{Rc, Weak};

use crate::building::{BuildError, Builder, Module, OlderMask, counted_positions, tabled_mask};
use crate::dtype::DType;
use crate::job::{Attention, ModelSpec, ModelingFile, keys};
use crate::model::nn::{Embedding, HeadOutput, KvCache, LayerNorm, Linear, LmHead, MaskInputs, create_causal_mask};
use crate::tensor::{Tensor, checkpoint};

use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use attention::{GptBigCodeAttention, has_attention_classes};
use config::Config;

pub(crate) const FAMILY: Family = Family { model_types: &["gpt_bigcode"], build: GptBigCodeForCausalLm::build };

struct GptBigCodeMlp {
    module: Module,
    c_fc: Linear,
    c_proj: Linear,
    act: Module,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl GptBigCodeMlp {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            c_fc: Linear::new(&at.at("c_fc"), config.base.n_embd, config.base.n_inner, true),
            c_proj: Linear::new(&config.base.residual(&at.at("c_proj")), config.base.n_inner, config.base.n_embd, true),
            act: at.at("act").module(),
            dropout: at.at("dropout").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.c_fc.forward(input);
        hidden_states = {
            let _act = self.act.enter();
            self.config.base.activation.forward(&hidden_states)
        };
        hidden_states = self.c_proj.forward(&hidden_states);
        let _dropout = self.dropout.enter();
        hidden_states.dropout(self.config.base.resid_pdrop, self.options.drops_out())
    }
}

struct GptBigCodeBlock {
    module: Module,
    ln_1: LayerNorm,
    attn: GptBigCodeAttention,
    ln_2: LayerNorm,
    mlp: GptBigCodeMlp,
}

impl GptBigCodeBlock {
    fn new(at: &Builder, layer: usize, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            ln_1: LayerNorm::new(&at.at("ln_1"), config.base.n_embd, config.base.layer_norm_epsilon),
            attn: GptBigCodeAttention::new(&at.at("attn"), layer, config, options),
            ln_2: LayerNorm::new(&at.at("ln_2"), config.base.n_embd, config.base.layer_norm_epsilon),
            mlp: GptBigCodeMlp::new(&at.at("mlp"), config, options),
        }
    }

    fn forward(&self, residual: &Tensor, mask: Option<&Tensor>, cache: Option<&KvCache>) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.ln_1.forward(residual);
        let (attn_output, _weights) = self.attn.forward(&hidden_states, mask, cache);
        hidden_states = &attn_output + residual;
        let residual = hidden_states.clone();
        hidden_states = self.ln_2.forward(&hidden_states);
        let feed_forward_hidden_states = self.mlp.forward(&hidden_states);
        &residual + &feed_forward_hidden_states
    }
}

struct GptBigCodeModel {
    module: Module,
    wte: Embedding,
    wpe: Embedding,
    drop: Module,
    h: Vec<Rc<GptBigCodeBlock>>,
    ln_f: LayerNorm,
    /// `bias`: which positions see which.
    bias: Tensor,
    config: Config,
    options: RunOptions,
}

/// What the first half of the model's forward pass makes.
struct Embedded {
    hidden_states: Tensor,
    causal_mask: Option<Tensor>,
    /// What lives to the end of the pass beside.
    _variables: [Tensor; 3],
}

impl GptBigCodeModel {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let (positions, sizes) = (config.base.n_positions, [config.base.vocab_size, config.base.n_embd]);
        let block = |layer: u64| GptBigCodeBlock::new(&at.at("h").element(layer), layer as usize, config, options);
        let lower = || (0..positions).flat_map(|row| (0..positions).map(move |column| f64::from(column <= row)));
        Self {
            module: at.module(),
            wte: Embedding::of_head(&at.at("wte"), sizes, None, config.base.tie_word_embeddings),
            wpe: Embedding::new(&at.at("wpe"), positions, config.base.n_embd, None),
            drop: at.at("drop").module(),
            h: (0..config.base.n_layer).map(|layer| Rc::new(block(layer))).collect(),
            ln_f: LayerNorm::new(&at.at("ln_f"), config.base.n_embd, config.base.layer_norm_epsilon),
            bias: at.buffer(&[positions, positions], DType::Bool, || lower().collect()),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let has_classes = has_attention_classes(call.input_ids);
        let embedded = if has_classes { self.embed_masked(call) } else { self.embed(call) };
        let Embedded { mut hidden_states, causal_mask, _variables } = embedded;
        hidden_states = {
            let _drop = self.drop.enter();
            hidden_states.dropout(self.config.base.embd_pdrop, self.options.drops_out())
        };
        let recomputes = hidden_states.context().transformers().recomputes_gpt_bigcode();
        let is_recomputed = recomputes && self.options.checkpoints_layers();
        for block in &self.h {
            self.options.mode.note_hidden_states(&hidden_states);
            let (block, mask) = (Rc::clone(block), causal_mask.clone());
            // What is recomputed does not keep the cache, and comes after it.
            let cache =
                call.cache.as_ref().filter(|_| has_classes || !is_recomputed).map_or_else(Weak::new, Rc::downgrade);
            let region = move |hidden_states: &Tensor| {
                let cache = cache.upgrade();
                let forward = |hidden_states: &Tensor| block.forward(hidden_states, mask.as_ref(), cache.as_deref());
                block.module.call(hidden_states, forward)
            };
            hidden_states = if is_recomputed { checkpoint(&hidden_states, region) } else { region(&hidden_states) };
        }
        self.ln_f.forward(&hidden_states)
    }

    fn embed(&self, call: &ForwardCall) -> Embedded {
        let inputs_embeds = self.options.require_input_grads(self.wte.forward(call.input_ids));
        let position_ids = call.position_ids_for(&inputs_embeds);
        let inputs = call.mask_inputs(self.options.attention, &inputs_embeds, &position_ids);
        let causal_mask = create_causal_mask(MaskInputs { file: ModelingFile::GptBigCode, ..inputs });
        let position_embeds = self.wpe.forward(&position_ids);
        let hidden_states = &inputs_embeds + &position_embeds;
        Embedded { hidden_states, causal_mask, _variables: [inputs_embeds, position_ids, position_embeds] }
    }

    /// The same before masking_utils.py: positions are counted by the attention mask, and masks come first.
    fn embed_masked(&self, call: &ForwardCall) -> Embedded {
        let context = call.input_ids.context();
        if self.options.attention == Attention::Eager || call.decodes() {
            context.fail_unsimulated(&[keys::TRANSFORMERS], || {
                "gpt_bigcode's eager attention and generation before transformers 4.54 are not simulated".to_owned()
            });
        }
        let position_ids = match (call.position_ids, call.attention_mask) {
            (None, Some(mask)) => counted_positions(mask),
            _ => call.position_ids_for(call.input_ids),
        };
        let causal_mask = tabled_mask(
            &self.bias,
            OlderMask {
                attention: self.options.attention,
                inputs_embeds: self.wte.tied_weight(),
                attention_mask: call.attention_mask,
                seen: 0,
                window: None,
            },
            call.input_ids.size(1),
        );
        let inputs_embeds = self.options.require_input_grads(self.wte.forward(call.input_ids));
        let position_embeds = self.wpe.forward(&position_ids);
        let hidden_states = &inputs_embeds + &position_embeds;
        Embedded { hidden_states, causal_mask, _variables: [inputs_embeds, position_ids, position_embeds] }
    }
}

struct GptBigCodeForCausalLm {
    module: Module,
    transformer: GptBigCodeModel,
    lm_head: LmHead,
}

impl GptBigCodeForCausalLm {
    fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
        let config = Config::read(&model.config)?;
        let module = at.module();
        let at = &at.deviating(config.base.initializer_range);
        let transformer = GptBigCodeModel::new(&at.at("transformer"), config, options);
        let tied = config.base.tie_word_embeddings.then_some(&transformer.wte);
        let lm_head = LmHead::new(&at.at("lm_head"), config.base.n_embd, config.base.vocab_size, tied);
        Ok(Box::new(Self { module, transformer, lm_head: lm_head.of_file(ModelingFile::GptBigCode) }))
    }
}

impl Model for GptBigCodeForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.transformer.forward(call);
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), |logits| logits);
        ModelOutput { loss, logits, cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.transformer.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }
}
