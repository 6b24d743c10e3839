//! fms-acceleration's products of quantized layers with their adapters (plugins/fused-ops-and-kernels at 876e2ed,
//! fused_ops/unsloth_lora), which come from Unsloth's: one node for queries, keys and values, which writes the input's gradient over
//! the input, or for one layer.

use std::rc::Rc;

use crate::dtype::DType;
use crate::tensor::{Gradients, NodeBuilder, Saved, Tensor};

use super::Quantized;
use super::gptq::GptqPacked;
use super::packed::Packed;

/// A quantized layer and its adapter.
pub(crate) struct Adapted<'a> {
    pub base: &'a Quantized,
    pub bias: Option<&'a Tensor>,
    /// `lora_A` and `lora_B`
    pub down: &'a Tensor,
    pub up: &'a Tensor,
    pub scaling: f64,
    /// A probability, 0 where nothing drops out.
    pub dropout: f64,
}

/// `LoRA_QKV.apply(x, ...)` of three layers, `LoRA_W.apply(x, ...)` of one; `None` where a layer is not in 4 bits. Of
/// GPTQ's weights those of all layers are unpacked first, and the input stays.
pub(crate) fn multiply_fused<const N: usize>(layers: &[Adapted<'_>; N], x: &Tensor) -> Option<[Tensor; N]> {
    let weights = layers.each_ref().map(|layer| layer.base.packed());
    if weights.iter().any(Option::is_none) {
        return None;
    }
    let name = if N > 1 { "LoRA_QKVBackward" } else { "LoRA_WBackward" };
    let mut inputs = vec![x];
    inputs.extend(layers.iter().flat_map(|layer| [layer.down, layer.up]));
    let node = NodeBuilder::new(name, inputs);
    let outputs = {
        let _no_grad = x.context().set_grad_enabled(false);
        let unpacked = weights.each_ref().map(|weight| weight.as_ref().and_then(Base::unpack_early));
        let mut unpacked = unpacked.iter();
        layers.each_ref().map(|layer| layer.multiply(x, unpacked.next().and_then(Option::as_ref)))
    };
    let saved_x = node.save(x);
    let parts: Vec<Part> = layers
        .iter()
        .zip(weights.into_iter().flatten())
        .zip(&outputs)
        .map(|((layer, packed), (_, dropped))| Part {
            packed,
            down: node.save(layer.down),
            up: node.save(layer.up),
            dropped: node.save(dropped),
            scaling: layer.scaling,
        })
        .collect();
    let outputs = outputs.map(|(output, dropped)| {
        drop(dropped);
        output
    });
    let autocast = x.context().autocast_dtype();
    Some(node.finish_many(outputs, move |grads| {
        let x = saved_x.unpack();
        let _autocast = x.context().autocast(autocast);
        gradients_of(&x, &parts, grads)
    }))
}

/// A packed weight.
enum Base {
    FourBit(Rc<Packed>),
    Gptq(Rc<GptqPacked>),
}

impl Quantized {
    fn packed(&self) -> Option<Base> {
        match self {
            Self::FourBit(weight) => Some(Base::FourBit(weight.packed())),
            Self::Gptq(weight) => Some(Base::Gptq(weight.packed())),
            Self::Int8(_) | Self::GptqModel(_) | Self::Awq(_) => None,
        }
    }
}

impl Base {
    /// The whole weight, of so many inputs by outputs, in the dtype of the products.
    fn unpack(&self) -> Tensor {
        match self {
            Self::FourBit(packed) => packed.fast_dequantize().t(),
            Self::Gptq(packed) => packed.unpack(),
        }
    }

    /// What is there before any product, and stays to the end of all.
    fn unpack_early(&self) -> Option<Tensor> {
        matches!(self, Self::Gptq(_)).then(|| self.unpack())
    }
}

impl Adapted<'_> {
    /// `matmul_lora`: the product, and the input as the adapter had it.
    fn multiply(&self, x: &Tensor, early: Option<&Tensor>) -> (Tensor, Tensor) {
        let dtype = x.dtype();
        let rows = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let out = {
            let weight = early.cloned().or_else(|| self.base.packed().map(|packed| packed.unpack()));
            weight.map_or_else(|| rows.clone(), |weight| rows.matmul(&weight))
        };
        let dropped = rows.dropout(self.dropout, true);
        let update = {
            let low_rank = dropped.matmul(&self.down.t().to(dtype));
            let scaled = {
                let up = self.up.t().to(dtype);
                up.mul_scalar(self.scaling)
            };
            low_rank.matmul(&scaled)
        };
        let mut out = out.add_in_place(&update);
        drop(update);
        let sizes = x.sizes().with(x.sizes().len() - 1, out.size(1));
        out = out.view(&sizes);
        if let Some(bias) = self.bias {
            out = out.add_in_place(bias);
        }
        (out, dropped)
    }
}

impl Packed {
    /// `fast_dequantize`: the weight first, then its absmax in fp32.
    fn fast_dequantize(&self) -> Tensor {
        let weight = self.unpacked(self.dtype);
        drop(self.unpacked_absmax("empty.memory_format"));
        weight
    }
}

/// What a layer's part of backward needs.
struct Part {
    packed: Base,
    down: Saved,
    up: Saved,
    dropped: Saved,
    scaling: f64,
}

/// The same, unpacked.
struct Unpacked<'a> {
    packed: &'a Base,
    down: Tensor,
    up: Tensor,
    dropped: Tensor,
    scaling: f64,
}

/// The adapters' gradients layer by layer, then the input's.
fn gradients_of(x: &Tensor, parts: &[Part], grads: &[Option<Tensor>]) -> Gradients {
    let parts: Vec<Unpacked> = parts.iter().map(Part::unpack).collect();
    let rows: Vec<Option<Tensor>> = grads
        .iter()
        .map(|grad| grad.as_ref().map(|grad| grad.reshape(&[grad.numel() / grad.size(-1), grad.size(-1)])))
        .collect();
    let mut gradients = Gradients::new();
    gradients.push(None);
    for (part, grad) in parts.iter().zip(&rows) {
        let own = grad.as_ref().map(|grad| part.adapter_gradients(grad));
        let [down, up] = own.map_or([None, None], |own| own.map(Some));
        gradients.push(down.map(Into::into));
        gradients.push(up.map(Into::into));
    }
    let width = x.size(-1);
    let flat = x.view(&[x.numel() / width, width]);
    let mut input_grad: Option<Tensor> = None;
    for (part, grad) in parts.iter().zip(&rows) {
        let Some(grad) = grad else { continue };
        let writes_over = parts.len() > 1 && matches!(part.packed, Base::FourBit(_));
        input_grad = Some(part.add_input_gradient(grad, input_grad.take(), writes_over.then_some(&flat)));
    }
    if let (Some(first), Some(input_grad)) = (gradients.first_mut(), input_grad) {
        *first = Some(input_grad.view(x.sizes()).into());
    }
    gradients
}

impl Part {
    fn unpack(&self) -> Unpacked<'_> {
        let [down, up, dropped] = [&self.down, &self.up, &self.dropped].map(Saved::unpack);
        Unpacked { packed: &self.packed, down, up, dropped, scaling: self.scaling }
    }
}

impl Unpacked<'_> {
    /// Those of `lora_A` and of `lora_B`.
    fn adapter_gradients(&self, grad: &Tensor) -> [Tensor; 2] {
        let down = {
            let low_rank = grad.matmul(&self.up);
            self.dropped.t().matmul(&low_rank)
        };
        let up = {
            let low_rank = self.down.matmul(&self.dropped.t());
            low_rank.matmul(grad)
        };
        [down.mul_scalar_in_place(self.scaling).t(), up.mul_scalar_in_place(self.scaling).t()]
    }

    /// The input's gradient with this layer's part; the first layer's product goes into `out` where there is one.
    fn add_input_gradient(&self, grad: &Tensor, before: Option<Tensor>, out: Option<&Tensor>) -> Tensor {
        let dtype = self.dropped.dtype();
        let sum = {
            let weight = self.packed.unpack().t();
            match (before, out) {
                (Some(before), _) => before.add_in_place(&grad.matmul(&weight)),
                (None, Some(out)) => {
                    out.context().need_cublas_workspace("mm.out");
                    out.clone()
                }
                (None, None) => grad.matmul(&weight),
            }
        };
        let update = {
            let kept = self.dropped.map("ne.Scalar", DType::Bool);
            let product = {
                let low_rank = grad.matmul(&self.up.to(dtype));
                let scaled = {
                    let down = self.down.to(dtype);
                    down.mul_scalar(self.scaling)
                };
                low_rank.matmul(&scaled)
            };
            kept.binary("mul.Tensor", &product, dtype)
        };
        sum.add_in_place(&update)
    }
}
