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
    /// One of two sets in every pass: these factors up to the length of the first training, others beyond it.
    LongRope {
        short: Vec<f32>,
    },
    /// Of a part of the head, none for the rest.
    Proportional {
        factor: f32,
        part: f64,
    },
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
            // Multimodal models split it by sections, which their own class does.
            "default" | "mrope" => RopeKind::Default,
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
            "proportional" => RopeKind::Proportional {
                factor: parameters.positive("factor", 1.0)? as f32,
                part: parameters.number("partial_rotary_factor", 1.0)?,
            },
            // Phi-3's configs once said su or yarn for it; elsewhere yarn is fixed.
            "longrope" | "su" => RopeKind::LongRope { short: short_factors(parameters) },
            other => RopeKind::Other(other.to_owned()),
        };
        let attention_scaling = match kind {
            RopeKind::Yarn(yarn) => parameters.positive("attention_factor", yarn.attention_factor(parameters)?)?,
            RopeKind::LongRope { .. } => long_attention_factor(parameters, factor()?, original_max_positions)?,
            _ => 1.0,
        };
        Ok(Self { theta: parameters.positive("rope_theta", theta)?, kind, attention_scaling, original_max_positions })
    }

    /// The same as longrope, which older configs of Phi-3 call `yarn` (`convert_rope_params_to_dict`).
    pub(crate) fn into_long(self, fields: &Fields, positions: u64) -> Result<Self, FieldError> {
        let parameters = match fields.object("rope_scaling")?.filter(|older| !older.0.is_empty()) {
            Some(older) => older,
            None => fields.object("rope_parameters")?.unwrap_or_default(),
        };
        let ratio = positions as f64 / self.original_max_positions.max(1) as f64;
        let factor = parameters.positive("factor", ratio)?;
        let attention_scaling = long_attention_factor(&parameters, factor, self.original_max_positions)?;
        Ok(Self { kind: RopeKind::LongRope { short: short_factors(&parameters) }, attention_scaling, ..self })
    }

    /// The `rope_type` of frequencies that are not computed here.
    pub(crate) fn unknown(&self, dim: u64) -> Option<String> {
        match &self.kind {
            RopeKind::LongRope { short } if short.len() as u64 != dim / 2 => Some(format!(
                "`longrope` with {} numbers in `short_factor`, of {} that it needs,",
                short.len(),
                dim / 2
            )),
            RopeKind::Other(name) => Some(format!("`{name}`")),
            _ => None,
        }
    }

    /// `1.0 / (base ** (arange(0, dim, 2) / dim))` and what is made of it, in fp32 as PyTorch computes it.
    pub(crate) fn inverse_frequencies(&self, dim: u64) -> Vec<f64> {
        let power = |at: u64| (self.theta as f32).powf((2 * at) as f32 / dim as f32);
        (0..dim.div_ceil(2)).map(|at| f64::from(self.scaled(power(at), at, dim))).collect()
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
            RopeKind::LongRope { short } => {
                usize::try_from(at).ok().and_then(|at| short.get(at)).map_or(frequency, |factor| 1.0 / (factor * power))
            }
            RopeKind::Proportional { factor, part } => {
                let turned = at < (part * dim as f64 / 2.0) as u64;
                if turned { frequency / factor } else { 0.0 }
            }
            // Up to the length of the first training, dynamic frequencies are those of theta alone.
            RopeKind::Default | RopeKind::Dynamic | RopeKind::Other(_) => frequency,
        }
    }
}

/// `short_factor` of longrope; empty where there is none.
fn short_factors(parameters: &Fields) -> Vec<f32> {
    let listed = parameters.get("short_factor").and_then(|listed| listed.as_array());
    listed.into_iter().flatten().filter_map(|factor| factor.as_f64()).map(|factor| factor as f32).collect()
}

/// `_compute_longrope_parameters`: what cosines and sines are multiplied by.
fn long_attention_factor(parameters: &Fields, factor: f64, original: u64) -> Result<f64, FieldError> {
    let stretched = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original.max(2) as f64).ln()).sqrt() };
    parameters.positive("attention_factor", stretched)
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
