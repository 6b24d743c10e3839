//! Experts' weights, which are parameters of three dimensions and no linear layers: `from_pretrained` leaves them whole, and where
//! `quantize_moe_experts` asks for it they are packed as they load, and unpacked in whole at each access (bitsandbytes 0.50,
//! nn/parametrize.py; Axolotl, monkeypatch/moe_quant.py).

use std::cell::RefCell;

use crate::building::builder::Builder;
use crate::building::init::Init;
use crate::building::quantization::Quantization;
use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

use super::packed::Packed;

/// The weights of all experts: [experts, ..., ...].
pub(crate) enum ExpertStack {
    Whole(Tensor),
    FourBit(Packed),
    Int8(Int8Stack),
}

/// `Bnb8bitParametrization`
pub(crate) struct Int8Stack {
    weight: Tensor,
    _row_stats: Tensor,
    /// What the cache has for good.
    kept: RefCell<Option<Tensor>>,
}

impl ExpertStack {
    /// `pieces`: what a checkpoint calls the first tensor that it has of each expert, and of how many, where it has them one by one.
    pub(crate) fn load(at: &Builder, name: &str, sizes: [u64; 3], pieces: Option<(&str, u64)>, init: Init) -> Self {
        let first = pieces.map_or_else(|| name.to_owned(), |(piece, _)| format!("0.{piece}.weight"));
        let pieces = pieces.map(|(_, parts)| merge_experts(at, &first, sizes, parts));
        let sizes = &sizes;
        let Some(quantization) = at.expert_quantization() else {
            let weight = at.parameter(name, sizes, init);
            drop(pieces);
            return Self::Whole(weight);
        };
        at.begin_quantized_load(&first);
        let value = at.load(sizes, at.dtype(), Category::Temporary);
        drop(pieces);
        let stack = match quantization {
            Quantization::FourBit(form) => Self::FourBit(Packed::quantize(at, sizes, form.double, false)),
            // Experts on a base that its checkpoint has packed are refused.
            _ => Self::Int8(Int8Stack::quantize(at, sizes)),
        };
        drop(value);
        at.context().empty_cache();
        at.count_quantized(stack.stored(), sizes.iter().product());
        stack
    }

    fn stored(&self) -> &Tensor {
        match self {
            Self::Whole(weight) => weight,
            Self::FourBit(packed) => &packed.weight,
            Self::Int8(stack) => &stack.weight,
        }
    }

    /// What an access returns, which the module's cache keeps until its call returns: hand it to [`Self::leave`] then.
    pub(crate) fn access(&self) -> Tensor {
        match self {
            Self::Whole(weight) => weight.clone(),
            Self::FourBit(packed) => packed.dequantize(),
            Self::Int8(stack) => stack.kept.borrow().clone().unwrap_or_else(|| stack.dequantize()),
        }
    }

    /// The module's call returns, and its cache is emptied. In 8 bits Axolotl's hook is not called where a recomputation stops inside
    /// that call: what was unpacked stays then for the rest of the process.
    pub(crate) fn leave(&self, value: Tensor) {
        if let Self::Int8(stack) = self
            && value.context().has_stopped()
            && value.allocation().is_some()
        {
            stack.kept.replace(Some(value));
        }
    }
}

/// What of a checkpoint's experts is on the device when the stack `name` is made of them (transformers 5.17, core_model_loading.py,
/// `MergeModulelist` and `Concatenate`), where loads are followed.
fn merge_experts(at: &Builder, name: &str, [experts, rows, columns]: [u64; 3], parts: u64) -> Vec<Tensor> {
    if at.quantization().is_none() {
        return Vec::new();
    }
    at.begin_load(name);
    let rows = rows / parts.max(1);
    let load = |sizes: &[u64]| at.load(sizes, at.dtype(), Category::Temporary);
    let mut of_parts =
        (0..parts).map(|_| (0..experts).map(|_| load(&[rows, columns])).collect::<Vec<_>>()).collect::<Vec<_>>();
    if parts == 1 {
        return of_parts.pop().unwrap_or_default();
    }
    let mut stacks = Vec::new();
    // The variable of the loop keeps the last part's tensors until the next are there.
    for of_part in of_parts {
        stacks.push(load(&[experts, rows, columns]));
        drop(of_part);
    }
    stacks
}

impl Int8Stack {
    /// `int8_vectorwise_quant(original.to(torch.float16))`, without a threshold.
    fn quantize(at: &Builder, sizes: &[u64]) -> Self {
        let _half = (at.dtype() != DType::Float16).then(|| at.load(sizes, DType::Float16, Category::Temporary));
        let rows = sizes.iter().take(sizes.len().saturating_sub(1)).product();
        let row_stats = at.load(&[rows], DType::Float32, Category::Parameter);
        let weight = at.load(sizes, DType::Int8, Category::Parameter);
        Self { weight, _row_stats: row_stats, kept: RefCell::default() }
    }

    /// `A * stats.view(-1, 1) * (1 / 127)`, in fp32.
    fn dequantize(&self) -> Tensor {
        let sizes: &Shape = self.weight.sizes();
        let product = || Tensor::empty(self.weight.context(), "mul.Tensor", *sizes, DType::Float32);
        let scaled = product();
        let weight = product();
        drop(scaled);
        weight
    }
}
