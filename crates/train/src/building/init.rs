//! [`Init`]: how a weight begins that no checkpoint has, as transformers' and peft's `_init_weights` have it.

use tonnage_torch::{Argument, Operator, Tensor, Torch, TorchError, operator};

use crate::tensor::ints;

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    /// From a normal distribution of the builder's deviation.
    Normal,
    /// The same, with a row of zeros.
    NormalBut(Option<u64>),
    Zeros,
    Ones,
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
