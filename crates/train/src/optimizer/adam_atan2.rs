//! AdamATan2 (adam-atan2's fused kernel): Adam whose update is an angle, so that no epsilon is needed. What the kernel keeps in registers
//! lies in the gradients here, which no one reads after the step: it allocates as much as the kernel, nothing but its state.

use tonnage_torch::{Device, Tensor, Torch, TorchError, operator};

use super::{Optimizer, StateEntry};

/// Settings with the defaults of `adam_atan2.AdamATan2`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdamAtan2Options {
    /// `lr`
    pub learning_rate: f64,
    /// `betas`
    pub betas: (f64, f64),
    /// `weight_decay`: weights shrink by it times the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamAtan2Options {
    fn default() -> Self {
        Self { learning_rate: 1e-3, betas: (0.9, 0.99), weight_decay: 1e-2 }
    }
}

/// State of a parameter.
struct Moments {
    step: Tensor,
    /// What `step` holds: reading it would wait for the device.
    steps: i32,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
}

impl Moments {
    fn new(torch: &'static Torch, parameter: &Tensor) -> Result<Self, TorchError> {
        let zeros_like = || torch.call(operator!("zeros_like"), &[parameter.into()])?.tensor();
        let step = torch.tensor(&[0.0_f32], &[])?.to_device(parameter.device())?;
        Ok(Self { step, steps: 0, exp_avg: zeros_like()?, exp_avg_sq: zeros_like()? })
    }
}

/// AdamATan2 over one group of parameters.
pub struct AdamAtan2 {
    torch: &'static Torch,
    parameters: Vec<Tensor>,
    options: AdamAtan2Options,
    moments: Vec<Option<Moments>>,
}

impl AdamAtan2 {
    /// State is made in the first step.
    pub fn new(torch: &'static Torch, parameters: Vec<Tensor>, options: AdamAtan2Options) -> Self {
        let moments = parameters.iter().map(|_| None).collect();
        Self { torch, parameters, options, moments }
    }

    /// Makes the state of a parameter that has none.
    fn moments_of(&mut self, at: usize) -> Result<&mut Moments, TorchError> {
        let slot = &mut self.moments[at];
        match slot {
            Some(moments) => Ok(moments),
            None => Ok(slot.insert(Moments::new(self.torch, &self.parameters[at])?)),
        }
    }

    /// One parameter's update; its gradient holds the denominator, then the angle.
    fn update(&mut self, at: usize, gradient: &Tensor) -> Result<(), TorchError> {
        let AdamAtan2Options { learning_rate, betas, weight_decay } = self.options;
        let (torch, parameter) = (self.torch, self.parameters[at].clone());
        let moments = self.moments_of(at)?;
        moments.steps += 1;
        let (exp_avg, exp_avg_sq) = (&moments.exp_avg, &moments.exp_avg_sq);
        let corrections = (1.0 - betas.0.powf(moments.steps.into()), (1.0 - betas.1.powf(moments.steps.into())).sqrt());
        let run = |operator, arguments: &[tonnage_torch::Argument<'_>]| torch.call(operator, arguments).map(drop);
        run(operator!("add_", "Scalar"), &[(&moments.step).into(), 1.0.into()])?;
        run(operator!("mul_", "Scalar"), &[(&parameter).into(), (1.0 - learning_rate * weight_decay).into()])?;
        run(operator!("lerp_", "Scalar"), &[exp_avg.into(), gradient.into(), (1.0 - betas.0).into()])?;
        run(operator!("mul_", "Scalar"), &[exp_avg_sq.into(), betas.1.into()])?;
        run(operator!("addcmul_"), &[exp_avg_sq.into(), gradient.into(), gradient.into(), (1.0 - betas.1).into()])?;
        run(operator!("sqrt", "out"), &[exp_avg_sq.into(), gradient.into()])?;
        run(operator!("div_", "Scalar"), &[gradient.into(), corrections.1.into()])?;
        run(operator!("atan2", "out"), &[exp_avg.into(), gradient.into(), gradient.into()])?;
        run(
            operator!("add_", "Tensor"),
            &[(&parameter).into(), gradient.into(), (-learning_rate / corrections.0).into()],
        )
    }
}

impl Optimizer for AdamAtan2 {
    fn step(&mut self) -> Result<(), TorchError> {
        let _no_grad = self.torch.no_grad();
        let mut found = Vec::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            found.extend(parameter.grad()?.map(|gradient| (at, gradient)));
        }
        // All states first, as the kernel's caller makes them.
        found.iter().try_for_each(|(at, _)| self.moments_of(*at).map(drop))?;
        found.iter().try_for_each(|(at, gradient)| self.update(*at, gradient))
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn state(&self) -> Vec<StateEntry<'_>> {
        let mut entries = Vec::new();
        for (parameter, kept) in self.moments.iter().enumerate() {
            let Some(Moments { step, exp_avg, exp_avg_sq, .. }) = kept else { continue };
            let named = [("step", step), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)];
            entries.extend(named.map(|(name, tensor)| StateEntry { parameter, name, tensor }));
        }
        entries
    }

    fn restore(
        &mut self,
        torch: &'static Torch,
        parameter: usize,
        name: &str,
        tensor: Tensor,
    ) -> Result<(), TorchError> {
        let unknown = || TorchError::unknown_state("AdamATan2", parameter, name);
        let device = self.parameters.get(parameter).ok_or_else(unknown)?.device();
        let moments = self.moments_of(parameter)?;
        let slot = match name {
            "step" => {
                let exact = torch.call(
                    operator!("to", "dtype"),
                    &[(&tensor.to_device(Device::Cpu)?).into(), tonnage_torch::ScalarType::Float64.into()],
                )?;
                let steps: Vec<f64> = exact.tensor()?.to_vec()?;
                moments.steps = steps.first().copied().unwrap_or_default() as i32;
                &mut moments.step
            }
            "exp_avg" => &mut moments.exp_avg,
            "exp_avg_sq" => &mut moments.exp_avg_sq,
            _ => return Err(unknown()),
        };
        *slot = tensor.to_device(device)?;
        Ok(())
    }
}
