//! [`Init`]: how a weight begins that no checkpoint has. It changes no byte; it is there for whoever computes with numbers.

/// How a weight begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    /// From a normal distribution of the builder's deviation.
    Normal,
    /// The same, with a row of zeros.
    NormalBut(Option<u64>),
    Zeros,
    Ones,
    /// peft's `kaiming_uniform_(a=sqrt(5))` of `lora_A`.
    KaimingUniform,
}
