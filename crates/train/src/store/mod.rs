//! What a training keeps: weights as safetensors in Hugging Face's names ([`weights`]), and whole checkpoints that are there or are
//! not ([`checkpoints`]).

pub mod adapter;
pub mod checkpoints;
pub(crate) mod numbers;
pub mod pretrained;
pub mod weights;
