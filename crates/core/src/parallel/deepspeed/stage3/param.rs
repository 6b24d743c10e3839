//! A parameter of which a rank holds a part (deepspeed/runtime/zero/partition_parameters.py): how it is gathered and let go.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::building::ModuleKey;
use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::full;
use crate::tensor::{Layout, Shape, Tensor};
use crate::trace::Category;

/// `ZeroParamStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Available,
    NotAvailable,
    Inflight,
}

/// A parameter with its `ds_` attributes.
pub(super) struct Param {
    pub tensor: Tensor,
    /// Elements of a rank's part, padded.
    pub partition: u64,
    world_size: u64,
    pub status: Cell<Status>,
    /// Whether it is so small that it stays whole.
    pub persists: bool,
    /// `ds_tensor`: the part, of its own or within a flat tensor.
    part: RefCell<Option<Tensor>>,
    /// Modules that run with it (`ds_active_sub_modules`).
    pub active: RefCell<BTreeSet<ModuleKey>>,
}

/// Parameters that were asked for together (`AllGatherCoalescedHandle`).
pub(super) struct Handle {
    params: Vec<Rc<Param>>,
    /// All ranks' parts of several, a tensor for each dtype; they live as long as one parameter is in flight.
    flat: Vec<(DType, Tensor)>,
    is_complete: Cell<bool>,
}

impl Param {
    /// A parameter that is there as a whole.
    pub(super) fn new(tensor: Tensor, world_size: u64, persistence_threshold: u64) -> Self {
        let partition = tensor.numel().div_ceil(world_size);
        let persists = tensor.numel() <= persistence_threshold;
        let (status, part, active) = (Cell::new(Status::Available), RefCell::default(), RefCell::default());
        Self { tensor, partition, world_size, status, persists, part, active }
    }

    pub(super) fn is(&self, status: Status) -> bool {
        self.status.get() == status
    }

    /// The first `partition()`: the part is copied out of the whole, which goes; `offload_param` has it on the host.
    pub(super) fn cut(&self, offloaded: Option<HostKind>) {
        let (context, dtype) = (self.tensor.context(), self.tensor.dtype());
        let _category = context.enter_category(Category::Parameter);
        let part = match offloaded {
            Some(kind) => {
                let part = Tensor::on_host(context, Shape::new(&[self.partition]), dtype, (kind, Category::Parameter));
                context.count_link(part.bytes());
                part
            }
            None => full(context, "empty.memory_format", &[self.partition], dtype),
        };
        self.part.replace(Some(part));
        self.release();
    }

    /// The part was copied out before.
    pub(super) fn hold_part(&self, part: Tensor) {
        self.part.replace(Some(part));
        self.status.set(Status::NotAvailable);
    }

    /// `free_param`
    pub(super) fn release(&self) {
        self.tensor.clear_data();
        self.status.set(Status::NotAvailable);
    }

    /// Its part lies elsewhere from now on.
    pub(super) fn move_part(&self, part: Option<Tensor>) {
        let old = self.part.replace(part);
        drop(old);
    }

    /// The part on its way from the host, where it lies there.
    pub(super) fn bring_part(&self) -> Option<Tensor> {
        let context = self.tensor.context();
        let part = self.part.borrow().clone().filter(|part| !Rc::ptr_eq(part.context(), context))?;
        let _category = context.enter_category(Category::Communication);
        Some(part.to_device(context))
    }

    /// An empty tensor for all ranks' parts, in which it then lies.
    pub(super) fn gather_alone(&self) {
        let elements = self.partition.saturating_mul(self.world_size);
        let buffer = self.gathered("empty.memory_format", elements);
        let _sent = self.bring_part();
        self.lie_in(&buffer);
        self.status.set(Status::Available);
    }

    /// The same of several at once; one rank's part is the whole (`NoGatherHandle`).
    pub(super) fn gather_in_place(&self) {
        if self.world_size > 1 {
            return self.gather_alone();
        }
        let part = self.bring_part().or_else(|| self.part.borrow().clone());
        match part {
            Some(part) => self.lie_in(&part),
            None => return self.gather_alone(),
        }
        self.status.set(Status::Available);
    }

    /// `_allgather_params_coalesced`: all parts are there before the first tensor that they are gathered into.
    pub(super) fn gather_together(params: &[&Rc<Self>]) {
        let has_others = params.iter().any(|param| param.world_size > 1);
        let sent: Vec<Tensor> = params.iter().filter(|_| has_others).filter_map(|param| param.bring_part()).collect();
        for param in params {
            if has_others {
                let elements = param.partition.saturating_mul(param.world_size);
                param.lie_in(&param.gathered("empty.memory_format", elements));
                param.status.set(Status::Available);
            } else {
                param.gather_in_place();
            }
        }
        drop(sent);
    }

    fn gathered(&self, op: &'static str, elements: u64) -> Tensor {
        let _category = self.tensor.context().enter_category(Category::Communication);
        full(self.tensor.context(), op, &[elements], self.tensor.dtype())
    }

    fn lie_in(&self, whole: &Tensor) {
        self.tensor.set_data(&whole.alias(Layout::contiguous(*self.tensor.sizes())));
    }
}

impl Handle {
    /// `all_gather_coalesced`: one alone is gathered where it will lie, several into one flat tensor of each dtype.
    pub(super) fn all_gather(params: Vec<Rc<Param>>) -> Rc<Self> {
        let is_alone = params.len() == 1 || params.iter().all(|param| param.world_size == 1);
        let flat = if is_alone {
            params.iter().for_each(|param| param.gather_in_place());
            Vec::new()
        } else {
            GATHERED.iter().filter_map(|dtype| Some((*dtype, gather_flat(&params, *dtype)?))).collect()
        };
        params.iter().for_each(|param| param.status.set(Status::Inflight));
        Rc::new(Self { params, flat, is_complete: Cell::new(false) })
    }

    /// `wait()`: each of several is put together from its parts.
    pub(super) fn wait(&self) {
        if self.is_complete.replace(true) {
            return;
        }
        for (dtype, _) in &self.flat {
            for param in self.params.iter().filter(|param| param.tensor.dtype() == *dtype) {
                param.lie_in(&param.gathered("cat.default", param.tensor.numel()));
            }
        }
        self.params.iter().for_each(|param| param.status.set(Status::Available));
    }
}

/// In the order of `sort_dtypes`: by name.
const GATHERED: [DType; 3] = [DType::Bfloat16, DType::Float16, DType::Float32];

/// `_all_gather_dtype`
fn gather_flat(params: &[Rc<Param>], dtype: DType) -> Option<Tensor> {
    let of_dtype = || params.iter().filter(|param| param.tensor.dtype() == dtype);
    let elements: u64 = of_dtype().map(|param| param.partition).sum();
    let first = of_dtype().next()?;
    let flat = first.gathered("empty.memory_format", elements.saturating_mul(first.world_size));
    let sent: Vec<Tensor> = of_dtype().filter_map(|param| param.bring_part()).collect();
    drop(sent);
    Some(flat)
}
