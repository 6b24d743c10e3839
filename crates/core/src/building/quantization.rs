//! [`Quantization`]: what a model that is not trained may be loaded as.

/// How a model's linear layers are stored; embeddings, norms, biases and the output head stay in the model's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantization {
    /// `BitsAndBytesConfig(load_in_8bit=True)`: `Linear8bitLt` with a threshold of 6.
    Int8,
    /// `load_in_4bit`, `bnb_4bit_quant_type="nf4"`, `bnb_4bit_compute_dtype=torch.bfloat16`; absmax is not quantized again.
    Nf4,
}
