//! What no config may ask for: sizes whose products leave the range that figures are computed in.

use crate::job::FieldError;

/// The most parameters of a simulated model, 2^50: a thousand times the largest published ones, and far enough below
/// 2^64 that bytes of weights, gradients and optimizer state add up without overflow.
const MAX_PARAMETERS: u128 = 1 << 50;

/// The most elements of a tensor that exists, 2^43: 16 TiB in half precision, all that the allocator's device has. It
/// bounds the work too, as kernels are taken apart into pieces of 2^31 elements.
pub(crate) const MAX_ELEMENTS: u128 = 1 << 43;

/// A kind of weight matrix: the key that names its size, its two sides, and how many the model has.
pub(crate) type Weight = (&'static str, [u64; 2], u64);

/// Refuses a model of more than 2^50 parameters, naming the key of its largest weights.
pub(crate) fn bound_weights(weights: &[Weight]) -> Result<(), FieldError> {
    let count = |&(_, [rows, columns], copies): &Weight| u128::from(rows) * u128::from(columns) * u128::from(copies);
    let total: u128 = weights.iter().map(count).sum();
    match weights.iter().max_by_key(|weight| count(weight)) {
        Some((key, ..)) if total > MAX_PARAMETERS => {
            Err(FieldError::new(key, format!("makes a model of {total} parameters; at most 2^50 are simulated")))
        }
        _ => Ok(()),
    }
}

/// Refuses a number of heads that does not divide what they share.
pub(crate) fn check_divides(key: &str, value: u64, of: &str, total: u64) -> Result<(), FieldError> {
    if total.is_multiple_of(value) {
        return Ok(());
    }
    Err(FieldError::new(key, format!("{value} does not divide {of} = {total}")))
}

/// Refuses a head dimension that rotary embeddings cannot halve.
pub(crate) fn check_rotary(key: &str, head_dim: u64) -> Result<(), FieldError> {
    if head_dim.is_multiple_of(2) && head_dim > 0 {
        return Ok(());
    }
    Err(FieldError::new(key, format!("rotary embeddings need an even head dimension, found {head_dim}")))
}
