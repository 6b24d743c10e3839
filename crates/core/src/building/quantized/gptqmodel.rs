//! `TritonV2Linear` and `TorchLinear` of gptqmodel 7.6 (nn_modules/qlinear/tritonv2.py, torch.py), which hold checkpoints of GPTQ: in
//! training the weight is unpacked by a compiled function, and the product keeps it for its backward.

use crate::building::builder::Builder;
use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

/// Bits of an int32, which packs weights and zeros.
const WORD: u64 = 32;
/// What a layer's shifts are: an int32 for each number in a word.
const SHIFT_BYTES: u64 = 4;

/// A layer's packed weight and what unpacks it.
pub(crate) struct GptqModelWeight {
    qweight: Tensor,
    /// Inputs by outputs of the weight once it is unpacked.
    sizes: Shape,
    _others: [Tensor; 4],
}

impl GptqModelWeight {
    /// `_register_gptq_buffers` in the order of a checkpoint's names, and `_init_wf_unsqueeze_buffers` once all weights are there.
    pub(super) fn load(at: &Builder, [outputs, inputs]: [u64; 2], (bits, group): (u64, u64)) -> Self {
        let groups = inputs.div_ceil(if group == 0 { inputs.max(1) } else { group });
        let load = |name, sizes: &[u64], dtype| {
            at.begin_load(name);
            at.load(sizes, dtype, Category::Parameter)
        };
        let words = |numbers: u64| numbers.saturating_mul(bits).div_ceil(WORD);
        let g_idx = load("g_idx", &[inputs], DType::Int32);
        let qweight = load("qweight", &[words(inputs), outputs], DType::Int32);
        let qzeros = load("qzeros", &[groups, words(outputs)], DType::Int32);
        let scales = load("scales", &[groups, outputs], DType::Float16);
        [&g_idx, &qzeros, &scales].into_iter().for_each(|tensor| at.list_beside(tensor));
        at.begin_made_later();
        let shifts = at.load(&[WORD / bits.max(1) * SHIFT_BYTES], DType::Uint8, Category::Buffer);
        Self { qweight, sizes: Shape::new(&[inputs, outputs]), _others: [g_idx, qzeros, scales, shifts] }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.qweight
    }

    /// `_forward_eager`, whose bias is a buffer in fp16.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let sizes = x.sizes().with(x.sizes().len() - 1, self.sizes[1]);
        let rows = x.reshape(&[x.numel() / x.size(-1).max(1), x.size(-1)]);
        let out = {
            let weights = self.unpack().to(rows.dtype());
            rows.matmul(&weights).reshape(&sizes)
        };
        let Some(bias) = bias else { return out };
        let stored = Tensor::nowhere(bias.context(), *bias.sizes(), DType::Float16);
        out.add_in_place(&stored.to(out.dtype()))
    }

    /// `dequantize_weight`: Inductor fuses it into one kernel, which writes the weight in the dtype of its scales.
    fn unpack(&self) -> Tensor {
        Tensor::empty(self.qweight.context(), "empty_strided_cuda", self.sizes, DType::Float16)
    }
}
