//! The flash kernel (transformers/cuda/flash_attn): saves q, k, v, the result and one number per row.

use super::AttentionCall;
use super::work::AttentionWork;
use crate::dtype::DType;
use crate::key;
use crate::op::scratch::flash::{Copies, Flash, backward, forward, package_backward, package_forward};
use crate::op::scratch::{DeviceSteps, Outputs, contiguous, like};
use crate::tensor::{Gradients, NodeBuilder, Saved, Shape, Tensor, gradients};
use tonnage_alloc::units::round_up;

/// Flash needs head_dim in multiples of 8: its inputs are padded with zeros and the result is cut.
pub(super) fn padded(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    let head_dim = query.size(-1);
    let wanted = round_up(head_dim, 8);
    if wanted == head_dim {
        return flash(query, key, value, call);
    }
    let out = flash(&query.pad_last(wanted), &key.pad_last(wanted), &value.pad_last(wanted), call);
    out.slice_any(3, head_dim)
}

/// One of the two ways into the kernel: its names, and where the tensors have their tokens and heads.
#[derive(Clone, Copy)]
struct Entry {
    node: &'static str,
    forward: &'static str,
    backward: &'static str,
    /// [batch, tokens, heads, head_dim] rather than [batch, heads, tokens, head_dim].
    tokens_first: bool,
    kernel: Kernel,
}

/// Whose build of the kernel runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// The copy of flash-attn 2 that PyTorch compiles in.
    PyTorch,
    /// The flash-attn package.
    Package,
}

/// `scaled_dot_product_attention`'s.
const SDPA: Entry = Entry {
    node: "ScaledDotProductFlashAttentionBackward0",
    forward: "_scaled_dot_product_flash_attention.default",
    backward: "_scaled_dot_product_flash_attention_backward.default",
    tokens_first: false,
    kernel: Kernel::PyTorch,
};

/// flash-attn's own `flash_attn_func`, as PyTorch's copy of the kernel runs it.
const FLASH_ATTN: Entry = Entry {
    node: "FlashAttentionBackward0",
    forward: "_flash_attention_forward.default",
    backward: "_flash_attention_backward.default",
    tokens_first: true,
    kernel: Kernel::PyTorch,
};

/// flash-attn's `flash_attn_func` in its own build (flash-attn 2.8, flash_attn_interface.py and csrc/flash_attn/flash_api.cpp).
const PACKAGE: Entry = Entry {
    node: "FlashAttnFuncBackward",
    forward: "flash_attn._flash_attn_forward",
    backward: "flash_attn._flash_attn_backward",
    tokens_first: true,
    kernel: Kernel::Package,
};

impl Entry {
    fn describe_call(self, query: &Tensor, key: &Tensor, dropout: bool) -> Flash {
        let (heads, tokens) = if self.tokens_first { (2, 1) } else { (1, 2) };
        Flash {
            batch: query.size(0),
            heads: query.size(heads),
            kv_heads: key.size(heads),
            queries: query.size(tokens),
            keys: key.size(tokens),
            head_size: query.size(3),
            dtype: query.dtype(),
            dropout,
        }
    }

    /// Whether the kernel reads the tensor as it lies; the package asks for nothing but a dense last dimension.
    fn reads(self, tensor: &Tensor) -> bool {
        if self.kernel == Kernel::Package {
            true
        } else if self.tokens_first {
            tensor.is_contiguous()
        } else {
            tensor.is_contiguous_transposed()
        }
    }
}

/// `flash_attn_func(query, key, value)` of [batch, tokens, heads, head_dim] tensors, without a mask.
pub fn flash_attn_func(query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
    run(FLASH_ATTN, [query, key, value], Options { dropout: false, is_causal: false })
}

/// The package's `flash_attn_func` of the same form: heads that it cannot take as they are come padded, and the result is cut.
pub fn package_flash_attn_func(query: &Tensor, key: &Tensor, value: &Tensor, dropout: f64, is_causal: bool) -> Tensor {
    let options = Options { dropout: dropout > 0.0, is_causal };
    if query.size(-1) > 256 {
        query.context().fail(&[key::ATTENTION], || {
            let problem = "FlashAttention forward only supports head dimension at most 256";
            format!("attention = \"flash_attention_2\": {problem}, found {}", query.size(-1))
        });
    }
    let head_dim = query.size(-1);
    let wanted = round_up(head_dim, 8);
    if wanted == head_dim {
        return run(PACKAGE, [query, key, value], options);
    }
    let out = run(PACKAGE, [&query.pad_last(wanted), &key.pad_last(wanted), &value.pad_last(wanted)], options);
    out.slice_any(3, head_dim)
}

fn flash(query: &Tensor, key: &Tensor, value: &Tensor, call: &AttentionCall) -> Tensor {
    run(SDPA, [query, key, value], Options { dropout: call.dropout > 0.0, is_causal: call.is_causal })
}

/// What the kernel is told beside its tensors.
#[derive(Clone, Copy)]
struct Options {
    dropout: bool,
    is_causal: bool,
}

fn run(entry: Entry, [query, key, value]: [&Tensor; 3], options: Options) -> Tensor {
    let context = query.context();
    let flash = entry.describe_call(query, key, options.dropout);
    let work = AttentionWork::new([query, key, value], flash.keys, options.is_causal);
    let node = NodeBuilder::new(entry.node, [query, key, value]);
    let (saved_key, saved_query, saved_value) = (node.save(key), node.save(query), node.save(value));
    let mut outputs = kernel_forward(entry, query, &flash);
    work.count_forward(context);
    let out = outputs.take(0);
    let saved_results = [node.save(&outputs.take(1)), node.save(&out)];
    let states: &[u8] = if entry.kernel == Kernel::Package { &[6] } else { &[6, 7] };
    let saved_state: Vec<_> = states.iter().map(|state| node.save(&outputs.take(*state))).collect();
    node.finish(out, move |grad| {
        let (key, query, value) = (saved_key.unpack(), saved_query.unpack(), saved_value.unpack());
        let [_log_sum_exp, result] = [saved_results[0].unpack(), saved_results[1].unpack()];
        let _state: Vec<Tensor> = saved_state.iter().map(Saved::unpack).collect();
        work.count_backward(grad.context());
        flash_backward(entry, grad, [&query, &key, &value], &result, &flash)
    })
}

/// One call of PyTorch's kernel outside autograd.
pub(super) struct FlashCall {
    /// Query, key and value.
    pub inputs: [Tensor; 3],
    pub is_causal: bool,
}

/// What it returns and backward needs.
pub(super) struct FlashOutputs {
    pub out: Tensor,
    pub log_sum_exp: Tensor,
    /// Of dropout's random numbers.
    pub state: [Tensor; 2],
}

impl FlashCall {
    fn described(&self) -> (Flash, AttentionWork) {
        let [query, key, value] = &self.inputs;
        let flash = SDPA.describe_call(query, key, false);
        let work = AttentionWork::new([query, key, value], flash.keys, self.is_causal);
        (flash, work)
    }

    pub(super) fn run_forward(&self) -> FlashOutputs {
        let (flash, work) = self.described();
        let query = &self.inputs[0];
        let mut outputs = kernel_forward(SDPA, query, &flash);
        work.count_forward(query.context());
        let (out, log_sum_exp) = (outputs.take(0), outputs.take(1));
        FlashOutputs { out, log_sum_exp, state: [outputs.take(6), outputs.take(7)] }
    }

    pub(super) fn run_backward(&self, grad: &Tensor, result: &Tensor) -> [Tensor; 3] {
        let (flash, work) = self.described();
        work.count_backward(grad.context());
        kernel_backward(SDPA, grad, self.inputs.each_ref(), result, &flash)
    }
}

fn kernel_forward(entry: Entry, query: &Tensor, flash: &Flash) -> Outputs {
    let rows = Shape::new(&[flash.batch, flash.heads, flash.queries]);
    let forward = if entry.kernel == Kernel::Package { package_forward } else { forward };
    let steps = DeviceSteps::new(query.context(), |device| forward(flash, device));
    steps.run(query.context(), entry.forward, |index| match index {
        0 => like(query),
        1 => contiguous(rows, DType::Float32),
        6 => contiguous(Shape::new(&[2]), DType::Int64),
        _ => contiguous(Shape::new(&[]), DType::Int64),
    })
}

fn kernel_backward(entry: Entry, grad: &Tensor, inputs: [&Tensor; 3], result: &Tensor, flash: &Flash) -> [Tensor; 3] {
    let copies = Copies { grad: !entry.reads(grad), result: !entry.reads(result) };
    let backward = if entry.kernel == Kernel::Package { package_backward } else { backward };
    let steps = DeviceSteps::new(grad.context(), |device| backward(flash, copies, device));
    let mut outputs = steps.run(grad.context(), entry.backward, |index| like(inputs[index as usize]));
    [outputs.take(0), outputs.take(1), outputs.take(2)]
}

fn flash_backward(entry: Entry, grad: &Tensor, inputs: [&Tensor; 3], result: &Tensor, flash: &Flash) -> Gradients {
    let [query, key, value] = kernel_backward(entry, grad, inputs, result, flash);
    gradients![query, key, value]
}
