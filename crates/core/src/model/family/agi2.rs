//! The small GPT of roby2358/agi2 at 6e54453 (src/model.py, embeddings.py, transformer.py, attention.py, ffn.py): GPT-2's
//! sizes, separate projections, scores and their softmax as tensors of their own, sinusoidal positions in a buffer.

use std::cell::RefCell;
use std::rc::Rc;

use super::RunOptions;
use super::bounds::{bound_weights, check_divides};
use super::decoder::initializer_range;
use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::model::nn::{Embedding, LayerNorm, Linear};
use crate::op::{Gelu, ones};
use crate::tensor::{Context, Tensor, checkpoint};

/// `nn.LayerNorm`'s default.
const EPS: f64 = 1e-5;

/// `AGI2Config`, what of it the layers read: neither `activation_function` nor `resid_pdrop` reaches one.
#[derive(Clone, Copy)]
struct Config {
    vocab_size: u64,
    n_embd: u64,
    n_layer: u64,
    n_head: u64,
    n_inner: u64,
    embd_pdrop: f64,
    attn_pdrop: f64,
    tie_word_embeddings: bool,
    /// The deviation that weights begin with: GPT-2's.
    initializer_range: f64,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        let n_embd = fields.size("n_embd", 768)?;
        let config = Self {
            vocab_size: fields.size("vocab_size", 50257)?,
            n_embd,
            n_layer: fields.layers("n_layer", 12)?,
            n_head: fields.size("n_head", 12)?,
            n_inner: fields.size("n_inner", n_embd.saturating_mul(4))?,
            embd_pdrop: fields.probability("embd_pdrop", 0.1)?,
            attn_pdrop: fields.probability("attn_pdrop", 0.1)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            initializer_range: initializer_range(fields)?,
        };
        check_divides("n_head", config.n_head, "n_embd", config.n_embd)?;
        if !config.n_embd.is_multiple_of(2) {
            return Err(FieldError::new("n_embd", "must be even: half of it are sines, half cosines of the position"));
        }
        bound_weights(&[
            ("vocab_size", [config.vocab_size, config.n_embd], 2),
            ("n_inner", [config.n_inner, config.n_embd], 2 * config.n_layer),
            ("n_embd", [config.n_embd, config.n_embd], 4 * config.n_layer),
        ])?;
        Ok(config)
    }
}

/// `MultiHeadAttention`
struct Attention {
    module: Module,
    w_q: Linear,
    w_k: Linear,
    w_v: Linear,
    w_o: Linear,
    dropout_layer: Module,
    config: Config,
    options: RunOptions,
}

impl Attention {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let projection = |name: &str| Linear::new(&at.at(name), config.n_embd, config.n_embd, true);
        Self {
            module: at.module(),
            w_q: projection("w_q"),
            w_k: projection("w_k"),
            w_v: projection("w_v"),
            w_o: projection("w_o"),
            dropout_layer: at.at("dropout_layer").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (batch, tokens, width, heads) = (x.size(0), x.size(1), self.config.n_embd, self.config.n_head);
        let split = |projected: Tensor| projected.view(&[batch, tokens, heads, width / heads]).transpose(1, 2);
        let query = split(self.w_q.forward(x));
        let key = split(self.w_k.forward(x));
        let value = split(self.w_v.forward(x));
        // Blocks and assignments are Python's: temporaries go with their expression, an old value after the new one.
        let mut scores = {
            let product = query.matmul(&key.transpose(2, 3));
            product.div_scalar(((width / heads) as f64).sqrt())
        };
        let hidden = if scores.dtype() == DType::Float16 { -1e4 } else { -1e9 };
        scores = scores.masked_fill(&mask.eq_number(0.0), hidden);
        let mut attention_weights = scores.softmax(None);
        attention_weights = {
            let _dropout = self.dropout_layer.enter();
            attention_weights.dropout(self.config.attn_pdrop, self.options.drops_out())
        };
        let mut context = attention_weights.matmul(&value);
        context = context.transpose(1, 2).contiguous().view(&[batch, tokens, width]);
        self.w_o.forward(&context)
    }
}

/// `FeedForward`: the block hands it no activation, so it is always the exact gelu.
struct FeedForward {
    module: Module,
    fc1: Linear,
    fc2: Linear,
    dropout1: Module,
    dropout2: Module,
    config: Config,
    options: RunOptions,
}

impl FeedForward {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            fc1: Linear::new(&at.at("fc1"), config.n_embd, config.n_inner, true),
            fc2: Linear::new(&at.at("fc2"), config.n_inner, config.n_embd, true),
            dropout1: at.at("dropout1").module(),
            dropout2: at.at("dropout2").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = self.fc1.forward(input);
        x = x.gelu(Gelu::Exact);
        x = self.dropped(&self.dropout1, &x);
        x = self.fc2.forward(&x);
        self.dropped(&self.dropout2, &x)
    }

    fn dropped(&self, dropout: &Module, x: &Tensor) -> Tensor {
        let _dropout = dropout.enter();
        x.dropout(self.config.attn_pdrop, self.options.drops_out())
    }
}

/// `TransformerBlock`
struct Block {
    module: Module,
    attention: Attention,
    feed_forward: FeedForward,
    ln1: LayerNorm,
    ln2: LayerNorm,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl Block {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            attention: Attention::new(&at.at("attention"), config, options),
            feed_forward: FeedForward::new(&at.at("feed_forward"), config, options),
            ln1: LayerNorm::new(&at.at("ln1"), config.n_embd, EPS),
            ln2: LayerNorm::new(&at.at("ln2"), config.n_embd, EPS),
            dropout: at.at("dropout").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, residual: &Tensor, mask: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = self.ln1.forward(residual);
        x = self.attention.forward(&x, mask);
        x = {
            let _dropout = self.dropout.enter();
            x.dropout(self.config.attn_pdrop, self.options.drops_out())
        };
        x = residual + &x;
        let residual = x.clone();
        x = self.ln2.forward(&x);
        x = self.feed_forward.forward(&x);
        &residual + &x
    }
}

/// `AGI2Model`
pub(crate) struct Agi2Model {
    module: Module,
    token_embeddings: Module,
    embedding: Embedding,
    embedding_dropout: Module,
    position_embeddings: Tensor,
    dropout: Module,
    transformer_blocks: Vec<Rc<Block>>,
    ln_f: LayerNorm,
    output_projection: Option<Linear>,
    /// By their number of tokens.
    causal_masks: RefCell<Vec<(u64, Tensor)>>,
    config: Config,
    options: RunOptions,
}

/// Builds the model on the device. Its positions are as many as a row of data has tokens, whatever its config says
/// (agi2_train.py, `n_positions=seq_len`).
///
/// # Errors
/// When its config is not one that it can be built from.
pub(crate) fn build(
    fields: &Fields,
    positions: u64,
    at: &Builder,
    options: &RunOptions,
) -> Result<Agi2Model, BuildError> {
    let config = Config::read(fields)?;
    let module = at.module();
    let at = &at.deviating(config.initializer_range);
    let tokens = at.at("token_embeddings");
    let embedding = Embedding::new(&tokens.at("embedding"), config.vocab_size, config.n_embd, None);
    let position_embeddings = at
        .at("position_embeddings")
        .buffer(&[positions, config.n_embd], DType::Float32, || waves(positions, config.n_embd));
    let blocks = at.at("transformer_blocks");
    let block = |layer| Rc::new(Block::new(&blocks.element(layer), config, options));
    let transformer_blocks = (0..config.n_layer).map(block).collect();
    let ln_f = LayerNorm::new(&at.at("ln_f"), config.n_embd, EPS);
    let head = || Linear::new(&at.at("output_projection"), config.n_embd, config.vocab_size, false);
    Ok(Agi2Model {
        module,
        token_embeddings: tokens.module(),
        embedding,
        embedding_dropout: tokens.at("dropout").module(),
        position_embeddings,
        dropout: at.at("dropout").module(),
        transformer_blocks,
        ln_f,
        output_projection: (!config.tie_word_embeddings).then(head),
        causal_masks: RefCell::default(),
        config,
        options: options.clone(),
    })
}

/// Sines and cosines of each position, one after the other, slower from pair to pair.
fn waves(positions: u64, width: u64) -> Vec<f64> {
    let wave = |position: u64, at: u64| {
        let angle = position as f64 * (-(10_000_f64.ln()) * (at - at % 2) as f64 / width as f64).exp();
        if at.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    };
    (0..positions).flat_map(|position| (0..width).map(move |at| wave(position, at))).collect()
}

impl Agi2Model {
    /// Logits of all positions.
    pub(crate) fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let tokens = input_ids.size(1);
        let mask = self.causal_mask(input_ids.context(), tokens);
        let token_embeddings = self.embed(input_ids);
        let position_embeddings = self.position_embeddings.narrow(0, 0..tokens);
        let mut x = &token_embeddings + &position_embeddings.unsqueeze(0);
        x = self.dropped(&self.dropout, &x);
        let mask = mask.unsqueeze(0).unsqueeze(0);
        for block in &self.transformer_blocks {
            x = self.call(block, &x, &mask);
        }
        x = self.ln_f.forward(&x);
        match &self.output_projection {
            Some(head) => head.forward(&x),
            None => x.matmul(&self.embedding.weight.t()),
        }
    }

    /// A block, recomputed in backward where the job says so: the trainer has no such switch.
    fn call(&self, block: &Rc<Block>, x: &Tensor, mask: &Tensor) -> Tensor {
        if !self.options.checkpoints_layers() {
            return block.forward(x, mask);
        }
        let (block, mask) = (Rc::clone(block), mask.clone());
        checkpoint(x, move |x| block.forward(x, &mask))
    }

    fn embed(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.token_embeddings.enter();
        let embeddings = self.embedding.forward(input_ids);
        self.dropped(&self.embedding_dropout, &embeddings)
    }

    fn dropped(&self, dropout: &Module, x: &Tensor) -> Tensor {
        let _dropout = dropout.enter();
        x.dropout(self.config.embd_pdrop, self.options.drops_out())
    }

    /// The mask of so many tokens, made once and kept: `~triu(ones, diagonal=1).bool()`.
    fn causal_mask(&self, context: &Rc<Context>, tokens: u64) -> Tensor {
        let made = || {
            let mut mask = {
                let upper = {
                    let ones = ones(context, &[tokens, tokens], DType::Float32);
                    ones.triu()
                };
                upper.to(DType::Bool)
            };
            mask = mask.bitwise_not();
            mask
        };
        let mut masks = self.causal_masks.borrow_mut();
        if let Some((_, mask)) = masks.iter().find(|(of, _)| *of == tokens) {
            return mask.clone();
        }
        let mask = made();
        masks.push((tokens, mask.clone()));
        mask
    }
}
