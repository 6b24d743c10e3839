//! [`Judgements`]: a job with other batches on several GPUs, each distinct job simulated once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Resolve;
use super::batch::Batch;
use super::fit::{Judgement, judge_all};
use crate::gpu::{Device, Gpu};
use crate::spec::{JobSpec, SpecError};

/// What is known of a job by batch. GPUs whose host code gives the same answers share a simulation, and nothing else does:
/// workspaces and kernels' scratch go by compute capability and multiprocessors.
pub struct Judgements<'a> {
    job: &'a JobSpec,
    gpus: &'a [Gpu],
    resolve: &'a Resolve<'a>,
    devices: Vec<Device>,
    known: Mutex<HashMap<(Batch, Device), Arc<Answers>>>,
}

/// An answer for every GPU of a device, in their order; why there is no such job is the same for all.
type Answers = Result<Vec<Result<Judgement, String>>, SpecError>;

impl<'a> Judgements<'a> {
    /// Nothing known yet.
    pub fn new(job: &'a JobSpec, gpus: &'a [Gpu], resolve: &'a Resolve<'a>) -> Self {
        let mut devices: Vec<Device> = Vec::new();
        for gpu in gpus {
            if !devices.contains(&gpu.device()) {
                devices.push(gpu.device());
            }
        }
        Self { job, gpus, resolve, devices, known: Mutex::default() }
    }

    /// The job as it was handed over.
    pub fn job(&self) -> &JobSpec {
        self.job
    }

    /// The GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        self.gpus
    }

    /// Kinds of GPUs that take a simulation each.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Estimates `batch` on all GPUs of `device`, if that was not done before.
    pub fn learn(&self, batch: Batch, device: Device) -> Arc<Answers> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&(batch, device)) {
            return Arc::clone(known);
        }
        let answers = Arc::new(self.estimate(batch, device));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((batch, device)).or_insert(answers))
    }

    fn estimate(&self, batch: Batch, device: Device) -> Answers {
        let job = (self.resolve)(&batch.overrides(self.job, "rows of a pass"))?.job;
        let gpus: Vec<Gpu> = self.gpus.iter().filter(|gpu| gpu.device() == device).cloned().collect();
        Ok(judge_all(&job, &gpus).into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect())
    }

    /// `batch` on the GPU at `index`.
    ///
    /// # Errors
    /// Why there is no such job.
    pub fn on(&self, batch: Batch, index: usize) -> Result<Judgement, String> {
        let device = self.gpus[index].device();
        let place = self.gpus[..index].iter().filter(|gpu| gpu.device() == device).count();
        match self.learn(batch, device).as_ref() {
            Ok(answers) => answers[place].clone(),
            Err(error) => Err(error.problem.clone()),
        }
    }

    /// How many distinct jobs were estimated.
    pub fn estimates(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
