//! `torch.optim.Adam` and `AdamW` (torch/optim/adam.py of 2.11): `_multi_tensor_adam`, `_fused_adam`, `_single_tensor_adam`.

use tonnage_torch::{Argument, Device, Tensor, Torch, TorchError, operator};

use super::{Implementation, Optimizer, StateEntry};

/// Settings with `torch.optim.AdamW`'s defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdamOptions {
    /// `lr` of PyTorch.
    pub learning_rate: f64,
    /// `betas`: how much of the averages of gradients and of their squares is kept.
    pub betas: (f64, f64),
    /// `eps`, added to the root of the squares.
    pub eps: f64,
    /// `weight_decay`, per unit of the learning rate where it is decoupled.
    pub weight_decay: f64,
    /// Whether the decay is AdamW's, which shrinks the weights, or Adam's, which adds to the gradient.
    pub decoupled: bool,
    /// How it walks over its parameters.
    pub implementation: Implementation,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            decoupled: true,
            implementation: Implementation::Foreach,
        }
    }
}

/// State of a parameter, made in its first step.
#[derive(Clone)]
struct Moments {
    step: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
}

/// Adam or AdamW over one group of parameters of one dtype and device.
pub struct Adam {
    torch: &'static Torch,
    parameters: Vec<Tensor>,
    options: AdamOptions,
    moments: Vec<Option<Moments>>,
}

/// What a step works on: parameters that have gradients, as lists.
struct Lists {
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    exp_avgs: Vec<Tensor>,
    exp_avg_sqs: Vec<Tensor>,
    steps: Vec<Tensor>,
}

impl Adam {
    /// State is made in the first step.
    pub fn new(torch: &'static Torch, parameters: Vec<Tensor>, options: AdamOptions) -> Self {
        let moments = vec![None; parameters.len()];
        Self { torch, parameters, options, moments }
    }

    /// `_init_group`: fused kernels keep the step on the parameter's device, others on the host.
    fn lists(&mut self) -> Result<Lists, TorchError> {
        let mut lists =
            Lists { parameters: vec![], gradients: vec![], exp_avgs: vec![], exp_avg_sqs: vec![], steps: vec![] };
        for (parameter, kept) in self.parameters.iter().zip(&mut self.moments) {
            let Some(gradient) = parameter.grad()? else { continue };
            let moments = match kept {
                Some(moments) => moments,
                None => kept.insert(first_moments(self.torch, parameter, self.options.implementation)?),
            };
            lists.parameters.push(parameter.clone());
            lists.gradients.push(gradient);
            lists.exp_avgs.push(moments.exp_avg.clone());
            lists.exp_avg_sqs.push(moments.exp_avg_sq.clone());
            lists.steps.push(moments.step.clone());
        }
        Ok(lists)
    }

    fn foreach(&self, mut lists: Lists) -> Result<(), TorchError> {
        let AdamOptions { learning_rate, betas, eps, weight_decay, decoupled, .. } = self.options;
        let torch = self.torch;
        // The steps lie on the host, where `_foreach_add_` with a number would be slower (adam.py says why).
        let one = torch.tensor(&[1.0_f32], &[])?;
        torch.call(operator!("_foreach_add_", "Tensor"), &[lists.steps.as_slice().into(), (&one).into()])?;
        if weight_decay != 0.0 {
            if decoupled {
                let kept = 1.0 - learning_rate * weight_decay;
                torch.call(operator!("_foreach_mul_", "Scalar"), &[lists.parameters.as_slice().into(), kept.into()])?;
            } else {
                let both = [lists.gradients.as_slice().into(), lists.parameters.as_slice().into(), weight_decay.into()];
                lists.gradients = torch.call(operator!("_foreach_add", "List"), &both)?.tensors();
            }
        }
        let (averages, squares, gradients) =
            (lists.exp_avgs.as_slice(), lists.exp_avg_sqs.as_slice(), lists.gradients.as_slice());
        torch.call(
            operator!("_foreach_lerp_", "Scalar"),
            &[averages.into(), gradients.into(), (1.0 - betas.0).into()],
        )?;
        torch.call(operator!("_foreach_mul_", "Scalar"), &[squares.into(), betas.1.into()])?;
        torch.call(
            operator!("_foreach_addcmul_", "Scalar"),
            &[squares.into(), gradients.into(), gradients.into(), (1.0 - betas.1).into()],
        )?;
        // `del device_grads`: a decayed copy is freed before the next list is made.
        lists.gradients.clear();
        let counts = step_counts(&lists.steps)?;
        let step_sizes: Vec<f64> = counts.iter().map(|count| -(learning_rate / (1.0 - betas.0.powf(*count)))).collect();
        let roots: Vec<f64> = counts.iter().map(|count| (1.0 - betas.1.powf(*count)).sqrt()).collect();
        let denominators = torch.call(operator!("_foreach_sqrt"), &[lists.exp_avg_sqs.as_slice().into()])?.tensors();
        let denominators = denominators.as_slice();
        torch.call(operator!("_foreach_div_", "ScalarList"), &[denominators.into(), Argument::Doubles(&roots)])?;
        torch.call(operator!("_foreach_add_", "Scalar"), &[denominators.into(), eps.into()])?;
        torch.call(
            operator!("_foreach_addcdiv_", "ScalarList"),
            &[
                lists.parameters.as_slice().into(),
                lists.exp_avgs.as_slice().into(),
                denominators.into(),
                Argument::Doubles(&step_sizes),
            ],
        )?;
        Ok(())
    }

    fn fused(&self, lists: &Lists, scale: Option<&Tensor>, found_inf: Option<&Tensor>) -> Result<(), TorchError> {
        let AdamOptions { learning_rate, betas, eps, weight_decay, decoupled, .. } = self.options;
        let torch = self.torch;
        torch.call(operator!("_foreach_add_", "Scalar"), &[lists.steps.as_slice().into(), 1_i64.into()])?;
        let arguments = [
            lists.parameters.as_slice().into(),
            lists.gradients.as_slice().into(),
            lists.exp_avgs.as_slice().into(),
            lists.exp_avg_sqs.as_slice().into(),
            Argument::tensors([]),
            lists.steps.as_slice().into(),
            learning_rate.into(),
            betas.0.into(),
            betas.1.into(),
            weight_decay.into(),
            eps.into(),
            false.into(),
            false.into(),
            scale.into(),
            found_inf.into(),
        ];
        let kernel = if decoupled { operator!("_fused_adamw_") } else { operator!("_fused_adam_") };
        torch.call(kernel, &arguments)?;
        if let Some(found_inf) = found_inf {
            // A skipped step does not count.
            let skipped = Argument::tensors(lists.steps.iter().map(|_| found_inf));
            torch.call(operator!("_foreach_sub_", "List"), &[lists.steps.as_slice().into(), skipped])?;
        }
        Ok(())
    }

    fn for_loop(&self, lists: &Lists) -> Result<(), TorchError> {
        (0..lists.parameters.len()).try_for_each(|at| self.one(lists, at))
    }

    fn one(&self, lists: &Lists, at: usize) -> Result<(), TorchError> {
        let AdamOptions { learning_rate, betas, eps, weight_decay, decoupled, .. } = self.options;
        let torch = self.torch;
        let (parameter, step) = (&lists.parameters[at], &lists.steps[at]);
        let (average, square) = (&lists.exp_avgs[at], &lists.exp_avg_sqs[at]);
        let mut gradient = lists.gradients[at].clone();
        torch.call(operator!("add_", "Scalar"), &[step.into(), 1_i64.into()])?;
        if weight_decay != 0.0 {
            if decoupled {
                torch.call(
                    operator!("mul_", "Scalar"),
                    &[parameter.into(), (1.0 - learning_rate * weight_decay).into()],
                )?;
            } else {
                let sum = [(&gradient).into(), parameter.into(), weight_decay.into()];
                gradient = torch.call(operator!("add", "Tensor"), &sum)?.tensor()?;
            }
        }
        torch.call(operator!("lerp_", "Scalar"), &[average.into(), (&gradient).into(), (1.0 - betas.0).into()])?;
        torch.call(operator!("mul_", "Scalar"), &[square.into(), betas.1.into()])?;
        let squared = [square.into(), (&gradient).into(), (&gradient).into(), (1.0 - betas.1).into()];
        torch.call(operator!("addcmul_"), &squared)?;
        let count = step_counts(std::slice::from_ref(step))?.first().copied().unwrap_or_default();
        let root = torch.call(operator!("sqrt"), &[square.into()])?.tensor()?;
        let denominator = {
            let corrected = (1.0 - betas.1.powf(count)).sqrt();
            torch.call(operator!("div", "Scalar"), &[(&root).into(), corrected.into()])?.tensor()?
        };
        drop(root);
        torch.call(operator!("add_", "Scalar"), &[(&denominator).into(), eps.into()])?;
        let step_size = learning_rate / (1.0 - betas.0.powf(count));
        let update = [parameter.into(), average.into(), (&denominator).into(), (-step_size).into()];
        torch.call(operator!("addcdiv_"), &update)?;
        Ok(())
    }
}

fn first_moments(
    torch: &'static Torch,
    parameter: &Tensor,
    implementation: Implementation,
) -> Result<Moments, TorchError> {
    let step = torch.tensor(&[0.0_f32], &[])?;
    let step = if implementation == Implementation::Fused { step.to_device(parameter.device())? } else { step };
    // zeros_like(parameter, memory_format=torch.preserve_format), which is format 1.
    let zeros = || {
        let arguments =
            [parameter.into(), Argument::None, Argument::None, Argument::None, Argument::None, 1_i64.into()];
        torch.call(operator!("zeros_like"), &arguments)?.tensor()
    };
    Ok(Moments { step, exp_avg: zeros()?, exp_avg_sq: zeros()? })
}

/// Each parameter's own count of steps, as `_get_value` reads it.
fn step_counts(steps: &[Tensor]) -> Result<Vec<f64>, TorchError> {
    steps.iter().map(|step| Ok(f64::from(step.to_vec::<f32>()?.first().copied().unwrap_or_default()))).collect()
}

impl Optimizer for Adam {
    fn step(&mut self) -> Result<(), TorchError> {
        let torch = self.torch;
        let _no_grad = torch.no_grad();
        let lists = self.lists()?;
        if lists.parameters.is_empty() {
            return Ok(());
        }
        match self.options.implementation {
            Implementation::Foreach => self.foreach(lists),
            Implementation::Fused => self.fused(&lists, None, None),
            Implementation::ForLoop => self.for_loop(&lists),
        }
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn state(&self) -> Vec<StateEntry<'_>> {
        let mut entries = Vec::new();
        for (parameter, moments) in self.moments.iter().enumerate() {
            let Some(Moments { step, exp_avg, exp_avg_sq }) = moments else { continue };
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
        let unknown = || TorchError::unknown_state("Adam", parameter, name);
        let of = self.parameters.get(parameter).ok_or_else(unknown)?;
        let implementation = self.options.implementation;
        let kept = self.moments.get_mut(parameter).ok_or_else(unknown)?;
        let moments = match kept {
            Some(moments) => moments,
            None => kept.insert(first_moments(torch, of, implementation)?),
        };
        let (slot, device) = match name {
            "step" if implementation != Implementation::Fused => (&mut moments.step, Device::Cpu),
            "step" => (&mut moments.step, of.device()),
            "exp_avg" => (&mut moments.exp_avg, of.device()),
            "exp_avg_sq" => (&mut moments.exp_avg_sq, of.device()),
            _ => return Err(unknown()),
        };
        *slot = tensor.to_device(device)?;
        Ok(())
    }

    fn unscales(&self) -> bool {
        self.options.implementation == Implementation::Fused
    }

    fn step_scaled(&mut self, scale: Option<&Tensor>, found_inf: &Tensor) -> Result<(), TorchError> {
        let torch = self.torch;
        let _no_grad = torch.no_grad();
        let lists = self.lists()?;
        if lists.parameters.is_empty() { Ok(()) } else { self.fused(&lists, scale, Some(found_inf)) }
    }
}
