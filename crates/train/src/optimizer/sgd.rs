//! `torch.optim.SGD` (torch/optim/sgd.py of 2.11): `_multi_tensor_sgd` and `_single_tensor_sgd`.

use tonnage_torch::{Tensor, Torch, TorchError, operator};

use super::{Implementation, Optimizer, StateEntry};

/// Settings with `torch.optim.SGD`'s defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SgdOptions {
    /// `lr` of PyTorch.
    pub learning_rate: f64,
    /// `momentum`; 0 keeps no buffer.
    pub momentum: f64,
    /// `dampening`: the share of a gradient that is kept out of the buffer.
    pub dampening: f64,
    /// `weight_decay`, added to the gradient.
    pub weight_decay: f64,
    /// `nesterov`: the step looks ahead along the buffer.
    pub nesterov: bool,
    /// `Fused` is walked as `Foreach`.
    pub implementation: Implementation,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            implementation: Implementation::Foreach,
        }
    }
}

/// SGD over one group of parameters of one dtype and device.
pub struct Sgd {
    torch: &'static Torch,
    parameters: Vec<Tensor>,
    options: SgdOptions,
    buffers: Vec<Option<Tensor>>,
}

impl Sgd {
    /// Buffers are made in the first step.
    pub fn new(torch: &'static Torch, parameters: Vec<Tensor>, options: SgdOptions) -> Self {
        let buffers = vec![None; parameters.len()];
        Self { torch, parameters, options, buffers }
    }

    /// The parameters that have gradients, by their places.
    fn with_gradients(&self) -> Result<Vec<(usize, Tensor)>, TorchError> {
        let mut found = Vec::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            found.extend(parameter.grad()?.map(|gradient| (at, gradient)));
        }
        Ok(found)
    }

    fn foreach(&mut self, found: &[(usize, Tensor)]) -> Result<(), TorchError> {
        let SgdOptions { learning_rate, momentum, dampening, weight_decay, nesterov, .. } = self.options;
        let torch = self.torch;
        let parameters: Vec<Tensor> = found.iter().map(|(at, _)| self.parameters[*at].clone()).collect();
        let mut gradients: Vec<Tensor> = found.iter().map(|(_, gradient)| gradient.clone()).collect();
        if weight_decay != 0.0 {
            let both = [gradients.as_slice().into(), parameters.as_slice().into(), weight_decay.into()];
            gradients = torch.call(operator!("_foreach_add", "List"), &both)?.tensors();
        }
        if momentum != 0.0 {
            let known: Option<Vec<Tensor>> = found.iter().map(|(at, _)| self.buffers[*at].clone()).collect();
            let buffers = match known {
                Some(buffers) => {
                    torch.call(operator!("_foreach_mul_", "Scalar"), &[buffers.as_slice().into(), momentum.into()])?;
                    let add = [buffers.as_slice().into(), gradients.as_slice().into(), (1.0 - dampening).into()];
                    torch.call(operator!("_foreach_add_", "List"), &add)?;
                    buffers
                }
                None => found
                    .iter()
                    .zip(&gradients)
                    .map(|((at, _), gradient)| self.buffer(*at, gradient))
                    .collect::<Result<_, _>>()?,
            };
            if nesterov {
                let ahead = [gradients.as_slice().into(), buffers.as_slice().into(), momentum.into()];
                gradients = torch.call(operator!("_foreach_add", "List"), &ahead)?.tensors();
            } else {
                gradients = buffers;
            }
        }
        let update = [parameters.as_slice().into(), gradients.as_slice().into(), (-learning_rate).into()];
        torch.call(operator!("_foreach_add_", "List"), &update)?;
        Ok(())
    }

    /// The buffer of a parameter after this step: a copy of its first gradient.
    fn buffer(&mut self, at: usize, gradient: &Tensor) -> Result<Tensor, TorchError> {
        let SgdOptions { momentum, dampening, .. } = self.options;
        let torch = self.torch;
        if let Some(buffer) = &self.buffers[at] {
            torch.call(operator!("mul_", "Scalar"), &[buffer.into(), momentum.into()])?;
            torch.call(operator!("add_", "Tensor"), &[buffer.into(), gradient.into(), (1.0 - dampening).into()])?;
            return Ok(buffer.clone());
        }
        let copy = torch.call(operator!("clone"), &[gradient.into()])?.tensor()?;
        Ok(self.buffers[at].insert(copy).clone())
    }

    fn one(&mut self, at: usize, gradient: &Tensor) -> Result<(), TorchError> {
        let SgdOptions { learning_rate, momentum, weight_decay, nesterov, .. } = self.options;
        let (torch, parameter) = (self.torch, self.parameters[at].clone());
        let mut gradient = gradient.clone();
        if weight_decay != 0.0 {
            let sum = [(&gradient).into(), (&parameter).into(), weight_decay.into()];
            gradient = torch.call(operator!("add", "Tensor"), &sum)?.tensor()?;
        }
        if momentum != 0.0 {
            let buffer = self.buffer(at, &gradient)?;
            gradient = if nesterov {
                let ahead = [(&gradient).into(), (&buffer).into(), momentum.into()];
                torch.call(operator!("add", "Tensor"), &ahead)?.tensor()?
            } else {
                buffer
            };
        }
        torch.call(operator!("add_", "Tensor"), &[(&parameter).into(), (&gradient).into(), (-learning_rate).into()])?;
        Ok(())
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) -> Result<(), TorchError> {
        let torch = self.torch;
        let _no_grad = torch.no_grad();
        let found = self.with_gradients()?;
        if found.is_empty() {
            return Ok(());
        }
        if self.options.implementation == Implementation::ForLoop {
            return found.iter().try_for_each(|(at, gradient)| self.one(*at, gradient));
        }
        self.foreach(&found)
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn state(&self) -> Vec<StateEntry<'_>> {
        let kept = self.buffers.iter().enumerate();
        kept.filter_map(|(parameter, buffer)| {
            buffer.as_ref().map(|tensor| StateEntry { parameter, name: "momentum_buffer", tensor })
        })
        .collect()
    }

    fn restore(&mut self, _: &'static Torch, parameter: usize, name: &str, tensor: Tensor) -> Result<(), TorchError> {
        let unknown = || TorchError::unknown_state("SGD", parameter, name);
        let device = self.parameters.get(parameter).ok_or_else(unknown)?.device();
        if name != "momentum_buffer" {
            return Err(unknown());
        }
        self.buffers[parameter] = Some(tensor.to_device(device)?);
        Ok(())
    }
}
