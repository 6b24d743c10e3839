//! [`Init`]: how a weight begins that no checkpoint has. It changes no byte; it is there for whoever computes with numbers.

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
    /// peft's `kaiming_uniform_(a=sqrt(5))` of `lora_A`.
    KaimingUniform,
}
