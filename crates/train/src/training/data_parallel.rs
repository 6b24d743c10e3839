//! DistributedDataParallel round a model (torch/nn/parallel/distributed.py of 2.11): PyTorch's own reducer, called where that calls it,
//! so that buckets are made, rebuilt and filled as there. The model itself is called by the loop.

use std::cell::Cell;

use tonnage_torch::{Buckets, Group, Reducer, Tensor};

use crate::error::TrainError;
use crate::language_model::LanguageModel;

/// A model's wrapper.
pub(super) struct DataParallel<'a> {
    group: &'a Group,
    reducer: Reducer,
    buffers: Vec<Tensor>,
    /// `require_forward_param_sync`
    syncs_buffers: Cell<bool>,
}

impl<'a> DataParallel<'a> {
    /// Makes weights and buffers those of rank 0, then the buckets.
    pub fn new(group: &'a Group, model: &LanguageModel, buckets: Buckets) -> Result<Self, TrainError> {
        let parameters = model.parameters().iter().map(|parameter| parameter.tensor.clone());
        let states: Vec<Tensor> = parameters.chain(model.buffers().iter().cloned()).collect();
        group.broadcast(&states)?;
        drop(states);
        let reducer = group.reducer(&model.trained(), buckets)?;
        Ok(Self { group, reducer, buffers: model.buffers().to_vec(), syncs_buffers: Cell::new(true) })
    }

    /// `_pre_forward` of a pass whose gradients are reduced, or, inside `no_sync()`, are not.
    pub fn before_forward(&self, reduces: bool) -> Result<(), TrainError> {
        self.reducer.before_forward(reduces)?;
        if self.syncs_buffers.get() && !self.buffers.is_empty() {
            self.group.broadcast(&self.buffers)?;
        }
        Ok(())
    }

    /// `_post_forward`
    pub fn after_forward(&self, reduces: bool) -> Result<(), TrainError> {
        self.syncs_buffers.set(reduces);
        if reduces {
            self.reducer.before_backward()?;
        }
        Ok(())
    }
}
