//! [`Recorder`]: the trace of a process as it is recorded: what is allocated and freed, in which phase, module and category.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashSet;
use std::ops::Range;

use super::counter::{Counter, Product};
use super::origins::Origins;
use crate::failure::{Failure, WayOut};
use crate::work::PhaseWork;
use tonnage_alloc::ADDRESS_SPACE;
use tonnage_alloc::trace::{Allocation, AllocationId, Category, Event, Origin, Phase, PhaseKind, Trace};

/// Room for so many allocations is made in advance: two steps of a model with a few dozen layers.
const EXPECTED_ALLOCATIONS: usize = 1 << 14;

/// The most events of a trace: a quarter of a gigabyte. Long jobs leave out what only repeats, far below it.
pub const MOST_EVENTS: usize = 1 << 23;

/// Why a job is none that any GPU could hold.
pub const TOO_LARGE: &str = "the job needs more than 16 TiB";
/// The way out: the Trainer loads all batches of a step at once.
pub const LOWER_SIZES: &str = "lower `micro_batch_size`, `seq_len` or `gradient_accumulation_steps`";

/// What records; it knows no tensor.
pub struct Recorder {
    pub(super) trace: RefCell<Trace>,
    recording: Cell<bool>,
    pub(super) phase: Cell<u32>,
    pub(super) step: Cell<u32>,
    pub(super) module: Cell<u32>,
    pub(super) stream: Cell<u8>,
    pub(super) node: Cell<Option<&'static str>>,
    pub(super) category: Cell<Option<Category>>,
    /// Set when a recomputation has all it needs: nothing runs any more until it returns (early stop).
    pub(super) stopped: Cell<bool>,
    /// Whether what runs now runs on the device that is simulated, or on another one of the process.
    pub(super) is_here: Cell<bool>,
    /// Events of all tokens so far, those that were leapt over among them.
    grown: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    origins: Origins,
    pub(super) counter: Counter,
    /// Bytes of managed memory.
    managed: Cell<u64>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let mut trace = Trace {
            modules: vec![String::new()],
            phases: vec![Phase { kind: PhaseKind::Load, step: 0 }],
            origins: Vec::new(),
            repeats: Vec::new(),
            growing: Vec::new(),
            events: Vec::with_capacity(2 * EXPECTED_ALLOCATIONS),
            allocations: Vec::with_capacity(EXPECTED_ALLOCATIONS),
        };
        trace.events.push(Event::Phase(0));
        Self {
            trace: RefCell::new(trace),
            recording: Cell::new(true),
            phase: Cell::new(0),
            step: Cell::new(0),
            module: Cell::new(0),
            stream: Cell::new(0),
            node: Cell::new(None),
            category: Cell::new(None),
            stopped: Cell::new(false),
            is_here: Cell::new(true),
            grown: Cell::new(0),
            failure: RefCell::default(),
            origins: Origins::default(),
            counter: Counter::default(),
            managed: Cell::new(0),
        }
    }

    /// Begins optimizer step `step`; the next phase belongs to it.
    pub fn begin_step(&self, step: u32) {
        self.step.set(step);
    }

    /// Begins a phase of the current step.
    pub fn phase(&self, kind: PhaseKind) {
        let step = self.step.get();
        self.counter.close();
        let mut trace = self.trace.borrow_mut();
        let id = trace.phases.len() as u32;
        trace.phases.push(Phase { kind, step });
        trace.events.push(Event::Phase(id));
        self.phase.set(id);
    }

    pub(super) fn current_step(&self) -> u32 {
        self.step.get()
    }

    pub(super) fn current_phase(&self) -> u32 {
        self.phase.get()
    }

    /// What is allocated from now on belongs to a phase that the trace has already.
    pub(super) fn set_phase(&self, phase: u32) {
        self.phase.set(phase);
    }

    /// Registers a module path (`transformer.h.0.attn`) and returns its index.
    pub fn register_module(&self, path: String) -> u32 {
        let mut trace = self.trace.borrow_mut();
        trace.modules.push(path);
        trace.modules.len() as u32 - 1
    }

    /// The module that made an allocation; 0 where there is none.
    pub(super) fn module_of(&self, id: Option<AllocationId>) -> u32 {
        let allocation = id.and_then(|id| self.trace.borrow().allocations.get(id as usize).copied());
        allocation.map_or(0, |allocation| allocation.module)
    }

    /// What an allocation holds.
    pub(super) fn category_of(&self, id: AllocationId) -> Option<Category> {
        self.trace.borrow().allocations.get(id as usize).map(|allocation| allocation.category)
    }

    /// Bytes that an allocation was asked for.
    pub(super) fn bytes_of(&self, id: AllocationId) -> u64 {
        self.trace.borrow().allocations.get(id as usize).map_or(0, |allocation| allocation.bytes)
    }

    pub(super) fn current_module(&self) -> u32 {
        self.module.get()
    }

    /// `torch.cuda.empty_cache()`
    pub fn empty_cache(&self) {
        self.trace.borrow_mut().events.push(Event::EmptyCache);
    }

    /// Whether a recomputation has all it needs, and nothing of what is left of it runs.
    pub fn has_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Whether what runs now runs on the device that is simulated.
    pub fn is_here(&self) -> bool {
        self.is_here.get()
    }

    /// Notes that PyTorch would stop here with this error; the first one counts.
    /// `keys`: what of the job it is about.
    pub fn fail(&self, keys: &[&str], problem: impl FnOnce() -> String) {
        self.failure.borrow_mut().get_or_insert_with(|| Failure::new(problem(), keys, WayOut::OtherValue));
    }

    /// The same of what only the simulation cannot do.
    pub fn fail_unsimulated(&self, keys: &[&str], problem: impl FnOnce() -> String) {
        self.failure.borrow_mut().get_or_insert_with(|| Failure::new(problem(), keys, WayOut::Rehearse));
    }

    /// Whether the job has come to an error.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// The error that PyTorch would have stopped with.
    pub fn take_failure(&self) -> Option<Failure> {
        self.failure.take()
    }

    /// Puts these allocations behind all others, in their order, where everything is still alive: memory that is asked for
    /// when a model is put together and not where its module stands.
    pub fn move_to_end(&self, ids: &[AllocationId]) {
        let mut trace = self.trace.borrow_mut();
        let is_moved = |event: &Event| matches!(event, Event::Alloc(id) if ids.contains(id));
        let (moved, mut events): (Vec<Event>, Vec<Event>) = trace.events.drain(..).partition(is_moved);
        events.extend(moved);
        trace.events = events;
    }

    /// Puts these allocations, of which all are still alive, in this order, where the first of them stands.
    pub fn arrange_allocations(&self, ids: &[AllocationId]) {
        let arranged: HashSet<AllocationId> = ids.iter().copied().collect();
        let is_arranged = |event: &Event| matches!(event, Event::Alloc(id) if arranged.contains(id));
        let mut trace = self.trace.borrow_mut();
        let Some(first) = trace.events.iter().position(is_arranged) else { return };
        let behind = trace.events.split_off(first);
        trace.events.extend(ids.iter().map(|id| Event::Alloc(*id)));
        trace.events.extend(behind.into_iter().filter(|event| !is_arranged(event)));
    }

    /// What was recorded so far.
    pub fn trace_so_far(&self) -> Ref<'_, Trace> {
        self.trace.borrow()
    }

    /// Puts these parts of the trace, which follow one another, in another order.
    pub fn reorder_events(&self, parts: impl Iterator<Item = Range<usize>>) {
        let mut trace = self.trace.borrow_mut();
        let parts: Vec<Range<usize>> = parts.collect();
        let Some(first) = parts.iter().map(|part| part.start).min() else { return };
        let reordered: Vec<Event> = parts.into_iter().flat_map(|part| trace.events[part].to_vec()).collect();
        trace.events.splice(first..first + reordered.len(), reordered);
    }

    /// Puts an allocation of what stays alive in another place of the trace, before or where it is.
    pub fn move_allocation(&self, id: AllocationId, to: usize) {
        let mut trace = self.trace.borrow_mut();
        if let Some(from) = trace.events.iter().position(|event| matches!(event, Event::Alloc(made) if *made == id)) {
            let event = trace.events.remove(from);
            trace.events.insert(to.min(from), event);
        }
    }

    /// Lets two allocations change places, where everything is still alive.
    pub fn swap_allocations(&self, a: AllocationId, b: AllocationId) {
        for event in &mut self.trace.borrow_mut().events {
            match event {
                Event::Alloc(id) if *id == a => *id = b,
                Event::Alloc(id) if *id == b => *id = a,
                _ => {}
            }
        }
    }

    /// What was recorded so far.
    pub fn read_trace<T>(&self, read: impl FnOnce(&Trace) -> T) -> T {
        read(&self.trace.borrow())
    }

    /// Number of events so far.
    pub fn events(&self) -> usize {
        self.trace.borrow().events.len()
    }

    /// Begins the last phase and stops recording: what is still alive stays so in the trace.
    pub fn end(&self) {
        self.phase(PhaseKind::End);
        self.recording.set(false);
    }

    /// Counts a kernel of matrix products.
    pub fn count_product(&self, product: &Product) {
        if !self.stopped.get() {
            self.counter.count(product);
        }
    }

    /// Counts bytes that an operator moves beside those of its results and of an operand as large: what it reads of
    /// further operands, or all it does where it works in place.
    pub fn count_bytes(&self, bytes: u64) {
        if !self.stopped.get() {
            self.counter.read(bytes);
        }
    }

    /// Counts memory that CUDA moves between host and GPU (`cudaMallocManaged`), which PyTorch's allocator does not know.
    pub fn count_managed(&self, bytes: u64) {
        self.managed.set(self.managed.get().saturating_add(bytes));
    }

    /// What was counted of it.
    pub fn managed(&self) -> u64 {
        self.managed.get()
    }

    /// Counts bytes that go between host and device.
    pub fn count_link(&self, bytes: u64) {
        if !self.stopped.get() {
            self.counter.link(bytes);
        }
    }

    /// Number of phases that have begun.
    pub fn phases(&self) -> usize {
        self.trace.borrow().phases.len()
    }

    /// The phases in `range` happen `times` more times, which are left out of the trace.
    pub fn count_phases_again(&self, range: Range<usize>, times: u64) {
        self.counter.repeat_phases(range, times);
    }

    /// Whether the trace is as long as any may be; the job fails then, for want of an end to `what`.
    pub fn is_full(&self, what: &str) -> bool {
        let is_full = self.events() >= MOST_EVENTS;
        if is_full {
            self.fail_unsimulated(&[], || {
                format!(
                    "{what}: the job makes more than {MOST_EVENTS} allocations and frees, and more are not simulated"
                )
            });
        }
        is_full
    }

    /// Events of all tokens so far.
    pub fn grown(&self) -> u64 {
        self.grown.get()
    }

    pub fn count_grown(&self, events: u64) {
        self.grown.set(self.grown.get().saturating_add(events));
    }

    /// Hands over the work of each phase.
    pub fn take_work(&self) -> Vec<PhaseWork> {
        self.counter.take(&self.trace.borrow().phases)
    }

    /// Hands over the trace.
    pub fn take_trace(&self) -> Trace {
        let mut trace = self.trace.take();
        trace.bound_replay(1);
        trace
    }

    /// Records an allocation; `None` when nothing is (no bytes, or a recomputation has stopped).
    #[inline]
    pub(super) fn allocate(&self, op: &'static str, bytes: u64, category: Option<Category>) -> Option<AllocationId> {
        self.allocate_sized(op, (bytes, 0), category)
    }

    /// The same of a size that has a name on other devices.
    #[inline]
    pub(super) fn allocate_sized(
        &self,
        op: &'static str,
        (bytes, sizes): (u64, u32),
        category: Option<Category>,
    ) -> Option<AllocationId> {
        if bytes == 0 || self.stopped.get() || !self.recording.get() || !self.is_here.get() {
            return None;
        }
        if bytes > ADDRESS_SPACE {
            self.give_up();
            return None;
        }
        if category.is_none() {
            self.counter.write(bytes);
        }
        let category = category.or(self.category.get()).unwrap_or(Category::Temporary);
        let mut trace = self.trace.borrow_mut();
        if trace.events.len() >= 2 * MOST_EVENTS {
            drop(trace);
            self.is_full("all of the job");
            return None;
        }
        let origin = self.origins.index(&mut trace.origins, Origin { op, node: self.node.get() });
        let id = trace.allocations.len() as AllocationId;
        trace.allocations.push(Allocation {
            bytes,
            origin,
            module: self.module.get(),
            phase: self.phase.get(),
            category,
            stream: self.stream.get(),
            other_size: sizes,
        });
        trace.events.push(Event::Alloc(id));
        Some(id)
    }

    /// One tensor alone is more than any allocator has: the rest, of which each kernel would be launched thousands of times for
    /// the pieces that it can reach, is not recorded.
    fn give_up(&self) {
        let too_large = || Failure::new(TOO_LARGE.to_owned(), &[], WayOut::Lower(LOWER_SIZES));
        self.failure.borrow_mut().get_or_insert_with(too_large);
        self.recording.set(false);
    }

    pub(super) fn free(&self, id: AllocationId) {
        if self.recording.get() {
            self.trace.borrow_mut().events.push(Event::Free(id));
        }
    }

    pub(super) fn set_category(&self, id: AllocationId, category: Category) {
        if let Some(allocation) = self.trace.borrow_mut().allocations.get_mut(id as usize) {
            allocation.category = category;
        }
    }
}
