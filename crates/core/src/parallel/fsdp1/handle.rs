//! A flat parameter: the parameters of one module end to end, as a rank's shard and, while they are needed, whole
//! (_flat_param.py, `FlatParamHandle`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::full;
use crate::tensor::{Gradients, Layout, NodeBuilder, Shape, Tensor, gradients};
use crate::trace::Category;

use super::Shared;
use super::init::Unit;

/// `HandleTrainingState`
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainingState {
    Idle,
    Forward,
    BackwardPre,
    BackwardPost,
}

/// Elements of the flat parameter: a parameter, or what aligns the next one.
pub(super) enum Piece {
    Parameter {
        /// What the model computes with; it lies in the gathered flat parameter.
        tensor: Tensor,
        /// The part of it in this rank's shard, with `use_orig_params`.
        part: Option<Tensor>,
    },
    Padding(u64),
}

impl Piece {
    pub(super) fn numel(&self) -> u64 {
        match self {
            Self::Parameter { tensor, .. } => tensor.numel(),
            Self::Padding(numel) => *numel,
        }
    }

    fn parameter(&self) -> Option<&Tensor> {
        match self {
            Self::Parameter { tensor, .. } => Some(tensor),
            Self::Padding(_) => None,
        }
    }
}

pub(super) struct Handle {
    pub shared: Rc<Shared>,
    pub unit: Unit,
    pub pieces: Vec<Piece>,
    pub orig_dtype: DType,
    /// The dtype of what the modules have as their parameters at the moment.
    pub seen_dtype: Cell<DType>,
    /// `flat_param` while it is whole; it lies in `full`.
    pub flat: Tensor,
    /// `_full_param_padded`
    full: Tensor,
    /// `_local_shard`, a leaf that is stepped unless the model's own parameters are.
    pub local_shard: Tensor,
    pub cpu_grad: RefCell<Option<Tensor>>,
    /// What parts of parameters lie in until they are cut anew, where that is not the shard.
    lie_in: RefCell<Option<Tensor>>,
    pub saved_grad_shard: RefCell<Option<Tensor>>,
    /// `flat_param.grad` of the shard, which outlives `zero_grad` of the parts.
    pub grad_of_parts: RefCell<Option<Tensor>>,
    pub training_state: Cell<TrainingState>,
    /// Whether gradients are reduced: not in `no_sync()`.
    pub syncs: Cell<bool>,
    pub needs_pre_backward_unshard: Cell<bool>,
    pub ran_pre_backward_hook: Cell<bool>,
    pub prefetched: Cell<bool>,
    pub post_forward_index: Cell<Option<usize>>,
    /// Whether `flat_param` is the gathered one, not the shard.
    is_whole: Cell<bool>,
}

/// Its elements in the model's and in a rank's memory.
pub(super) struct Extent {
    /// `_unpadded_unsharded_size`
    pub numel: u64,
    /// Elements of a rank's shard.
    pub chunk: u64,
}

impl Handle {
    pub(super) fn new(
        shared: &Rc<Shared>,
        unit: Unit,
        (pieces, extent): (Vec<Piece>, Extent),
        (local_shard, lie_in, trains): (Tensor, Option<Tensor>, bool),
    ) -> Self {
        let context = &shared.context;
        let orig_dtype = local_shard.dtype();
        let dtype = shared.options.param_dtype.unwrap_or(orig_dtype);
        let nowhere = |numel| Tensor::nowhere(context, Shape::new(&[numel]), dtype);
        let full = nowhere(extent.chunk.saturating_mul(shared.world_size));
        let flat = nowhere(extent.numel);
        flat.set_data(&full);
        pieces.iter().filter_map(Piece::parameter).for_each(|parameter| parameter.set_data(&full));
        let trained = |tensor: Tensor| if trains { tensor.into_parameter() } else { tensor };
        let (flat, local_shard) = (trained(flat), trained(local_shard));
        Self {
            shared: Rc::clone(shared),
            unit,
            pieces,
            orig_dtype,
            seen_dtype: Cell::new(orig_dtype),
            flat,
            full,
            local_shard,
            cpu_grad: RefCell::default(),
            lie_in: RefCell::new(lie_in),
            saved_grad_shard: RefCell::default(),
            grad_of_parts: RefCell::default(),
            training_state: Cell::new(TrainingState::Idle),
            syncs: Cell::new(true),
            needs_pre_backward_unshard: Cell::new(false),
            ran_pre_backward_hook: Cell::new(false),
            prefetched: Cell::new(false),
            post_forward_index: Cell::new(None),
            is_whole: Cell::new(false),
        }
    }

    /// Whether it is trained.
    pub(super) fn trains(&self) -> bool {
        self.flat.requires_grad()
    }

    /// The shard, if the optimizer steps it.
    pub(super) fn stepped_shard(&self) -> Option<Tensor> {
        self.trains().then(|| self.local_shard.clone())
    }

    /// Whether a parameter lies in the flat one.
    pub(super) fn holds(&self, parameter: &Tensor) -> bool {
        self.pieces.iter().filter_map(Piece::parameter).any(|held| held.is_same(parameter))
    }

    /// The part of a parameter that lies in this rank's shard.
    pub(super) fn stepped_part(&self, parameter: &Tensor) -> Option<Tensor> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Parameter { tensor, part } if tensor.is_same(parameter) => part.clone(),
            _ => None,
        })
    }

    pub(super) const fn is_root(&self) -> bool {
        self.unit.is_none()
    }

    fn casts(&self) -> bool {
        self.shared.casts(self.orig_dtype)
    }

    /// `init_flat_param_attributes`: tensors that are made to have their memory taken away.
    pub(super) fn init_attributes(&self) {
        let context = &self.shared.context;
        if self.shared.options.cpu_offload {
            let held = (HostKind::Pinned, Category::Gradient);
            let grad = Tensor::on_host(context, *self.local_shard.sizes(), self.orig_dtype, held);
            self.cpu_grad.replace(Some(grad));
        }
        let _category = context.enter_category(Category::Communication);
        let forget = |numel, dtype| drop(full(context, "empty.memory_format", &[numel], dtype));
        if self.casts() {
            forget(self.local_shard.numel(), self.flat.dtype());
        }
        forget(self.full.numel(), self.flat.dtype());
        if self.casts() {
            forget(self.full.numel(), self.orig_dtype);
        }
    }

    pub(super) fn unshard(&self) {
        let context = &self.shared.context;
        let _module = context.enter_module(self.unit.map_or(0, |(module, _)| module));
        let _category = context.enter_category(Category::Communication);
        let needs_unshard = self.full.allocation().is_none();
        let before = (needs_unshard || self.shared.options.cpu_offload).then(|| self.pre_unshard());
        let _stream = context.enter_stream(self.shared.unshard_stream());
        if needs_unshard {
            self.full.materialize("_resize_");
        }
        self.is_whole.set(true);
        drop(before);
        let in_forward = self.training_state.get() == TrainingState::Forward;
        if in_forward {
            self.use_unsharded_views();
        }
        if in_forward || self.shared.options.use_orig_params {
            self.seen_dtype.set(self.flat.dtype());
        }
    }

    /// `pre_unshard`: the shard as it is gathered, where that is a tensor of its own.
    fn pre_unshard(&self) -> Option<Tensor> {
        let context = &self.shared.context;
        let _stream = context.enter_stream(self.shared.pre_unshard_stream());
        let offloads = self.shared.options.cpu_offload;
        let numel = self.local_shard.numel();
        let low = self.casts().then(|| full(context, "_resize_", &[numel], self.flat.dtype()));
        if !offloads {
            return low;
        }
        context.count_link(self.local_shard.bytes());
        let copy = full(context, "_to_copy.default", &[numel], self.orig_dtype);
        if low.is_none() && self.shared.options.use_orig_params {
            let earlier = self.lie_in.replace(Some(copy.clone()));
            drop(earlier);
        }
        low.or(Some(copy))
    }

    /// `_use_unsharded_views(as_params=False)` on the unshard stream: the model's parameters are views of the flat one, whose gradient is theirs end
    /// to end.
    fn use_unsharded_views(&self) {
        let node = NodeBuilder::new("SplitWithSizesBackward", [&self.flat]);
        let context = &self.shared.context;
        let view = |piece: &Piece| match piece {
            Piece::Parameter { tensor, .. } => self.full.alias(tensor.layout().clone()),
            Piece::Padding(numel) => self.full.alias(Layout::contiguous(Shape::new(&[*numel]))),
        };
        let views: Vec<Tensor> = self.pieces.iter().map(view).collect();
        let sizes: Vec<u64> = self.pieces.iter().map(Piece::numel).collect();
        let (dtype, numel) = (self.flat.dtype(), self.flat.numel());
        let context = Rc::clone(context);
        let views = node.finish_list(views, move |arrived| -> Gradients {
            let missing = arrived.iter().zip(&sizes).filter(|(gradient, _)| gradient.is_none());
            let _zeros: Vec<Tensor> =
                missing.map(|(_, numel)| full(&context, "zeros.default", &[*numel], dtype)).collect();
            gradients![full(&context, "cat.default", &[numel], dtype)]
        });
        for (piece, view) in self.pieces.iter().zip(&views) {
            if let Some(parameter) = piece.parameter() {
                parameter.stand_for(view);
            }
        }
    }

    pub(super) fn reshard(&self, frees: bool) {
        self.is_whole.set(false);
        if self.training_state.get() != TrainingState::Forward || self.shared.options.reshard_after_forward {
            drop(self.lie_in.take());
            if self.shared.options.use_orig_params {
                self.seen_dtype.set(self.orig_dtype);
            }
        }
        if frees {
            self.full.free_storage();
        }
        self.prefetched.set(false);
    }

    /// `_should_free_in_backward`
    pub(super) fn frees_in_backward(&self) -> bool {
        self.syncs.get() || self.shared.options.reshard_after_forward
    }

    pub(super) fn catch_all_reshard(&self) {
        if self.is_whole.get() {
            self.reshard(self.frees_in_backward());
        }
    }
}
