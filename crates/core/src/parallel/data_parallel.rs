//! `torch.nn.DataParallel` (torch/nn/parallel/data_parallel.py, PyTorch 2.11): one process that copies its model to every
//! GPU for each forward pass, cuts the batch, and gathers outputs and gradients on GPU 0. One of the GPUs is simulated;
//! on the others nothing is recorded.
//!
//! NCCL moves the tensors, as in PyTorch's builds for Linux: it needs no copies of its own.

use std::cell::Cell;
use std::rc::Rc;

use crate::building::Builder;
use crate::dtype::DType;
use crate::job::Parallel;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::tensor::{Context, Gradients, Layout, NodeBuilder, Shape, Tensor, Thread};
use crate::trace::Category;
use crate::units::MIB;

use super::broadcast::flatten_dense_tensors;
use super::buckets::{BucketOrder, assign_buckets};
use super::{Loaded, Rebuild, Wrapper};

/// `buffer_size` of `broadcast_coalesced` and `reduce_add_coalesced` (torch/nn/parallel/comm.py).
const BUFFER_BYTES: u64 = 10 * MIB;

pub(super) struct DataParallel {
    context: Rc<Context>,
    model: Rc<dyn Model>,
    parameters: Vec<Tensor>,
    all_parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// For each parameter in the order the model makes them, its place in `all_parameters`.
    creation_order: Vec<usize>,
    builder: Builder,
    rebuild: Rebuild,
    gpus: u64,
    /// Whether GPU 0 is simulated, which holds the model.
    is_first: bool,
    has_run: Cell<bool>,
}

impl DataParallel {
    pub(super) fn new(context: &Rc<Context>, loaded: Loaded, parallel: Parallel) -> Self {
        let place = |created: &Tensor| loaded.all_parameters.iter().position(|listed| listed.is_alias_of(created));
        Self {
            context: Rc::clone(context),
            creation_order: loaded.builder.created_parameters().iter().filter_map(place).collect(),
            model: loaded.model,
            parameters: loaded.parameters,
            all_parameters: loaded.all_parameters,
            buffers: loaded.buffers,
            builder: loaded.builder,
            rebuild: loaded.rebuild,
            gpus: parallel.world_size,
            is_first: parallel.rank == 0,
            has_run: Cell::new(false),
        }
    }

    /// This GPU's rows: a part of the batch on GPU 0, a copy elsewhere.
    fn scatter(&self, input: &Tensor) -> Tensor {
        let rows = input.size(0) / self.gpus;
        if self.is_first {
            return input.narrow_any(0, rows);
        }
        let _category = self.context.enter_category(Category::Input);
        Tensor::empty(&self.context, "_to_copy.default", input.sizes().with(0, rows), input.dtype())
    }

    /// This GPU's copy of the model; `None` when the model cannot be built again.
    fn replicate(&self) -> Option<Box<dyn Model>> {
        let node = NodeBuilder::new("BroadcastBackward", self.all_parameters.iter().collect::<Vec<_>>());
        let copies = self.broadcast_coalesced(&self.all_parameters);
        let (context, is_first) = (Rc::clone(&self.context), self.is_first);
        let infos: Vec<(Shape, DType)> = copies.iter().map(|copy| (*copy.sizes(), copy.dtype())).collect();
        let copies = node.finish_list(copies, move |gradients| {
            let materialized = gradients.iter().zip(&infos).map(|(gradient, (sizes, dtype))| {
                gradient.clone().unwrap_or_else(|| full(&context, "zeros.default", sizes, *dtype))
            });
            reduce_add_coalesced(&context, &materialized.collect::<Vec<_>>(), is_first)
        });
        let in_order = self.creation_order.iter().filter_map(|&at| copies.get(at)).cloned().collect();
        let buffers = self.broadcast_coalesced(&self.buffers);
        match (self.rebuild)(&self.builder.of_replica(in_order, buffers)) {
            Ok(replica) => Some(replica),
            Err(error) => {
                self.context.fail(&[], || error.to_string());
                None
            }
        }
    }

    /// Flat buffers of several tensors go from GPU 0 to the others, whose copies lie in them; GPU 0 keeps its own.
    fn broadcast_coalesced(&self, tensors: &[Tensor]) -> Vec<Tensor> {
        let mut copies = tensors.to_vec();
        for chunk in assign_buckets(tensors, &[BUFFER_BYTES], BucketOrder::AsFilled) {
            let members: Vec<&Tensor> = chunk.iter().filter_map(|&at| tensors.get(at)).collect();
            let Some(first) = members.first() else { continue };
            let _category = self.context.enter_category(Category::Parameter);
            let flat = if self.is_first {
                flatten_dense_tensors(&members)
            } else {
                let elements = members.iter().map(|tensor| tensor.numel()).sum();
                Some(full(&self.context, "empty.memory_format", &[elements], first.dtype()))
            };
            for (&at, tensor) in chunk.iter().zip(&members) {
                let source = flat.as_ref().filter(|_| !self.is_first).unwrap_or(tensor);
                copies[at] = source.alias_as(Layout::contiguous(*tensor.sizes()), self.is_first);
            }
        }
        copies
    }

    /// Runs the replica in a thread of its own. A thread takes over the cuBLAS handle of one that has ended: the first
    /// one's goes to the autograd thread, which keeps it, the second one's to all that follow.
    fn parallel_apply(&self, replica: &dyn Model, call: &ForwardCall) -> ModelOutput {
        let thread = if self.has_run.replace(true) { Thread::Main } else { Thread::Autograd };
        let _thread = self.context.enter_thread(thread);
        replica.forward(call)
    }

    /// `Gather`: an output of all GPUs on GPU 0, along the rows; numbers become a vector.
    fn gather(&self, output: &Tensor) -> Tensor {
        let _device = self.context.enter_device(self.is_first);
        let node = NodeBuilder::new("GatherBackward", [output]);
        let sizes = match output.sizes().first() {
            Some(&rows) => output.sizes().with(0, rows * self.gpus),
            None => Shape::new(&[self.gpus]),
        };
        let gathered = Tensor::empty(&self.context, "gather", sizes, output.dtype());
        let (context, is_first, part) = (Rc::clone(&self.context), self.is_first, Layout::contiguous(*output.sizes()));
        node.finish(gathered, move |gradient| {
            if is_first {
                return smallvec::smallvec![Some(gradient.alias(part.clone()).into())];
            }
            let _device = context.enter_device(true);
            smallvec::smallvec![Some(Tensor::empty(&context, "_to_copy.default", part.sizes, gradient.dtype()).into())]
        })
    }
}

/// `reduce_add_coalesced`: gradients are added on GPU 0 in flat buffers, of which the results are parts.
fn reduce_add_coalesced(context: &Rc<Context>, gradients: &[Tensor], is_first: bool) -> Gradients {
    let mut sums: Gradients = gradients.iter().map(|_| None).collect();
    // A Python variable: the old buffer goes when the new one is there.
    let mut flat_tensors = None;
    for chunk in take_tensors(gradients) {
        let members: Vec<&Tensor> = chunk.iter().filter_map(|&at| gradients.get(at)).collect();
        let elements = members.iter().map(|gradient| gradient.numel()).sum();
        let Some(dtype) = members.first().map(|first| first.dtype()) else { continue };
        let flat = {
            let _device = context.enter_device(true);
            flatten_dense_tensors(&members)
        };
        drop(std::mem::replace(&mut flat_tensors, flat));
        let _device = context.enter_device(is_first);
        let result = full(context, "empty_like.default", &[elements], dtype);
        for (&at, gradient) in chunk.iter().zip(&members) {
            sums[at] = Some(result.alias_as(Layout::contiguous(*gradient.sizes()), false).into());
        }
    }
    drop(flat_tensors);
    sums
}

/// `_take_tensors` (torch/_utils.py): positions of tensors of a dtype, as many as fit into a buffer.
fn take_tensors(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    let mut chunks = Vec::new();
    let mut filling: Vec<(DType, Vec<usize>, u64)> = Vec::new();
    for (position, tensor) in tensors.iter().enumerate() {
        let at = filling.iter().position(|(dtype, ..)| *dtype == tensor.dtype()).unwrap_or_else(|| {
            filling.push((tensor.dtype(), Vec::new(), 0));
            filling.len() - 1
        });
        let (_, chunk, bytes) = &mut filling[at];
        let size = tensor.numel() * tensor.dtype().size();
        if *bytes > 0 && *bytes + size > BUFFER_BYTES {
            chunks.push(std::mem::take(chunk));
            *bytes = 0;
        }
        chunk.push(position);
        *bytes += size;
    }
    chunks.extend(filling.into_iter().map(|(_, chunk, _)| chunk).filter(|chunk| !chunk.is_empty()));
    chunks
}

impl Wrapper for DataParallel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        if self.gpus == 1 {
            return self.model.forward(call);
        }
        let replica_device = self.context.enter_device(true);
        let input_ids = self.scatter(call.input_ids);
        let attention_mask = call.attention_mask.map(|mask| self.scatter(mask));
        let labels = call.labels.map(|labels| self.scatter(labels));
        let Some(replica) = self.replicate() else {
            return ModelOutput { loss: None, logits: None, cache: None, router: None, more: Vec::new() };
        };
        let output = self.parallel_apply(
            replica.as_ref(),
            &ForwardCall {
                attention_mask: attention_mask.as_ref(),
                labels: labels.as_ref(),
                cache: call.cache.as_ref().map(|_| replica.new_cache()),
                logits_to_keep: call.logits_to_keep,
                fused_loss: call.fused_loss,
                ..ForwardCall::new(&input_ids)
            },
        );
        drop(replica_device);
        let loss = output.loss.as_ref().map(|loss| self.gather(loss));
        let logits = output.logits.as_ref().map(|logits| self.gather(logits));
        ModelOutput { loss, logits, cache: None, router: None, more: Vec::new() }
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn rows(&self, micro_batch_size: u64) -> u64 {
        micro_batch_size * self.gpus
    }

    fn reduce_loss(&self, loss: Tensor) -> Tensor {
        loss.mean()
    }
}
