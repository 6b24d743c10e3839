//! The layers: each holds its parameters and its place in the module tree, and reads like its `forward` in PyTorch.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::building::{Adapted, Builder, Init, LigerKernels, Mode, Module, Part, Quantized, multiply_fused};
use crate::dtype::DType;
use crate::job::Kernel;
use crate::tensor::Tensor;

use super::adapter::{Adapter, Base};

/// `nn.Linear`, with peft's LoRA adapter round it when it is a target.
pub(crate) struct Linear {
    module: Module,
    weight: Weight,
    bias: Option<Tensor>,
    adapter: Option<Adapter>,
}

/// A linear layer's weight, in a model's dtype or quantized.
pub(super) enum Weight {
    Plain(Tensor),
    Quantized(Quantized),
}

impl Linear {
    pub(crate) fn new(at: &Builder, inputs: u64, outputs: u64, bias: bool) -> Self {
        let module = at.linear_module();
        let weight = Weight::new(at, [outputs, inputs], false);
        let bias = bias.then(|| at.parameter("bias", &[outputs], Init::Zeros));
        let adapter = Adapter::new(at, at.adapter(), inputs, outputs);
        Self { module, weight, bias, adapter }
    }

    /// One of a class that is derived from `nn.Linear`, which bitsandbytes leaves whole; without a bias.
    pub(crate) fn whole(at: &Builder, inputs: u64, outputs: u64) -> Self {
        let module = at.linear_module();
        let weight = Weight::Plain(at.parameter("weight", &[outputs, inputs], Init::Normal));
        let adapter = Adapter::new(at, at.adapter(), inputs, outputs);
        Self { module, weight, bias: None, adapter }
    }

    /// An output head with a weight of its own.
    pub(crate) fn head(at: &Builder, inputs: u64, outputs: u64, bias: bool) -> Self {
        let module = at.linear_module();
        let weight = Weight::Plain(at.head_parameter("weight", &[outputs, inputs], Init::Normal));
        let bias = bias.then(|| at.parameter("bias", &[outputs], Init::Zeros));
        let adapter = Adapter::new(at, at.head_adapter(), inputs, outputs);
        Self { module, weight, bias, adapter }
    }

    /// An output head over another module's weight and bias.
    pub(crate) fn tied(at: &Builder, weight: &Tensor, bias: Option<&Tensor>) -> Self {
        [Some(weight), bias].into_iter().flatten().for_each(|parameter| at.tie(parameter));
        let adapter = Adapter::new(at, at.head_adapter(), weight.size(1), weight.size(0));
        Self { module: at.module(), weight: Weight::Plain(weight.clone()), bias: bias.cloned(), adapter }
    }

    /// An output head over another module's weight, with a bias of its own.
    pub(crate) fn tied_weight(at: &Builder, weight: &Tensor) -> Self {
        at.tie(weight);
        let bias = Some(at.parameter("bias", &[weight.size(0)], Init::Zeros));
        let adapter = Adapter::new(at, at.head_adapter(), weight.size(1), weight.size(0));
        Self { module: at.module(), weight: Weight::Plain(weight.clone()), bias, adapter }
    }

    /// The base layer's weight, [outputs, inputs] unless it is quantized.
    pub(crate) fn weight(&self) -> &Tensor {
        self.weight.tensor()
    }

    /// The base layer's bias.
    pub(crate) fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// What a fused kernel multiplies by.
    fn fused(&self) -> Option<Adapted<'_>> {
        let Weight::Quantized(base) = &self.weight else { return None };
        self.adapter.as_ref()?.fused(base, self.bias.as_ref())
    }

    pub(crate) fn forward(&self, input: &Tensor) -> Tensor {
        let base = Base { weight: &self.weight, bias: self.bias.as_ref(), is_transposed: false };
        forward_adapted(&self.module, &base, self.adapter.as_ref(), input, |input| match &self.weight {
            Weight::Plain(weight) => input.linear(weight, self.bias.as_ref()),
            Weight::Quantized(quantized) => quantized.forward(input, self.bias.as_ref()),
        })
    }
}

/// The products of layers with adapters in one kernel, where one is in place and all of them are quantized: the first call of a layer runs
/// it for all.
pub(crate) fn fused_products<const N: usize>(linears: [&Linear; N], input: &Tensor) -> Option<[Tensor; N]> {
    let adapted: Vec<Adapted> = linears.iter().filter_map(|linear| linear.fused()).collect();
    let adapted: [Adapted; N] = adapted.try_into().ok()?;
    let _module = linears.first().map(|linear| linear.module.enter_part(Part::Itself, &[]));
    multiply_fused(&adapted, input)
}

/// A layer's forward, which is peft's where it has an adapter: `compute` is then a module within it, as the adapter's are.
fn forward_adapted(
    module: &Module,
    base: &Base<'_>,
    adapter: Option<&Adapter>,
    input: &Tensor,
    compute: impl FnOnce(&Tensor) -> Tensor,
) -> Tensor {
    let own: SmallVec<[&Tensor; 2]> = [Some(base.weight.tensor()), base.bias].into_iter().flatten().collect();
    let Some(adapter) = adapter else {
        let _module = module.enter_part(Part::Itself, &own);
        return module.with_ranks(&module.hook_input(Part::Itself, input), compute);
    };
    let _module = module.enter_part(Part::Itself, &[]);
    let input = &module.hook_input(Part::Itself, input);
    let result = {
        let _base = module.enter_part(Part::BaseLayer, &own);
        compute(&module.hook_input(Part::BaseLayer, input))
    };
    adapter.apply(module, base, result, input)
}

impl Weight {
    /// It, [outputs, inputs] unless it is quantized.
    pub(super) fn tensor(&self) -> &Tensor {
        match self {
            Self::Plain(weight) => weight,
            Self::Quantized(quantized) => quantized.weight(),
        }
    }

    /// The weight of a layer at `at`; `transposed` where it is [inputs, outputs] unless it is quantized.
    fn new(at: &Builder, sizes: [u64; 2], transposed: bool) -> Self {
        let [outputs, inputs] = sizes;
        match Quantized::load(at, sizes, transposed) {
            Some(quantized) => Self::Quantized(quantized),
            None if transposed => Self::Plain(at.parameter("weight", &[inputs, outputs], Init::Normal)),
            None => Self::Plain(at.parameter("weight", &sizes, Init::Normal)),
        }
    }
}

/// Hugging Face's `Conv1D`: a linear layer with its weight stored [inputs, outputs].
pub(crate) struct Conv1d {
    module: Module,
    weight: Weight,
    bias: Tensor,
    adapter: Option<Adapter>,
}

impl Conv1d {
    pub(crate) fn new(at: &Builder, inputs: u64, outputs: u64) -> Self {
        Self {
            module: at.module(),
            weight: Weight::new(at, [outputs, inputs], true),
            bias: at.parameter("bias", &[outputs], Init::Zeros),
            adapter: Adapter::new(at, at.adapter(), inputs, outputs),
        }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let base = Base { weight: &self.weight, bias: Some(&self.bias), is_transposed: true };
        forward_adapted(&self.module, &base, self.adapter.as_ref(), x, |x| match &self.weight {
            Weight::Plain(weight) => x.conv1d(weight, &self.bias),
            Weight::Quantized(quantized) => quantized.forward(x, Some(&self.bias)),
        })
    }
}

/// `nn.Embedding`
pub(crate) struct Embedding {
    module: Module,
    pub weight: Tensor,
    /// What a head is tied to: the weight of the original, where peft trains a copy of it.
    tied_weight: Tensor,
    /// The row that gets no gradient.
    padding_idx: Option<u64>,
    /// What a hook casts the result to, where the weight is in another dtype than the model.
    output: Option<DType>,
}

impl Embedding {
    pub(crate) fn new(at: &Builder, count: u64, width: u64, padding_idx: Option<u64>) -> Self {
        let whole = |at: &Builder| {
            let weight = at.parameter("weight", &[count, width], Init::NormalBut(padding_idx));
            Self { module: at.embedding_module(), tied_weight: weight.clone(), weight, padding_idx, output: None }
        };
        Self::saved(at, whole)
    }

    /// The copy that peft trains in full, where it makes one.
    fn saved(at: &Builder, whole: impl Fn(&Builder) -> Self) -> Self {
        match at.saved_if_named(&whole, &whole) {
            Some((original, copy)) => Self { tied_weight: original.weight, ..copy },
            None => whole(at),
        }
    }

    /// One that the head may be tied to.
    pub(crate) fn of_head(at: &Builder, [count, width]: [u64; 2], padding_idx: Option<u64>, tied: bool) -> Self {
        if !tied {
            return Self::new(at, count, width, padding_idx);
        }
        let at = &at.tied_to_head(tied);
        Self::saved(at, |at| {
            let output = at.mode().has_fp32_head().then_some(at.dtype());
            let weight = at.head_parameter("weight", &[count, width], Init::NormalBut(padding_idx));
            Self { module: at.embedding_module(), tied_weight: weight.clone(), weight, padding_idx, output }
        })
    }

    /// What a head is tied to.
    pub(crate) const fn tied_weight(&self) -> &Tensor {
        &self.tied_weight
    }

    pub(crate) fn forward(&self, ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.module.with_ranks(ids, |ids| self.look_up(ids))
    }

    /// `super().forward(ids)` of a class that is made of it.
    pub(crate) fn look_up(&self, ids: &Tensor) -> Tensor {
        let embedded = self.module.look_up(&self.weight, ids, self.padding_idx);
        match self.output {
            Some(dtype) => embedded.to(dtype),
            None => embedded,
        }
    }
}

/// A norm of hidden states.
pub(crate) trait Norm: 'static {
    fn new(at: &Builder, width: u64, eps: f64) -> Self;

    fn forward(&self, hidden_states: &Tensor) -> Tensor;
}

impl Norm for LayerNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self::new(at, width, eps)
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        self.forward(hidden_states)
    }
}

impl Norm for RmsNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self::new(at, width, eps)
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        self.forward(hidden_states)
    }
}

/// `nn.LayerNorm`
pub(crate) struct LayerNorm {
    module: Module,
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f64,
}

impl LayerNorm {
    pub(crate) fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self::with_bias(at, width, eps, true)
    }

    /// One whose config says whether it has a bias.
    pub(crate) fn with_bias(at: &Builder, width: u64, eps: f64, bias: bool) -> Self {
        let module = at.module();
        let weight = at.parameter("weight", &[width], Init::Ones);
        Self { module, weight, bias: bias.then(|| at.parameter("bias", &[width], Init::Zeros)), eps }
    }

    pub(crate) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let input = self.module.hook_input(Part::Itself, input);
        match &self.bias {
            Some(bias) => input.layer_norm(&self.weight, bias, self.eps),
            None => input.layer_norm_unbiased(&self.weight, self.eps),
        }
    }
}

/// `LlamaRMSNorm`: composite, computed in fp32.
pub(crate) struct RmsNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
    mode: Rc<Mode>,
}

impl RmsNorm {
    pub(crate) fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", &[width], Init::Ones), eps, mode: at.mode() }
    }

    pub(crate) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.module.with_ranks(&self.module.hook_input(Part::Itself, input), |input| self.norm(input))
    }

    fn norm(&self, input: &Tensor) -> Tensor {
        if self.mode.liger_kernels() == LigerKernels::Layers {
            return input.liger_rms_norm(&self.weight, true);
        }
        if self.mode.has_kernel(Kernel::FastRmsLayernorm) {
            return input.fast_rms_layernorm(&self.weight);
        }
        let mut hidden_states = input.to(DType::Float32);
        let variance = hidden_states.pow_scalar(2.0).mean_last();
        hidden_states = {
            let inverse = variance.add_scalar(self.eps).rsqrt();
            &hidden_states * &inverse
        };
        &self.weight * &hidden_states.to(input.dtype())
    }
}
