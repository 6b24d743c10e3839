//! Tensor parallelism as transformers loads it (`tp_plan`): layers send each other what their modules say, and only the optimizer and
//! clipping know that some parameters are parts (transformers 5.17, trainer_optimizer.py and trainer.py).

use std::rc::Rc;

use crate::job::{JobSpec, OptimizerKind};
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::optimizer::{self, Optimizer};
use crate::tensor::Tensor;

use super::{Loaded, Wrapper};

pub(super) struct DividedLayers {
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    divided: Vec<Tensor>,
    clips: bool,
}

impl DividedLayers {
    pub(super) fn new(job: &JobSpec, loaded: Loaded) -> Self {
        let divided = loaded.builder.divided();
        Self { model: loaded.model, parameters: loaded.parameters, divided, clips: job.clip_grad_norm.is_some() }
    }

    /// Whether no parameter is whole: a model whose norms have no weights, with a head tied to its embedding.
    fn has_parts_alone(&self) -> bool {
        self.divided.len() == self.parameters.len()
    }
}

impl Wrapper for DividedLayers {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.model.forward(call)
    }

    fn around(&self, forward: &mut dyn FnMut(&dyn Model) -> Vec<Tensor>) -> Option<Vec<Tensor>> {
        Some(forward(self.model.as_ref()))
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn remembers_passes(&self) -> bool {
        false
    }

    fn clip_grad_norm(&self) {
        drop(self.clip_for_log());
    }

    fn clip_for_log(&self) -> Option<Tensor> {
        if self.has_parts_alone() {
            return optimizer::clip_sharded_grad_norm(&self.parameters);
        }
        let is_divided = |parameter: &Tensor| self.divided.iter().any(|one| one.is_same(parameter));
        let (divided, whole): (Vec<Tensor>, Vec<Tensor>) = self.parameters.iter().cloned().partition(is_divided);
        optimizer::clip_divided_grad_norm(&divided, &whole, self.clips)
    }

    /// Parts and whole parameters are no one list for a fused or foreach kernel: the Trainer steps them one by one.
    fn optimizers(&self, job: &JobSpec) -> Vec<Box<dyn Optimizer>> {
        let one_by_one = if self.has_parts_alone() { job.optimizer } else { OptimizerKind::AdamwForloop };
        let job = &JobSpec { optimizer: one_by_one, ..job.clone() };
        let (decaying, rest): (Vec<Tensor>, Vec<Tensor>) = self.parameters.iter().cloned().partition(optimizer::decays);
        optimizer::build_groups(job, &decaying, &rest)
    }
}
