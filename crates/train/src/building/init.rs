//! [`Init`]: how a weight begins that no checkpoint has, as transformers' and peft's `_init_weights` have it.

use tonnage_torch::{Argument, Operator, Tensor, Torch, TorchError, operator};

use crate::tensor::ints;

/// How much of a normal distribution lies within two deviations: `erf(sqrt(2))`.
const WITHIN_CUT: f64 = 0.954_499_736_103_641_6;
/// The deviation of a normal distribution of deviation 1 that is cut at two: the root of `1 - 4 pdf(2) / WITHIN_CUT`.
const CUT_DEVIATION: f64 = 0.879_625_661_034_239_8;

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    /// From a normal distribution of the builder's deviation.
    Normal,
    /// The same, with a row of zeros.
    NormalBut(Option<u64>),
    Zeros,
    Ones,
    /// All the same.
    Filled(f64),
    /// HRM's `trunc_normal_init_`: normal of this deviation, cut at two of the distribution's before the cut.
    TruncNormal(f64),
    /// The logarithm of a number between 0.01 and 16, as the gated delta rule decays.
    LogUniform,
    /// peft's `kaiming_uniform_(a=sqrt(5))` of `lora_A`: as far as one over the root of its inputs.
    KaimingUniform,
}

impl Init {
    /// Such numbers on the CPU, fp32, from its default generator.
    pub(crate) fn numbers(self, torch: &'static Torch, sizes: &[u64], deviation: f64) -> Result<Tensor, TorchError> {
        let made = torch.call(operator!("empty", "memory_format"), &[ints(sizes)])?.tensor()?;
        let fill = |operator: &'static Operator, numbers: &[f64]| {
            let arguments: Vec<Argument<'_>> =
                [Argument::from(&made)].into_iter().chain(numbers.iter().map(|number| (*number).into())).collect();
            torch.call(operator, &arguments).map(drop)
        };
        match self {
            Self::Normal | Self::NormalBut(_) => fill(operator!("normal_"), &[0.0, deviation])?,
            Self::Zeros => fill(operator!("zero_"), &[])?,
            Self::Ones => fill(operator!("fill_", "Scalar"), &[1.0])?,
            Self::Filled(number) => fill(operator!("fill_", "Scalar"), &[number])?,
            Self::TruncNormal(deviation) => {
                let uncut = deviation / CUT_DEVIATION;
                fill(operator!("uniform_"), &[-WITHIN_CUT, WITHIN_CUT])?;
                fill(operator!("erfinv_"), &[])?;
                fill(operator!("mul_", "Scalar"), &[std::f64::consts::SQRT_2 * uncut])?;
                fill(operator!("clamp_"), &[-2.0 * uncut, 2.0 * uncut])?;
            }
            Self::LogUniform => {
                fill(operator!("uniform_"), &[0.01, 16.0])?;
                fill(operator!("log_"), &[])?;
            }
            Self::KaimingUniform => {
                let bound = 1.0 / (sizes.last().copied().unwrap_or(1).max(1) as f64).sqrt();
                fill(operator!("uniform_"), &[-bound, bound])?;
            }
        }
        if let Self::NormalBut(Some(row)) = self {
            let row = i64::try_from(row).unwrap_or_default();
            let row = torch.call(operator!("select", "int"), &[(&made).into(), Argument::Int(0), row.into()])?;
            torch.call(operator!("zero_"), &[(&row.tensor()?).into()])?;
        }
        Ok(made)
    }
}
