//! Which kernel runs (cuda/sdp_utils.cpp): what each kernel takes, and the order in which they are asked.
//!
//! Checked against PyTorch 2.11 itself: `testdata/attention/choices.json`, measured by the script beside it.

use super::{AttentionCall, AttentionKernel};
use crate::Attention;
use crate::Device;
use crate::dtype::DType;
use crate::key;
use crate::tensor::Tensor;

/// The kernels that take a call, for the reader of an error.
const NAMES: [(Attention, &str); 4] = [
    (Attention::Flash, "flash"),
    (Attention::MemEfficient, "mem_efficient"),
    (Attention::Math, "math"),
    (Attention::Cudnn, "cudnn"),
];

/// A call as the checks see it.
struct Question<'a> {
    query: &'a Tensor,
    key: &'a Tensor,
    value: &'a Tensor,
    call: &'a AttentionCall<'a>,
    device: Device,
}

/// `_fused_sdp_choice_cuda` with cuDNN attention deprioritized: flash, then mem-efficient, then math; of a backend that
/// was asked for by name only its own kernel. PyTorch stops where that one does not take the call.
pub fn choose_kernel(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> AttentionKernel {
    let question = |device| Question { query, key, value, call, device };
    query.context().ask(|device| question(device).kernel().ok_or_else(|| question(device).describe())).unwrap_or_else(
        |problem| {
            query.context().fail(&[key::ATTENTION], || problem);
            AttentionKernel::Math
        },
    )
}

impl Question<'_> {
    /// The kernel that runs; `None` where PyTorch stops.
    fn kernel(&self) -> Option<AttentionKernel> {
        match self.call.backend {
            Attention::Sdpa if self.flash() => Some(AttentionKernel::Flash),
            Attention::Sdpa if self.mem_efficient() => Some(AttentionKernel::MemEfficient),
            Attention::Flash => self.flash().then_some(AttentionKernel::Flash),
            // cuDNN saves what flash saves.
            Attention::Cudnn => self.cudnn().then_some(AttentionKernel::Flash),
            Attention::MemEfficient => self.mem_efficient().then_some(AttentionKernel::MemEfficient),
            Attention::Sdpa | Attention::Math | Attention::Eager | Attention::FlashAttention2 => {
                Some(AttentionKernel::Math)
            }
        }
    }

    const fn capability(&self) -> (u32, u32) {
        self.device.compute_capability
    }

    fn requires_grad(&self) -> bool {
        self.query.context().is_grad_enabled() && [self.query, self.key, self.value].iter().any(|t| t.requires_grad())
    }

    /// `can_use_flash_attention`
    fn flash(&self) -> bool {
        let head_dim = self.query.size(-1);
        self.has_low_precision()
            && self.is_supported_device((8, 0))
            && self.call.mask.is_none()
            && head_dim <= 256
            && self.has_one_head_dim()
            && self.has_matching_heads(true)
            && !(self.call.is_causal && self.query.size(2) != self.key.size(2))
            && !self.lacks_flash_backward(head_dim)
    }

    /// Flash's backward for the largest heads does not fit the shared memory of these devices.
    fn lacks_flash_backward(&self, head_dim: u64) -> bool {
        let small = matches!(self.capability(), (8, 6..=9) | (12, 0..=1));
        small && self.requires_grad() && head_dim > 192 && (head_dim <= 224 || self.call.dropout > 0.0)
    }

    /// `can_use_mem_efficient_attention`
    fn mem_efficient(&self) -> bool {
        let alignment = self.gemm_alignment();
        let aligned = |tensor: &Tensor| tensor.size(-1) > 0 && tensor.size(-1).is_multiple_of(alignment);
        self.is_supported_device((5, 0))
            && (self.query.dtype() == DType::Float32 || self.has_low_precision())
            && self.query.size(-1) == self.key.size(-1)
            && aligned(self.query)
            && aligned(self.value)
            && self.has_matching_heads(false)
            && self.has_dense_mask_rows()
    }

    /// `minimum_gemm_alignment`, in elements.
    fn gemm_alignment(&self) -> u64 {
        match (self.query.dtype().is_half(), self.capability().0) {
            (true, 7..) => 8,
            (false, 8..) => 4,
            _ => 1,
        }
    }

    /// `can_use_cudnn_attention` of cuDNN 9.19
    fn cudnn(&self) -> bool {
        let (queries, keys) = (self.query.size(2), self.key.size(2));
        let largest = self.query.size(-1).max(self.value.size(-1));
        let multiples = [self.query, self.value].iter().all(|tensor| tensor.size(-1).is_multiple_of(8));
        self.has_low_precision()
            && self.is_supported_device((8, 0))
            && multiples
            && largest <= self.cudnn_head_dim()
            && self.has_matching_heads(true)
            && self.has_dense_mask_rows()
            && keys > 1
            && (self.call.dropout == 0.0 || queries > 1)
    }

    fn cudnn_head_dim(&self) -> u64 {
        match self.capability() {
            (9, 0) => 256,
            (10, _) if self.query.size(-1) == 192 && self.value.size(-1) == 128 => 192,
            _ => 128,
        }
    }

    fn has_low_precision(&self) -> bool {
        self.query.dtype() == DType::Float16 || (self.query.dtype() == DType::Bfloat16 && self.capability() >= (8, 0))
    }

    fn is_supported_device(&self, first: (u32, u32)) -> bool {
        (first..=(12, 1)).contains(&self.capability())
    }

    fn has_one_head_dim(&self) -> bool {
        self.query.size(-1) == self.key.size(-1) && self.query.size(-1) == self.value.size(-1)
    }

    /// `check_batch_size_and_num_heads_dense`
    fn has_matching_heads(&self, takes_groups: bool) -> bool {
        let (heads, keys, values) = (self.query.size(1), self.key.size(1), self.value.size(1));
        if takes_groups && self.call.enable_gqa {
            return keys == values && keys > 0 && heads.is_multiple_of(keys);
        }
        heads == keys && keys == values
    }

    /// `check_last_dim_stride_equals_1_dense`; query, key and value always have it.
    fn has_dense_mask_rows(&self) -> bool {
        self.call.mask.is_none_or(|mask| mask.strides().last_size() == 1)
    }

    /// PyTorch's error, with what the call was.
    fn describe(&self) -> String {
        let asked = NAMES.iter().find(|(backend, _)| *backend == self.call.backend).map_or("", |(_, name)| name);
        let (major, minor) = self.capability();
        let mask = if self.call.mask.is_some() { "with a mask" } else { "without a mask" };
        format!(
            "attention = \"{asked}\": No available kernel: it does not take {} queries of {} heads by {} over {} \
             key-value heads, {mask}, on sm_{major}{minor}",
            self.query.dtype().name(),
            self.query.size(1),
            self.query.size(-1),
            self.key.size(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::op::full;
    use crate::tensor::Context;

    const TABLE: &str = include_str!("../../../../../testdata/attention/choices.json");

    fn dtype(name: &str) -> DType {
        match name {
            "float32" => DType::Float32,
            "float16" => DType::Float16,
            _ => DType::Bfloat16,
        }
    }

    /// The answer for a row on a device, in the table's words.
    fn answer(row: &Value, capability: (u32, u32)) -> String {
        let device = Device { compute_capability: capability, multiprocessors: 100 };
        let context = Context::new(device);
        let size = |at: usize| row[at].as_u64().unwrap();
        let (batch, heads, groups, queries, keys) = (size(1), size(2), size(3), size(4), size(5));
        let dtype = dtype(row[0].as_str().unwrap());
        let make = |heads, tokens, width| {
            let tensor = full(&context, "", &[batch, heads, tokens, width], dtype);
            if size(12) == 1 { tensor.into_parameter() } else { tensor }
        };
        let (query, key, value) =
            (make(heads, queries, size(6)), make(groups, keys, size(6)), make(groups, keys, size(7)));
        let mask = match size(8) {
            0 => None,
            2 => Some(full(&context, "", &[batch, 1, queries, keys], dtype)),
            3 => Some(full(&context, "", &[batch, 1, 1, keys], DType::Bool)),
            4 => Some(full(&context, "", &[batch, 1, queries, 1], DType::Bool)),
            _ => Some(full(&context, "", &[batch, 1, queries, keys], DType::Bool)),
        };
        let mask = mask.map(|mask| mask.expand(&[batch, 1, queries, keys]));
        let call = AttentionCall {
            mask: mask.as_ref(),
            dropout: row[9].as_f64().unwrap(),
            is_causal: size(10) == 1,
            scale: 1.0,
            enable_gqa: size(11) == 1,
            backend: Attention::Sdpa,
        };
        let question = Question { query: &query, key: &key, value: &value, call: &call, device };
        let taken =
            u8::from(question.flash()) + 2 * u8::from(question.mem_efficient()) + 4 * u8::from(question.cudnn());
        let choice = match choose_kernel(&query, &key, &value, &call) {
            AttentionKernel::Flash => 'f',
            AttentionKernel::MemEfficient => 'e',
            AttentionKernel::Math => 'm',
        };
        format!("{taken}{choice}")
    }

    #[test]
    fn pytorch_chooses_the_same_kernels() {
        let table: Value = serde_json::from_str(TABLE).unwrap();
        let devices = table["devices"].as_array().unwrap();
        let rows = table["rows"].as_array().unwrap();
        assert!(rows.len() >= 500 && devices.len() == 7);
        let mut wrong = Vec::new();
        for row in rows {
            let answers = row[13].as_str().unwrap();
            for (at, device) in devices.iter().enumerate() {
                let device = device.as_u64().unwrap() as u32;
                let found = answer(row, (device / 10, device % 10));
                if found != answers[2 * at..2 * at + 2] {
                    wrong.push(format!("sm_{device} {row}: found {found}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    }
}
