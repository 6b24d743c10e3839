//! LoRA's adapter beside a linear layer (peft 0.21, tuners/lora/layer.py), and DoRA's magnitudes (tuners/lora/dora.py).

use std::rc::Rc;

use crate::building::{Adapted, Builder, Init, Mode, Module, Part, Quantized};
use crate::job::{Kernel, LoraSpec};
use crate::op::eye;
use crate::tensor::Tensor;

use super::layers::Weight;

/// peft's `lora.Linear` beside the base layer.
pub(super) struct Adapter {
    down: Tensor,
    up: Tensor,
    /// DoRA's `lora_magnitude_vector`: a number of each output.
    magnitude: Option<Tensor>,
    dropout: f64,
    scaling: f64,
    mode: Rc<Mode>,
}

/// The layer that an adapter stands beside.
pub(super) struct Base<'a> {
    pub weight: &'a Weight,
    pub bias: Option<&'a Tensor>,
    /// Whether its weight is [inputs, outputs], `fan_in_fan_out`.
    pub is_transposed: bool,
}

impl Adapter {
    pub(super) fn new(at: &Builder, lora: Option<Rc<LoraSpec>>, inputs: u64, outputs: u64) -> Option<Self> {
        lora.map(|lora| Self {
            down: at.adapter_parameter((Part::Down, "lora_A"), &[lora.r, inputs], Init::KaimingUniform),
            up: at.adapter_parameter((Part::Up, "lora_B"), &[outputs, lora.r], Init::Zeros),
            magnitude: lora
                .use_dora
                .then(|| at.adapter_parameter((Part::Magnitude, "lora_magnitude_vector"), &[outputs], Init::Ones)),
            dropout: lora.dropout,
            scaling: lora.alpha / lora.r as f64,
            mode: at.mode(),
        })
    }

    /// What a fused kernel multiplies by.
    pub(super) fn fused<'a>(&'a self, base: &'a Quantized, bias: Option<&'a Tensor>) -> Option<Adapted<'a>> {
        let Self { down, up, scaling, mode, .. } = self;
        let dropout = if mode.drops_out() { self.dropout } else { 0.0 };
        let is_fused = mode.has_kernel(Kernel::FusedLora) && mode.has_active_adapters();
        is_fused.then_some(Adapted { base, bias, down, up, scaling: *scaling, dropout })
    }

    /// The base layer's result with the adapter's part, if it is active.
    pub(super) fn apply(&self, module: &Module, base: &Base<'_>, result: Tensor, input: &Tensor) -> Tensor {
        if !self.mode.has_active_adapters() {
            return result;
        }
        match base.weight {
            Weight::Quantized(quantized) if !quantized.is_adapted_as_whole() => {
                let dtype = module.weight_dtype(Part::Down, &self.down);
                quantized.add_adapter(result, input, (dtype, self.scaling), |x| self.project(module, x))
            }
            _ => self.forward(module, base, result, input),
        }
    }

    /// peft casts the input to the adapter's dtype and the sum back to the base layer's.
    fn forward(&self, module: &Module, base: &Base<'_>, mut result: Tensor, input: &Tensor) -> Tensor {
        let dtype = result.dtype();
        module.read(&self.down);
        let x = input.to(module.weight_dtype(Part::Down, &self.down));
        result = match &self.magnitude {
            Some(magnitude) => self.add_scaled(module, base, magnitude, (&result, &x)),
            None => self.add_to(module, &result, &x),
        };
        result.to(dtype)
    }

    /// `result + lora_B(lora_A(dropout(x))) * scaling`
    fn add_to(&self, module: &Module, result: &Tensor, x: &Tensor) -> Tensor {
        let update = self.update(module, x);
        result + &update
    }

    /// `lora_B(lora_A(dropout(x))) * scaling`
    fn update(&self, module: &Module, x: &Tensor) -> Tensor {
        self.project(module, x).mul_scalar(self.scaling)
    }

    /// `lora_B(lora_A(dropout(x)))`
    fn project(&self, module: &Module, x: &Tensor) -> Tensor {
        let low_rank = {
            let dropped = self.drop_out(module, x);
            self.project_down(module, &dropped)
        };
        self.project_up(module, &low_rank)
    }

    fn project_down(&self, module: &Module, x: &Tensor) -> Tensor {
        project(module, Part::Down, x, &self.down)
    }

    fn project_up(&self, module: &Module, x: &Tensor) -> Tensor {
        project(module, Part::Up, x, &self.up)
    }

    /// `nn.Dropout`, or `nn.Identity` where nothing drops out.
    fn drop_out(&self, module: &Module, x: &Tensor) -> Tensor {
        if self.dropout > 0.0 {
            let _module = module.enter_part(Part::Dropout, &[]);
            return module.hook_input(Part::Dropout, x).dropout(self.dropout, self.mode.drops_out());
        }
        module.call_identity(Part::Dropout, x)
    }
}

impl Adapter {
    /// `DoraLinearVariant.forward`: `result` and what `DoraLinearLayer` adds to it, which is computed from the base layer's result
    /// or, where the input drops out, from a product of its own.
    fn add_scaled(
        &self,
        module: &Module,
        base: &Base<'_>,
        magnitude: &Tensor,
        (result, x): (&Tensor, &Tensor),
    ) -> Tensor {
        let drops_out = self.dropout > 0.0 && self.mode.drops_out();
        let x = if drops_out { self.drop_out(module, x) } else { x.clone() };
        let added = {
            let lora_weight = self.lora_weight(module, &x).to(x.dtype());
            let weight = base.weight.tensor().to(x.dtype());
            let weight_norm = self.weight_norm(base, &weight, &lora_weight);
            let mag_norm_scale = magnitude.div(&weight_norm).view(&[1, magnitude.size(0)]);
            let lora_result = self.project_up(module, &self.project_down(module, &x));
            let base_result = match base.bias {
                _ if drops_out => x.linear(&base.oriented(&weight), None),
                Some(bias) => result.sub(bias),
                None => result.clone(),
            };
            let rest = &mag_norm_scale.sub_scalar(1.0) * &base_result;
            let update = {
                let product = &mag_norm_scale * &lora_result;
                product.mul_scalar(self.scaling)
            };
            &rest + &update
        };
        result + &added
    }

    /// `get_lora_weight`: the product of both matrices as their modules compute it.
    fn lora_weight(&self, module: &Module, x: &Tensor) -> Tensor {
        let x_eye = eye(x.context(), self.down.size(1), self.down.dtype());
        self.project_up(module, &self.project_down(module, &x_eye)).transpose(0, 1)
    }

    /// `get_weight_norm`, which gets no gradient.
    fn weight_norm(&self, base: &Base<'_>, weight: &Tensor, lora_weight: &Tensor) -> Tensor {
        let weight = &base.oriented(weight) + &lora_weight.detach().mul_scalar(self.scaling);
        weight.norm_of_rows()
    }
}

impl Base<'_> {
    /// `transpose(weight, fan_in_fan_out)`: [outputs, inputs].
    fn oriented(&self, weight: &Tensor) -> Tensor {
        if self.is_transposed { weight.transpose(0, 1) } else { weight.clone() }
    }
}

/// `lora_A(x)` and `lora_B(x)`
fn project(module: &Module, part: Part, x: &Tensor, weight: &Tensor) -> Tensor {
    module.call_part(part, x, |x| {
        let _module = module.enter_part(part, &[weight]);
        module.hook_input(part, x).linear(weight, None)
    })
}
