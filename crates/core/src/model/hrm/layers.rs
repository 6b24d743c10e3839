//! The model's layers (models/layers.py, models/sparse_embedding.py): fp32 weights, cast where they are used.

use std::rc::Rc;

use crate::building::{Builder, Init, Mode, Module};
use crate::dtype::DType;
use crate::model::nn::rotate;
use crate::op::{arange_floats, cat, flash_attn_func, index};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::config::Config;

/// `CastedLinear`
pub(super) struct CastedLinear {
    module: Module,
    weight: Tensor,
    bias: Option<Tensor>,
}

impl CastedLinear {
    /// Without a bias; weights begin as wide as the root of one over the inputs.
    pub(super) fn new(at: &Builder, inputs: u64, outputs: u64) -> Self {
        let begins = Init::TruncNormal(1.0 / (inputs as f64).sqrt());
        Self { module: at.module(), weight: at.parameter("weight", &[outputs, inputs], begins), bias: None }
    }

    /// All weights 0, all biases `bias`: what it says in the beginning does not depend on its input.
    pub(super) fn constant(at: &Builder, inputs: u64, outputs: u64, bias: f64) -> Self {
        let module = at.module();
        let weight = at.parameter("weight", &[outputs, inputs], Init::Zeros);
        Self { module, weight, bias: Some(at.parameter("bias", &[outputs], Init::Filled(bias))) }
    }

    pub(super) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let weight = self.weight.to(input.dtype());
        let bias = self.bias.as_ref().map(|bias| bias.to(input.dtype()));
        input.linear(&weight, bias.as_ref())
    }
}

/// `CastedEmbedding`
pub(super) struct CastedEmbedding {
    module: Module,
    embedding_weight: Tensor,
    cast_to: DType,
}

impl CastedEmbedding {
    pub(super) fn new(at: &Builder, count: u64, width: u64, cast_to: DType) -> Self {
        Self {
            module: at.module(),
            embedding_weight: at.parameter(
                "embedding_weight",
                &[count, width],
                Init::TruncNormal(1.0 / (width as f64).sqrt()),
            ),
            cast_to,
        }
    }

    pub(super) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.embedding_weight.to(self.cast_to).embedding(input, None)
    }

    /// The whole table in the dtype of the forward pass.
    pub(super) fn table(&self) -> Tensor {
        self.embedding_weight.to(self.cast_to)
    }
}

/// `CastedSparseEmbedding`: the table is a buffer; the rows of a batch are copied to a leaf that gradients flow into.
pub(crate) struct CastedSparseEmbedding {
    module: Module,
    /// The table, [puzzles, width].
    pub weights: Tensor,
    /// The batch's rows, the leaf.
    pub local_weights: Tensor,
    /// The batch's puzzles.
    pub local_ids: Tensor,
    cast_to: DType,
    mode: Rc<Mode>,
}

impl CastedSparseEmbedding {
    pub(super) fn new(at: &Builder, config: &Config) -> Self {
        let width = config.puzzle_emb_ndim;
        let zeros = |sizes: &[u64], dtype| {
            at.buffer(sizes, dtype, || vec![0.0; usize::try_from(sizes.iter().product::<u64>()).unwrap_or_default()])
        };
        Self {
            module: at.module(),
            weights: at.saved_buffer("weights", &[config.num_puzzle_identifiers, width], DType::Float32, Init::Zeros),
            local_weights: zeros(&[config.batch_size, width], DType::Float32).into_parameter(),
            local_ids: zeros(&[config.batch_size], DType::Int32),
            cast_to: config.forward_dtype,
            mode: at.mode(),
        }
    }

    pub(super) fn forward(&self, inputs: &Tensor) -> Tensor {
        let _module = self.module.enter();
        if !self.mode.is_training() {
            return self.rows_of(inputs).to(self.cast_to);
        }
        {
            let _no_grad = inputs.context().set_grad_enabled(false);
            self.local_weights.copy_from(&self.rows_of(inputs));
            self.local_ids.copy_from(inputs);
        }
        self.local_weights.to(self.cast_to)
    }

    /// `self.weights[inputs]`; indices are int64 inside.
    fn rows_of(&self, inputs: &Tensor) -> Tensor {
        let indices = inputs.to(DType::Int64);
        index(&self.weights, &[indices.size(0), self.weights.size(1)], &[Some(&indices)])
    }
}

/// `RotaryEmbedding`: cosines and sines of all positions, kept in fp32.
pub(super) struct RotaryEmbedding {
    cos_cached: Tensor,
    sin_cached: Tensor,
}

/// Cosines and sines.
pub(super) type CosSin = (Tensor, Tensor);

impl RotaryEmbedding {
    pub(super) fn new(at: &Builder, dim: u64, positions: u64, theta: f64) -> Self {
        let module = at.module();
        let _module = module.enter();
        let context = at.context();
        // Blocks and drops are Python's lives: merging them would free in another order.
        let inv_freq = {
            let exponents = arange_floats(context, dim, 2).div_scalar(dim as f64);
            let powers = exponents.power_of(theta);
            drop(exponents);
            powers.reciprocal().mul_scalar(1.0)
        };
        let t = arange_floats(context, positions, 1);
        let freqs = &t.unsqueeze(1) * &inv_freq.unsqueeze(0);
        let emb = cat(&[&freqs, &freqs], 1);
        let _category = context.enter_category(Category::Buffer);
        Self { cos_cached: emb.cos(), sin_cached: emb.sin() }
    }

    pub(super) fn forward(&self) -> CosSin {
        (self.cos_cached.clone(), self.sin_cached.clone())
    }
}

/// `apply_rotary_pos_emb` on [batch, tokens, heads, head_dim] queries and keys, in fp32 as the tables are.
fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, (cos, sin): &CosSin) -> (Tensor, Tensor) {
    let dtype = q.dtype();
    let (q, k) = (q.to(cos.dtype()), k.to(cos.dtype()));
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let q_embed = rotate(&q, &cos, &sin);
    let k_embed = rotate(&k, &cos, &sin);
    (q_embed.to(dtype), k_embed.to(dtype))
}

/// `Attention`, bidirectional, with as many heads for keys and values as for queries.
struct Attention {
    module: Module,
    qkv_proj: CastedLinear,
    o_proj: CastedLinear,
    num_heads: u64,
    head_dim: u64,
}

impl Attention {
    fn new(at: &Builder, config: &Config) -> Self {
        let (num_heads, head_dim) = (config.num_heads, config.head_dim());
        let inner = num_heads * head_dim;
        Self {
            module: at.module(),
            qkv_proj: CastedLinear::new(&at.at("qkv_proj"), config.hidden_size, 3 * inner),
            o_proj: CastedLinear::new(&at.at("o_proj"), inner, config.hidden_size),
            num_heads,
            head_dim,
        }
    }

    fn forward(&self, cos_sin: Option<&CosSin>, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let mut qkv = self.qkv_proj.forward(hidden_states);
        qkv = qkv.view(&[rows, tokens, 3 * self.num_heads, self.head_dim]);
        let part = |at: u64| qkv.slice(2, at * self.num_heads..(at + 1) * self.num_heads);
        let [mut query, mut key, value] = [0, 1, 2].map(part);
        if let Some(cos_sin) = cos_sin {
            (query, key) = apply_rotary_pos_emb(&query, &key, cos_sin);
        }
        let mut attn_output = flash_attn_func(&query, &key, &value);
        attn_output = attn_output.view(&[rows, tokens, self.num_heads * self.head_dim]);
        self.o_proj.forward(&attn_output)
    }
}

/// `SwiGLU`
struct SwiGlu {
    module: Module,
    gate_up_proj: CastedLinear,
    down_proj: CastedLinear,
}

impl SwiGlu {
    fn new(at: &Builder, config: &Config) -> Self {
        let (hidden, inter) = (config.hidden_size, config.intermediate_size);
        Self {
            module: at.module(),
            gate_up_proj: CastedLinear::new(&at.at("gate_up_proj"), hidden, 2 * inter),
            down_proj: CastedLinear::new(&at.at("down_proj"), inter, hidden),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [gate, up] = self.gate_up_proj.forward(x).split_last::<2>();
        let product = {
            let activated = gate.silu();
            &activated * &up
        };
        self.down_proj.forward(&product)
    }
}

/// `rms_norm`: without a weight, in fp32; the argument is its own to replace.
fn rms_norm(mut hidden_states: Tensor, eps: f64) -> Tensor {
    let input_dtype = hidden_states.dtype();
    hidden_states = hidden_states.to(DType::Float32);
    let variance = hidden_states.pow_scalar(2.0).mean_last();
    hidden_states = {
        let inverse = variance.add_scalar(eps).rsqrt();
        &hidden_states * &inverse
    };
    hidden_states.to(input_dtype)
}

/// `HierarchicalReasoningModel_ACTV1Block`: norms follow the residual sums.
pub(super) struct Block {
    module: Module,
    self_attn: Attention,
    mlp: SwiGlu,
    norm_eps: f64,
}

impl Block {
    pub(super) fn new(at: &Builder, config: &Config) -> Self {
        Self {
            module: at.module(),
            self_attn: Attention::new(&at.at("self_attn"), config),
            mlp: SwiGlu::new(&at.at("mlp"), config),
            norm_eps: config.rms_norm_eps,
        }
    }

    pub(super) fn forward(&self, cos_sin: Option<&CosSin>, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let sum = |hidden_states: &Tensor, update: Tensor| hidden_states + &update;
        let norm = |hidden_states| rms_norm(hidden_states, self.norm_eps);
        let hidden_states = norm(sum(hidden_states, self.self_attn.forward(cos_sin, hidden_states)));
        norm(sum(&hidden_states, self.mlp.forward(&hidden_states)))
    }
}
