//! `torch.amp.GradScaler` (torch/amp/grad_scaler.py of 2.11): the loss is scaled under fp16 autocast, gradients are unscaled in
//! place, a step whose gradients overflowed is skipped, and the scale grows or shrinks by that.

use tonnage_torch::{Argument, Device, ScalarType, Tensor, Torch, TorchError, operator};

use crate::optimizer::Optimizer;

/// `growth_factor`, `backoff_factor` and `growth_interval` of PyTorch.
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i64 = 2000;
/// `init_scale`: 2^16.
const FIRST_SCALE: f64 = 65_536.0;

/// The scaler of one optimizer.
pub struct GradScaler {
    torch: &'static Torch,
    device: Device,
    scale: Option<(Tensor, Tensor)>,
    found_inf: Option<Tensor>,
    unscaled: bool,
}

impl GradScaler {
    /// Nothing is on the device yet.
    pub fn new(torch: &'static Torch, device: Device) -> Self {
        Self { torch, device, scale: None, found_inf: None, unscaled: false }
    }

    fn full(&self, value: f64, scalar_type: ScalarType) -> Result<Tensor, TorchError> {
        let arguments = [Argument::ints(&[]), value.into(), scalar_type.into(), Argument::Default, self.device.into()];
        self.torch.call(operator!("full"), &arguments)?.tensor()
    }

    /// The scale and the count of good steps since it last changed.
    fn current(&mut self) -> Result<&(Tensor, Tensor), TorchError> {
        if self.scale.is_none() {
            self.scale = Some((self.full(FIRST_SCALE, ScalarType::Float32)?, self.full(0.0, ScalarType::Int32)?));
        }
        self.scale.as_ref().ok_or_else(|| TorchError::unknown_state("GradScaler", 0, "scale"))
    }

    /// `scaler.scale(loss)`
    ///
    /// # Errors
    /// PyTorch's.
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor, TorchError> {
        let torch = self.torch;
        let scale = &self.current()?.0;
        torch.call(operator!("mul", "Tensor"), &[loss.into(), scale.into()])?.tensor()
    }

    /// `scaler.unscale_(optimizer)`: the inverse is computed in double precision.
    ///
    /// # Errors
    /// PyTorch's.
    pub fn unscale(&mut self, optimizer: &dyn Optimizer) -> Result<(), TorchError> {
        let torch = self.torch;
        let _no_grad = torch.no_grad();
        let inverse = {
            let scale = &self.current()?.0;
            let double = torch.call(operator!("to", "dtype"), &[scale.into(), ScalarType::Float64.into()])?.tensor()?;
            let reciprocal = torch.call(operator!("reciprocal"), &[(&double).into()])?.tensor()?;
            drop(double);
            torch.call(operator!("to", "dtype"), &[(&reciprocal).into(), ScalarType::Float32.into()])?.tensor()?
        };
        self.check_and_unscale(optimizer, &inverse)?;
        self.unscaled = true;
        Ok(())
    }

    fn check_and_unscale(&mut self, optimizer: &dyn Optimizer, inverse: &Tensor) -> Result<(), TorchError> {
        let found_inf = self.full(0.0, ScalarType::Float32)?;
        let mut gradients = Vec::new();
        for parameter in optimizer.parameters() {
            gradients.extend(parameter.grad()?);
        }
        let arguments = [gradients.as_slice().into(), (&found_inf).into(), inverse.into()];
        self.torch.call(operator!("_amp_foreach_non_finite_check_and_unscale_"), &arguments)?;
        self.found_inf = Some(found_inf);
        Ok(())
    }

    /// `scaler.step(optimizer)`. Returns whether the optimizer stepped; a fused one decides on its device, which counts as a step.
    ///
    /// # Errors
    /// PyTorch's.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool, TorchError> {
        if optimizer.unscales() {
            if !self.unscaled {
                let one = self.full(1.0, ScalarType::Float32)?;
                self.check_and_unscale(optimizer, &one)?;
            }
            let scale = if self.unscaled { None } else { Some(self.current()?.0.clone()) };
            let found_inf =
                self.found_inf.clone().ok_or_else(|| TorchError::unknown_state("GradScaler", 0, "found_inf"))?;
            optimizer.step_scaled(scale.as_ref(), &found_inf)?;
            return Ok(true);
        }
        if !self.unscaled {
            self.unscale(optimizer)?;
        }
        let overflowed = self.found_inf.as_ref().map(Tensor::to_vec::<f32>).transpose()?;
        let steps = overflowed.is_none_or(|found| found.iter().all(|flag| *flag == 0.0));
        if steps {
            optimizer.step()?;
        }
        Ok(steps)
    }

    /// `scaler.update()`
    ///
    /// # Errors
    /// PyTorch's.
    pub fn update(&mut self) -> Result<(), TorchError> {
        let torch = self.torch;
        let Some(found_inf) = self.found_inf.take() else { return Ok(()) };
        self.unscaled = false;
        let (scale, tracker) = self.current()?;
        let arguments =
            [scale.into(), tracker.into(), (&found_inf).into(), GROWTH.into(), BACKOFF.into(), GROWTH_INTERVAL.into()];
        torch.call(operator!("_amp_update_scale_"), &arguments)?;
        Ok(())
    }

    /// The scale and its counter, for a checkpoint; `None` before the first loss.
    pub fn state(&self) -> Option<(&Tensor, &Tensor)> {
        self.scale.as_ref().map(|(scale, tracker)| (scale, tracker))
    }

    /// Goes on from what [`GradScaler::state`] gave.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn restore(&mut self, scale: &Tensor, tracker: &Tensor) -> Result<(), TorchError> {
        self.scale = Some((scale.to_device(self.device)?, tracker.to_device(self.device)?));
        Ok(())
    }
}
