//! Layers that the denoisers share (models/normalization.py, embeddings.py, attention.py, activations.py).

use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::model::nn::Linear;
use crate::op::{Gelu, arange_floats, cat};
use crate::tensor::Tensor;

/// Numbers of a time step before it is embedded.
pub(super) const TIME_CHANNELS: u64 = 256;

/// `FeedForward`: a projection with its activation, and one back.
pub(super) struct FeedForward {
    module: Module,
    proj: Linear,
    out: Linear,
    is_gated: bool,
}

impl FeedForward {
    /// With `gelu-approximate`.
    pub(super) fn new(at: &Builder, width: u64) -> Self {
        Self::with_gate(at, width, false)
    }

    /// With `geglu`.
    pub(super) fn gated(at: &Builder, width: u64) -> Self {
        Self::with_gate(at, width, true)
    }

    fn with_gate(at: &Builder, width: u64, is_gated: bool) -> Self {
        let inner = 4 * width;
        let net = at.at("net");
        let projected = if is_gated { 2 * inner } else { inner };
        Self {
            module: at.module(),
            proj: Linear::new(&net.at("0").at("proj"), width, projected, true),
            out: Linear::new(&net.at("2"), inner, width, true),
            is_gated,
        }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let inner = {
            let projected = self.proj.forward(hidden_states);
            if self.is_gated {
                let [hidden_states, gate] = projected.split_last::<2>();
                drop(projected);
                &hidden_states * &gate.gelu(Gelu::Exact)
            } else {
                projected.gelu(Gelu::Tanh)
            }
        };
        self.out.forward(&inner)
    }
}

/// Two linear layers with an activation between them: `TimestepEmbedding`, `PixArtAlphaTextProjection`.
pub(super) struct Embedding {
    module: Module,
    linear_1: Linear,
    linear_2: Linear,
}

impl Embedding {
    pub(super) fn new(at: &Builder, inputs: u64, width: u64) -> Self {
        Self {
            module: at.module(),
            linear_1: Linear::new(&at.at("linear_1"), inputs, width, true),
            linear_2: Linear::new(&at.at("linear_2"), width, width, true),
        }
    }

    pub(super) fn forward(&self, sample: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let activated = {
            let projected = self.linear_1.forward(sample);
            projected.silu()
        };
        self.linear_2.forward(&activated)
    }
}

/// `get_timestep_embedding(timesteps, channels, flip_sin_to_cos=True)`
pub(super) fn embed_timesteps(timesteps: &Tensor, channels: u64) -> Tensor {
    let half = channels / 2;
    let mut exponent = arange_floats(timesteps.context(), half, 1).mul_scalar(1.0);
    exponent = exponent.div_scalar(1.0);
    let mut emb = exponent.exp();
    emb = {
        let column = timesteps.unsqueeze(1).float();
        &column * &emb.unsqueeze(0)
    };
    emb = emb.mul_scalar(1.0);
    emb = {
        let sines = emb.sin();
        cat(&[&sines, &emb.cos()], 1)
    };
    cat(&[&emb.narrow_any(1, half), &emb.narrow_any(1, half)], 1)
}

/// `CombinedTimestepTextProjEmbeddings`, and the one with guidance.
pub(super) struct TimeTextEmbeddings {
    module: Module,
    timestep_embedder: Embedding,
    guidance_embedder: Option<Embedding>,
    text_embedder: Embedding,
}

impl TimeTextEmbeddings {
    pub(super) fn new(at: &Builder, width: u64, pooled: u64, guidance: bool) -> Self {
        let embedding = |name: &str, inputs| Embedding::new(&at.at(name), inputs, width);
        Self {
            module: at.module(),
            timestep_embedder: embedding("timestep_embedder", TIME_CHANNELS),
            guidance_embedder: guidance.then(|| embedding("guidance_embedder", TIME_CHANNELS)),
            text_embedder: embedding("text_embedder", pooled),
        }
    }

    pub(super) fn forward(&self, timestep: &Tensor, guidance: Option<&Tensor>, pooled: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let embed = |embedder: &Embedding, numbers: &Tensor| {
            let projected = embed_timesteps(numbers, TIME_CHANNELS);
            let embedded = embedder.forward(&projected.to(pooled.dtype()));
            (projected, embedded)
        };
        let (_timesteps_proj, mut time) = embed(&self.timestep_embedder, timestep);
        let mut kept = Vec::new();
        if let (Some(embedder), Some(guidance)) = (&self.guidance_embedder, guidance) {
            let (guidance_proj, guidance_emb) = embed(embedder, guidance);
            let sum = &time + &guidance_emb;
            kept = vec![guidance_proj, guidance_emb, std::mem::replace(&mut time, sum)];
        }
        let pooled_projections = self.text_embedder.forward(pooled);
        let conditioning = &time + &pooled_projections;
        drop(kept);
        conditioning
    }
}

/// A norm without weights, whose result is scaled and shifted by parts of an embedding (`AdaLayerNormZero` and its kin).
pub(super) struct AdaLayerNorm {
    module: Module,
    linear: Linear,
    norm: Module,
    parts: u64,
}

/// `eps` of all these norms.
const EPS: f64 = 1e-6;

impl AdaLayerNorm {
    /// One whose embedding has so many parts.
    pub(super) fn new(at: &Builder, width: u64, parts: u64) -> Self {
        let linear = Linear::new(&at.at("linear"), width, parts * width, true);
        Self { module: at.module(), linear, norm: at.at("norm").module(), parts }
    }

    /// The embedding's parts.
    fn split_embedding(&self, emb: &Tensor) -> Vec<Tensor> {
        let emb = self.linear.forward(&emb.silu());
        emb.split_lengths(1, &vec![emb.size(1) / self.parts; self.parts as usize])
    }

    /// `AdaLayerNormZero`, `AdaLayerNormZeroSingle`: the result, and the parts: shift and scale, and what follows them.
    pub(super) fn forward(&self, x: &Tensor, emb: &Tensor) -> (Tensor, Vec<Tensor>) {
        let _module = self.module.enter();
        let parts = self.split_embedding(emb);
        let normed = normalize(&self.norm, x);
        (modulate(normed, &parts[1], &parts[0]), parts)
    }

    /// `AdaLayerNormContinuous`
    pub(super) fn forward_continuous(&self, x: &Tensor, emb: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let parts = {
            let emb = {
                let activated = emb.silu().to(x.dtype());
                self.linear.forward(&activated)
            };
            emb.split_lengths(1, &vec![emb.size(1) / self.parts; self.parts as usize])
        };
        let normed = normalize(&self.norm, x);
        modulate(normed, &parts[0], &parts[1])
    }

    /// `SD35AdaLayerNormZeroX`: two results.
    pub(super) fn forward_twice(&self, x: &Tensor, emb: &Tensor) -> (Tensor, Tensor, Vec<Tensor>) {
        let _module = self.module.enter();
        let parts = self.split_embedding(emb);
        let normed = normalize(&self.norm, x);
        let first = modulate(normed.clone(), &parts[1], &parts[0]);
        let second = modulate(normed.clone(), &parts[7], &parts[6]);
        (first, second, parts)
    }
}

/// A norm without weight and bias.
pub(super) fn normalize(norm: &Module, x: &Tensor) -> Tensor {
    let _module = norm.enter();
    x.layer_norm_unweighted(EPS)
}

/// `x * (1 + scale[:, None]) + shift[:, None]`; what nobody else holds of `x` goes when it is scaled.
pub(super) fn modulate(x: Tensor, scale: &Tensor, shift: &Tensor) -> Tensor {
    let scaled = {
        let factor = scale.unsqueeze(1).add_scalar(1.0);
        let scaled = &x * &factor;
        drop(x);
        scaled
    };
    &scaled + &shift.unsqueeze(1)
}

/// `gate.unsqueeze(1) * x`
pub(super) fn gated(gate: &Tensor, x: &Tensor) -> Tensor {
    &gate.unsqueeze(1) * x
}

/// `torch.nn.RMSNorm` of queries or keys.
pub(super) struct RmsNorm {
    module: Module,
    weight: Tensor,
}

impl RmsNorm {
    pub(super) fn new(at: &Builder, width: u64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", &[width], Init::Ones) }
    }

    /// As PyTorch has it.
    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        hidden_states.rms_norm(&self.weight, EPS)
    }

    /// As diffusers' own class has it.
    pub(super) fn forward_composed(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let variance = {
            let squares = input.to(DType::Float32).pow_scalar(2.0);
            squares.mean_last()
        };
        let mut hidden_states = {
            let inverse = variance.add_scalar(EPS).rsqrt();
            input * &inverse
        };
        if self.weight.dtype().is_half() {
            hidden_states = hidden_states.to(self.weight.dtype());
        }
        &hidden_states * &self.weight
    }
}
