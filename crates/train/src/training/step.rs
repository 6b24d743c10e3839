//! A step, with the lives of the variables that the same loop has in Python, and with the order of its statements: what it allocates
//! is what `tonnage estimate` says of it (core/src/step/train.rs mirrors the same loop).

use tonnage_torch::{Device, Tensor, Torch, operator};

use super::data_parallel::DataParallel;
use super::model::{Outputs, call_with_labels, logits_of, mean_loss, shifted};
use super::settings::Settings;
use crate::clip::clip_grad_norm;
use crate::data::batches::Batch;
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::optimizer::Optimizer;
use crate::ranks::Ranks;
use crate::scaler::GradScaler;

/// Python variables that live from one pass to the next.
#[derive(Default)]
pub(super) struct Variables {
    ids: Option<Tensor>,
    labels: Option<Tensor>,
    loss: Option<Tensor>,
    outputs: Option<Outputs>,
    logits: Option<Tensor>,
}

/// What a step is made with.
pub(super) struct Maker<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a LanguageModel,
    pub settings: &'a Settings,
    pub ranks: &'a dyn Ranks,
    /// What stands round the model where gradients are the mean of several ranks'.
    pub wrapper: Option<DataParallel<'a>>,
    /// Whether numbers mean anything: over a phantom GPU they do not.
    pub reads_values: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Made {
    /// Mean over its passes, of this rank.
    pub loss: f64,
    pub grad_norm: Option<f64>,
    /// Whether the optimizer stepped; a scaler may leave one out.
    pub stepped: bool,
}

impl Maker<'_> {
    /// A batch on the device; its labels are its tokens where it has none of its own.
    pub fn load_batch(&self, batch: &Batch, variables: &mut Variables) -> Result<(), TrainError> {
        let sizes = [batch.rows as i64, batch.tokens as i64];
        variables.ids = Some(self.torch.tensor(&batch.ids, &sizes)?.to_device(self.device)?);
        // A batch without labels of its own has its tokens as labels, in a tensor beside them where the job says so.
        let labels = batch.labels.as_ref().or(self.settings.own_labels.then_some(&batch.ids));
        variables.labels = match labels {
            Some(labels) => Some(self.torch.tensor(labels, &sizes)?.to_device(self.device)?),
            None => variables.ids.clone(),
        };
        Ok(())
    }

    /// Forward, loss and backward of a micro-batch. Returns the loss before it is divided. `optimizer` is there in the first pass
    /// of a step; gradients are reduced over ranks in the last.
    fn run_pass(
        &self,
        batch: &Batch,
        variables: &mut Variables,
        scaler: Option<&mut GradScaler>,
        (optimizer, reduces): (Option<&dyn Optimizer>, bool),
    ) -> Result<f64, TrainError> {
        self.load_batch(batch, variables)?;
        if !self.model.returns_loss() {
            return self.own_pass(variables, scaler, (optimizer, reduces));
        }
        let (Some(ids), Some(labels)) = (&variables.ids, &variables.labels) else { return Ok(0.0) };
        let settings = self.settings;
        let autocast = settings.autocast.map(|dtype| self.torch.autocast(self.device, Some(dtype))).transpose()?;
        self.wrapper.as_ref().map_or(Ok(()), |wrapper| wrapper.before_forward(reduces))?;
        let output = call_with_labels(self.model, ids, labels, settings.caches)?;
        self.wrapper.as_ref().map_or(Ok(()), |wrapper| wrapper.after_forward(reduces))?;
        let mut loss = output.loss.clone();
        if settings.keeps_outputs {
            variables.outputs = Some(output);
        } else {
            drop(output);
        }
        variables.loss = Some(loss.clone());
        let value = if self.reads_values { host_number(&loss)? } else { 0.0 };
        if settings.accumulation > 1 {
            let divided = [(&loss).into(), (settings.accumulation as f64).into()];
            loss = self.torch.call(operator!("div", "Scalar"), &divided)?.tensor()?;
            variables.loss = Some(loss.clone());
        }
        drop(autocast);
        // The loss of the loop is the variable's: nothing else holds it while backward runs.
        drop(loss);
        let Some(loss) = &variables.loss else { return Ok(value) };
        self.backward(loss, scaler)?;
        Ok(value)
    }

    fn backward(&self, loss: &Tensor, scaler: Option<&mut GradScaler>) -> Result<(), TrainError> {
        match scaler {
            Some(scaler) => {
                let scaled = scaler.scale(loss)?;
                self.torch.backward(&scaled)?;
            }
            None => self.torch.backward(loss)?,
        }
        Ok(())
    }

    /// The pass of AGI2's own trainer (`train_epoch`): gradients go before the forward pass; logits and loss live until the next
    /// pass has its own.
    fn own_pass(
        &self,
        variables: &mut Variables,
        scaler: Option<&mut GradScaler>,
        (optimizer, reduces): (Option<&dyn Optimizer>, bool),
    ) -> Result<f64, TrainError> {
        let (Some(ids), Some(labels)) = (&variables.ids, &variables.labels) else { return Ok(0.0) };
        let (ids, targets) = shifted(ids, labels)?;
        optimizer.map_or(Ok(()), Optimizer::zero_grad)?;
        let settings = self.settings;
        let autocast = settings.autocast.map(|dtype| self.torch.autocast(self.device, Some(dtype))).transpose()?;
        self.wrapper.as_ref().map_or(Ok(()), |wrapper| wrapper.before_forward(reduces))?;
        let logits = variables.logits.insert(logits_of(self.model, &ids)?);
        self.wrapper.as_ref().map_or(Ok(()), |wrapper| wrapper.after_forward(reduces))?;
        let loss = variables.loss.insert(mean_loss(logits, &targets)?);
        drop(autocast);
        let value = if self.reads_values { host_number(loss)? } else { 0.0 };
        if settings.accumulation > 1 {
            let divided = [(&*loss).into(), (settings.accumulation as f64).into()];
            *loss = self.torch.call(operator!("div", "Scalar"), &divided)?.tensor()?;
        }
        self.backward(loss, scaler)?;
        Ok(value)
    }

    /// One update of the optimizer.
    pub fn step(
        &self,
        mut next_batch: impl FnMut() -> Batch,
        variables: &mut Variables,
        optimizer: &mut dyn Optimizer,
        mut scaler: Option<&mut GradScaler>,
    ) -> Result<Made, TrainError> {
        let mut made = Made { stepped: true, ..Made::default() };
        for pass in 0..self.settings.accumulation {
            let batch = next_batch();
            let place = ((pass == 0).then_some(&*optimizer), pass + 1 == self.settings.accumulation);
            made.loss +=
                self.run_pass(&batch, variables, scaler.as_deref_mut(), place)? / self.settings.accumulation as f64;
        }
        if let Some(max_norm) = self.settings.clip {
            if let Some(scaler) = scaler.as_deref_mut() {
                scaler.unscale(optimizer)?;
            }
            let norm = clip_grad_norm(self.torch, optimizer.parameters(), max_norm)?;
            made.grad_norm = norm.filter(|_| self.reads_values).map(|norm| host_number(&norm)).transpose()?;
        }
        match scaler {
            Some(scaler) => {
                made.stepped = scaler.step(optimizer)?;
                scaler.update()?;
            }
            None => optimizer.step()?,
        }
        if self.model.returns_loss() {
            optimizer.zero_grad()?;
        }
        Ok(made)
    }
}

/// A number of one element, whatever it is computed in.
pub(crate) fn host_number(tensor: &Tensor) -> Result<f64, TrainError> {
    let torch = tensor.torch();
    let _no_grad = torch.no_grad();
    Ok(match tensor.scalar_type()? {
        tonnage_torch::ScalarType::Float32 => tensor.to_vec::<f32>()?.first().copied().map_or(f64::NAN, f64::from),
        _ => {
            let on_host = tensor.to_device(Device::Cpu)?;
            let wide = [(&on_host).into(), tonnage_torch::ScalarType::Float64.into()];
            let wide = torch.call(operator!("to", "dtype"), &wide)?.tensor()?;
            wide.to_vec::<f64>()?.first().copied().unwrap_or(f64::NAN)
        }
    })
}

impl Variables {
    /// What was loaded last.
    pub fn inputs(&self) -> Option<(&Tensor, &Tensor)> {
        self.ids.as_ref().zip(self.labels.as_ref())
    }
}
