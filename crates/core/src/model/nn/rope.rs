//! The angles that rotary embeddings turn by (transformers/modeling_rope_utils.py): what a config says of them, and the inverse
//! frequencies that follow.

use std::f32::consts::TAU;

use crate::job::{FieldError, Fields};

/// How a model's rotary embeddings turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// `rope_theta`
    pub theta: f64,
    pub kind: RopeKind,
    /// What cosines and sines are multiplied by.
    pub attention_scaling: f64,
    /// Positions of the training that the frequencies were first made for.
    pub original_max_positions: u64,
}

/// How frequencies are stretched for sequences longer than those of the first training: `rope_type`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeKind {
    Default,
    Linear {
        factor: f32,
    },
    Llama3 {
        factor: f32,
        low: f32,
        high: f32,
    },
    Yarn(Yarn),
    /// Checked for growth and for reset in every pass.
    Dynamic,
    /// One of two sets in every pass.
    LongRope,
    /// Frequencies of some other kind, which are taken to be fixed.
    Other(String),
}

/// `_compute_yarn_parameters`
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Yarn {
    factor: f64,
    beta_fast: f64,
    beta_slow: f64,
    truncates: bool,
}

impl Rope {
    /// Frequencies of `rope_theta` alone.
    pub(crate) const fn of_theta(theta: f64) -> Self {
        Self { theta, kind: RopeKind::Default, attention_scaling: 1.0, original_max_positions: 0 }
    }

    /// Reads `rope_parameters`, which older configs call `rope_scaling`, with `rope_theta` beside it.
    pub(crate) fn read(fields: &Fields, default_theta: f64, positions: u64) -> Result<Self, FieldError> {
        let older = fields.object("rope_scaling")?.filter(|older| !older.0.is_empty());
        let parameters = match older {
            Some(older) => older,
            None => fields.object("rope_parameters")?.unwrap_or_default(),
        };
        Self::of_parameters(&parameters, fields, fields.positive("rope_theta", default_theta)?, positions)
    }

    /// The same from the parameters of one type of layers; `fields` is the whole config, of so many positions.
    pub(crate) fn of_parameters(
        parameters: &Fields,
        fields: &Fields,
        theta: f64,
        positions: u64,
    ) -> Result<Self, FieldError> {
        let name = parameters.text("rope_type", parameters.text("type", "default")?)?;
        let within = parameters.size("original_max_position_embeddings", positions)?;
        let original_max_positions = fields.size("original_max_position_embeddings", within)?;
        let factor = || parameters.positive("factor", positions as f64 / original_max_positions as f64);
        let kind = match name {
            "default" => RopeKind::Default,
            "linear" => RopeKind::Linear { factor: parameters.needed("factor")? as f32 },
            "llama3" => RopeKind::Llama3 {
                factor: parameters.needed("factor")? as f32,
                low: parameters.needed("low_freq_factor")? as f32,
                high: parameters.needed("high_freq_factor")? as f32,
            },
            "yarn" => RopeKind::Yarn(Yarn {
                factor: factor()?,
                beta_fast: parameters.positive("beta_fast", 32.0)?,
                beta_slow: parameters.positive("beta_slow", 1.0)?,
                truncates: parameters.flag("truncate", true)?,
            }),
            "dynamic" => RopeKind::Dynamic,
            // Phi-3's configs once said su or yarn for it; elsewhere yarn is fixed.
            "longrope" | "su" => RopeKind::LongRope,
            other => RopeKind::Other(other.to_owned()),
        };
        let attention_scaling = match kind {
            RopeKind::Yarn(yarn) => parameters.positive("attention_factor", yarn.attention_factor(parameters)?)?,
            _ => 1.0,
        };
        Ok(Self { theta: parameters.positive("rope_theta", theta)?, kind, attention_scaling, original_max_positions })
    }

    /// The `rope_type` of frequencies that are not computed here.
    pub(crate) fn unknown(&self) -> Option<&str> {
        match &self.kind {
            RopeKind::Dynamic => Some("dynamic"),
            RopeKind::LongRope => Some("longrope"),
            RopeKind::Other(name) => Some(name),
            RopeKind::Default | RopeKind::Linear { .. } | RopeKind::Llama3 { .. } | RopeKind::Yarn(_) => None,
        }
    }

    /// `1.0 / (base ** (arange(0, dim, 2) / dim))` and what is made of it, in fp32 as PyTorch computes it.
    pub(crate) fn inverse_frequencies(&self, dim: u64) -> Vec<f64> {
        let power = |at: u64| (self.theta as f32).powf((2 * at) as f32 / dim as f32);
        (0..dim / 2).map(|at| f64::from(self.scaled(power(at), at, dim))).collect()
    }

    fn scaled(&self, power: f32, at: u64, dim: u64) -> f32 {
        let frequency = 1.0 / power;
        match &self.kind {
            RopeKind::Linear { factor } => frequency / factor,
            RopeKind::Llama3 { factor, low, high } => {
                let original = self.original_max_positions as f32;
                let wavelength = TAU / frequency;
                if wavelength > original / low {
                    return frequency / factor;
                }
                if wavelength < original / high {
                    return frequency;
                }
                let smooth = (original / wavelength - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
            RopeKind::Yarn(yarn) => {
                let kept = 1.0 - yarn.ramp(self, at, dim);
                1.0 / (yarn.factor as f32 * power) * (1.0 - kept) + frequency * kept
            }
            RopeKind::Default | RopeKind::Dynamic | RopeKind::LongRope | RopeKind::Other(_) => frequency,
        }
    }
}

impl Yarn {
    /// What attention is scaled by where the config does not say it.
    fn attention_factor(self, parameters: &Fields) -> Result<f64, FieldError> {
        let scale = |mscale: f64| if self.factor <= 1.0 { 1.0 } else { 0.1 * mscale * self.factor.ln() + 1.0 };
        let (mscale, all) = (parameters.number("mscale", 0.0)?, parameters.number("mscale_all_dim", 0.0)?);
        Ok(if mscale != 0.0 && all != 0.0 { scale(mscale) / scale(all) } else { scale(1.0) })
    }

    /// From 0, where a frequency is left as it is, to 1, where it is stretched.
    fn ramp(self, rope: &Rope, at: u64, dim: u64) -> f32 {
        let (width, positions) = (dim as f64, rope.original_max_positions as f64);
        let turning = |turns: f64| width * (positions / (turns * std::f64::consts::TAU)).ln() / (2.0 * rope.theta.ln());
        let (mut low, mut high) = (turning(self.beta_fast), turning(self.beta_slow));
        if self.truncates {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(width - 1.0));
        if low == high {
            high += 0.001;
        }
        ((at as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0)
    }
}
