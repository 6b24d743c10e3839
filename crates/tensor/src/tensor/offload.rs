//! Activations on the host, moved on a stream of their own: `OffloadActivations` of torchtune, which TRL has too (trl 1.16,
//! models/activation_offloading.py). The names of what it keeps are Python's.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::context::Context;
use super::handle::Tensor;
use super::layout::Layout;
use super::object::Detached;
use super::saved::{EnteredHooks, Hooks, Keeper, Packed, Saved};
use super::shape::Shape;
use crate::dtype::DType;
use crate::host::HostKind;
use tonnage_alloc::trace::{AllocationId, Category};
use tonnage_alloc::{AllocatorConfig, Follower};

/// `min_offload_size`, in bytes.
const MIN_OFFLOAD_SIZE: u64 = 1024;
/// `max_fwd_stash_size`: of so many tensors the copy to the host may still run (trl 1.16, models/activation_offloading.py).
const MAX_FWD_STASH_SIZE: u64 = 5;
/// `s1`, beside the stream that kernels run on.
const COMMUNICATION: u8 = 1;

/// Of a tensor that came back: the stash holds the view, and that what it is a view of.
const USERS_OF_STASHED: usize = 2;

/// Where a tensor lies and of which dtype it is: two with the same are taken for the same.
type StorageKey = (u64, DType);

/// The hooks of all passes.
pub struct OffloadActivations {
    context: Rc<Context>,
    held: HostKind,
    /// `lm_head`, inside which a `NoOpManager` takes the place of the hooks.
    head: Option<u32>,
    state: RefCell<State>,
    /// The last node that something came back for. It is kept beyond its pass, and with it what its edges lead to: a leaf that is no
    /// parameter, and its gradient.
    curr_autograd_node: RefCell<Option<Rc<dyn Any>>>,
    /// Where allocations lie, as the allocator places them.
    places: RefCell<Follower>,
}

#[derive(Default)]
struct State {
    tensor_id: u64,
    tracker: HashMap<u64, Tracked>,
    storage_to_tensor_id: HashMap<StorageKey, u64>,
    storage_key_by_tensor_id: HashMap<u64, StorageKey>,
    fwd_stash: BTreeMap<u64, Detached>,
    bwd_tensor_stash: BTreeMap<u64, Detached>,
    bwd_ev_stash: BTreeSet<u64>,
    has_run_backward: bool,
}

/// What has become of a saved tensor.
enum Tracked {
    /// It stays on the device.
    Kept(Detached),
    Offloaded {
        cpu_tensor: Tensor,
        layout: Layout,
    },
}

impl Keeper for OffloadActivations {
    fn unpack(self: Rc<Self>, id: u64) -> Tensor {
        self.unpack_tensor(id)
    }
}

/// The context manager while it is entered.
pub struct EnteredOffload<'a> {
    of: &'a OffloadActivations,
    _hooks: EnteredHooks,
}

impl Drop for EnteredOffload<'_> {
    fn drop(&mut self) {
        self.of.state.borrow_mut().clear_stashes();
    }
}

impl State {
    fn track_storage_key(&mut self, key: StorageKey, id: u64) {
        self.storage_to_tensor_id.insert(key, id);
        self.storage_key_by_tensor_id.insert(id, key);
    }

    fn release_storage_key(&mut self, id: u64) {
        if let Some(key) = self.storage_key_by_tensor_id.remove(&id)
            && self.storage_to_tensor_id.get(&key) == Some(&id)
        {
            self.storage_to_tensor_id.remove(&key);
        }
    }

    /// Lets go of what was sent long enough ago.
    fn end_old_sends(&mut self, before: u64) {
        while let Some((id, _)) = self.fwd_stash.first_key_value().filter(|(id, _)| **id <= before) {
            let id = *id;
            self.fwd_stash.remove(&id);
            self.release_storage_key(id);
        }
    }

    fn clear_stashes(&mut self) {
        self.fwd_stash.clear();
        self.bwd_tensor_stash.clear();
        self.bwd_ev_stash.clear();
    }
}

impl OffloadActivations {
    pub fn new(context: &Rc<Context>, held: HostKind, config: &AllocatorConfig) -> Rc<Self> {
        context.keeps_running_node.set(true);
        let places = RefCell::new(Follower::new(config));
        let head = context.read_trace(|trace| trace.modules.iter().position(|path| is_head(path)));
        let head = head.and_then(|at| u32::try_from(at).ok());
        Rc::new(Self {
            context: Rc::clone(context),
            held,
            head,
            state: RefCell::default(),
            curr_autograd_node: RefCell::default(),
            places,
        })
    }

    /// `with offload_activations:`
    pub fn enter(self: &Rc<Self>) -> EnteredOffload<'_> {
        let left = self.state.take();
        drop(left);
        EnteredOffload { of: self, _hooks: EnteredHooks::enter(&self.context, Rc::<Self>::clone(self)) }
    }

    fn storage_key(&self, tensor: &Tensor, id: AllocationId) -> StorageKey {
        let address = self.context.read_trace(|trace| self.places.borrow_mut().address_of(trace, id));
        (address.saturating_add(tensor.offset()), tensor.dtype())
    }

    /// What becomes of a saved tensor.
    fn track(&self, tensor: &Tensor, tensor_id: u64) -> Tracked {
        let kept = Tracked::Kept(tensor.detached());
        let Some(allocation) = tensor.allocation() else { return kept };
        let key = self.storage_key(tensor, allocation);
        if self.state.borrow().storage_to_tensor_id.contains_key(&key) {
            self.state.borrow_mut().track_storage_key(key, tensor_id);
            return kept;
        }
        let is_parameter = self.context.category_of(allocation) == Some(Category::Parameter);
        if tensor.bytes() < MIN_OFFLOAD_SIZE || is_parameter {
            return kept;
        }
        let has_broadcast = tensor.strides().contains(&0);
        let activation = Tensor::from(tensor.detached());
        let moves = !has_broadcast && (!activation.is_contiguous() || activation.offset() != 0);
        let activation = if moves { activation.clone_contiguous() } else { activation };
        self.state.borrow_mut().end_old_sends(tensor_id.saturating_sub(MAX_FWD_STASH_SIZE));
        // Of a tensor whose strides repeat elements its memory is copied.
        let elements = self.context.bytes_of(allocation) / tensor.dtype().size().max(1);
        let sizes = if has_broadcast { Shape::new(&[elements]) } else { *activation.sizes() };
        let cpu_tensor = Tensor::on_host(&self.context, sizes, tensor.dtype(), (self.held, Category::Activation));
        self.context.count_link(cpu_tensor.bytes());
        let layout = activation.layout().clone();
        let mut state = self.state.borrow_mut();
        state.fwd_stash.insert(tensor_id, activation.into());
        state.track_storage_key(key, tensor_id);
        Tracked::Offloaded { cpu_tensor, layout }
    }

    fn unpack_tensor(self: &Rc<Self>, id: u64) -> Tensor {
        if !std::mem::replace(&mut self.state.borrow_mut().has_run_backward, true) {
            let offload = Rc::clone(self);
            // `wait_and_del_remaining_references`
            self.context.queue_callback(move || offload.state.borrow_mut().bwd_tensor_stash.clear());
        }
        let tracked = self.state.borrow_mut().tracker.remove(&id);
        let tensor = match tracked {
            Some(Tracked::Kept(tensor)) => tensor.into(),
            Some(Tracked::Offloaded { cpu_tensor, layout }) => self.bring_back(id, &cpu_tensor, layout),
            // Each can be unpacked once.
            None => Tensor::nowhere(&self.context, Shape::new(&[]), DType::Float32),
        };
        self.state.borrow_mut().release_storage_key(id);
        tensor
    }

    /// Whether another node runs than that which something came back for last.
    fn is_on_new_node(&self) -> bool {
        let Some(node) = self.context.running_node() else { return false };
        let is_new = self.curr_autograd_node.borrow().as_ref().is_none_or(|last| !Rc::ptr_eq(last, &node));
        if is_new {
            let last = self.curr_autograd_node.replace(Some(node));
            drop(last);
        }
        is_new
    }

    fn bring_back(self: &Rc<Self>, id: u64, cpu_tensor: &Tensor, layout: Layout) -> Tensor {
        let prev_node_ids: Vec<u64> = if self.is_on_new_node() {
            self.state.borrow().bwd_tensor_stash.keys().copied().collect()
        } else {
            Vec::new()
        };
        let stashed = self.state.borrow().fwd_stash.get(&id).cloned();
        let brought_back_from_cpu = stashed.is_none();
        let tensor = stashed.unwrap_or_else(|| {
            let _stream = self.context.enter_stream(COMMUNICATION);
            cpu_tensor.to_device(&self.context).alias(layout).into()
        });
        if brought_back_from_cpu {
            self.state.borrow_mut().bwd_tensor_stash.insert(id, tensor.clone());
        }
        let offload = Rc::clone(self);
        self.context.hook_running_node(move || {
            let mut state = offload.state.borrow_mut();
            if brought_back_from_cpu {
                state.end_use(id);
            }
            state.end_old_sends(u64::MAX);
            for id in &prev_node_ids {
                state.bwd_ev_stash.remove(id);
                state.bwd_tensor_stash.remove(id);
            }
        });
        tensor.into()
    }
}

impl State {
    /// The node that a tensor came back for has run: what somebody else still holds is theirs (`record_stream`).
    fn end_use(&mut self, id: u64) {
        let Some(unpacked) = self.bwd_tensor_stash.get(&id) else { return };
        if unpacked.users() > USERS_OF_STASHED {
            self.bwd_tensor_stash.remove(&id);
        } else {
            self.bwd_ev_stash.insert(id);
        }
    }
}

fn is_head(path: &str) -> bool {
    path.rsplit('.').next() == Some("lm_head")
}

impl Hooks for OffloadActivations {
    fn pack(self: Rc<Self>, tensor: &Tensor) -> Saved {
        if self.head == Some(self.context.current_module()) {
            return Saved::Tensor(tensor.detached());
        }
        let id = {
            let mut state = self.state.borrow_mut();
            state.tensor_id += 1;
            state.tensor_id
        };
        let tracked = self.track(tensor, id);
        self.state.borrow_mut().tracker.insert(id, tracked);
        Packed::by(self, id)
    }

    fn copies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::tensor::SaveOnCpu;
    use tonnage_alloc::trace::Allocation;

    /// `exp` of a square matrix so many times over, each of which saves its result.
    fn exps(context: &Rc<Context>, width: u64, times: usize) -> Tensor {
        let x = Tensor::empty(context, "empty.default", Shape::new(&[width, width]), DType::Float32).into_parameter();
        (0..times).fold(x, |x, _| x.exp()).sum()
    }

    fn context() -> Rc<Context> {
        Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 })
    }

    fn brought_back(context: &Context) -> Vec<Allocation> {
        context.read_trace(|trace| {
            let is_copy = |one: &&Allocation| trace.origins[one.origin as usize].op == "_to_copy.default";
            trace.allocations.iter().filter(is_copy).copied().collect()
        })
    }

    #[test]
    fn what_save_on_cpu_takes_comes_back_for_its_node() {
        let context = context();
        let loss = {
            let _hooks = SaveOnCpu(HostKind::Pageable).enter(&context);
            exps(&context, 32, 3)
        };
        assert_eq!(context.host_memory().pageable_bytes, 3 * 4096);
        loss.backward();
        assert_eq!(brought_back(&context).iter().map(|one| one.stream).collect::<Vec<_>>(), [0; 3]);
    }

    #[test]
    fn streams_keep_the_last_five_and_bring_back_the_rest() {
        let context = context();
        let offload = OffloadActivations::new(&context, HostKind::Pinned, &AllocatorConfig::default());
        let loss = {
            let _entered = offload.enter();
            let loss = exps(&context, 32, 9);
            assert_eq!(offload.state.borrow().fwd_stash.len(), 5);
            loss.backward();
            loss
        };
        drop(loss);
        let brought = brought_back(&context);
        // The first node of backward uses what is still there and lets go of all of it.
        assert_eq!((brought.len(), brought[0].stream, brought[0].bytes), (8, COMMUNICATION, 4096));
        assert_eq!(context.host_memory().pinned_bytes, 9 * 4096);
    }

    #[test]
    fn small_tensors_and_parameters_stay() {
        let context = context();
        let offload = OffloadActivations::new(&context, HostKind::Pinned, &AllocatorConfig::default());
        let _entered = offload.enter();
        exps(&context, 8, 2).backward();
        assert_eq!((brought_back(&context).len(), context.host_memory().bytes()), (0, 0));
    }
}
