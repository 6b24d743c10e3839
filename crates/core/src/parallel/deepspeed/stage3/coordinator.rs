//! When parameters come and go (deepspeed/runtime/zero/partitioned_param_coordinator.py): the first pass records in which order
//! modules run, all later ones gather ahead by that record.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use crate::building::ModuleKey;
use crate::job::DeepSpeed;
use crate::tensor::{Context, Scope};

use super::param::{Handle, Param, Status};
use super::record::{Record, Use};

/// `ZeRoTraceMode`
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Invalid,
    Record,
    Complete,
}

/// What `zero_optimization` says of gathering, in elements.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub prefetch_bucket_size: u64,
    pub max_live_parameters: u64,
    pub max_reuse_distance: u64,
    pub overlaps: bool,
    /// What is gathered lies on it then.
    stream: u8,
}

impl Limits {
    pub(super) const fn new(options: DeepSpeed, stream: u8) -> Self {
        let DeepSpeed { prefetch_bucket_size, max_live_parameters, max_reuse_distance, overlap_comm, .. } = options;
        Self { prefetch_bucket_size, max_live_parameters, max_reuse_distance, overlaps: overlap_comm, stream }
    }
}

/// The parameters of a module, by their places among all.
pub(super) type Own = Rc<[usize]>;

/// Parameters that go, by their places among all.
type Released = Rc<BTreeSet<usize>>;

/// `PartitionedParameterCoordinator`
pub(super) struct Coordinator {
    context: Rc<Context>,
    params: Vec<Rc<Param>>,
    limits: Limits,
    mode: Cell<Mode>,
    step: Cell<usize>,
    record: RefCell<Record>,
    queue: RefCell<VecDeque<Use>>,
    /// For each parameter, the last step that it was gathered for in this pass.
    fetched_for: RefCell<Vec<i64>>,
    /// Elements of gathered parameters; it may fall below none, as small ones stay.
    available: Cell<i64>,
    inflight: RefCell<BTreeMap<usize, Rc<Handle>>>,
    /// Modules whose backward has begun, in that order.
    in_backward: RefCell<Vec<ModuleKey>>,
    /// Frozen parameters that were gathered to compute a layer again, by the module whose end they wait for.
    recomputed: RefCell<BTreeMap<ModuleKey, BTreeSet<usize>>>,
    own: RefCell<BTreeMap<ModuleKey, Own>>,
    /// What a module lets go of at a step.
    releases: RefCell<BTreeMap<(ModuleKey, usize), Released>>,
}

impl Coordinator {
    pub(super) fn new(context: &Rc<Context>, params: Vec<Rc<Param>>, limits: Limits) -> Self {
        let fetched_for = RefCell::new(vec![i64::MIN; params.len()]);
        Self {
            context: Rc::clone(context),
            params,
            limits,
            mode: Cell::new(Mode::Invalid),
            step: Cell::new(0),
            record: RefCell::default(),
            queue: RefCell::default(),
            fetched_for,
            available: Cell::new(0),
            inflight: RefCell::default(),
            in_backward: RefCell::default(),
            recomputed: RefCell::default(),
            own: RefCell::default(),
            releases: RefCell::default(),
        }
    }

    fn is_complete(&self) -> bool {
        self.mode.get() == Mode::Complete
    }

    fn numel(&self, at: usize) -> u64 {
        self.params.get(at).map_or(0, |param| param.tensor.numel())
    }

    /// The parameters of a module that ran before.
    pub(super) fn known_own(&self, module: ModuleKey) -> Option<Own> {
        self.own.borrow().get(&module).cloned()
    }

    /// `register_external_parameter`: a module reads a parameter of another one, which it has from now on.
    pub(super) fn add_own(&self, module: ModuleKey, at: usize) {
        let own = self.own_of(module);
        let more: Own = own.iter().copied().chain([at]).collect();
        self.own.borrow_mut().insert(module, more);
    }

    fn own_of(&self, module: ModuleKey) -> Own {
        self.known_own(module).unwrap_or_default()
    }

    /// `reset_step`: a pass over the model begins.
    pub(super) fn reset_step(&self) {
        self.clean_inflight();
        match self.mode.get() {
            Mode::Record => {
                self.record.borrow_mut().close(|module| self.own_of(module), |at| self.numel(at));
                self.mode.set(Mode::Complete);
            }
            Mode::Invalid => self.mode.set(Mode::Record),
            Mode::Complete => {}
        }
        self.queue.replace(if self.is_complete() { self.record.borrow().uses() } else { VecDeque::new() });
        self.fetched_for.borrow_mut().fill(i64::MIN);
        self.step.set(0);
        self.available.set(0);
    }

    fn clean_inflight(&self) {
        let inflight = self.inflight.take();
        for (at, handle) in &inflight {
            self.wait(handle);
            self.release_param(*at);
        }
    }

    /// `trace_prologue` and `record_module`, with the module's own parameters.
    pub(super) fn begin_module(&self, module: ModuleKey, own: &Own) {
        self.own.borrow_mut().entry(module).or_insert_with(|| Rc::clone(own));
        if self.is_complete() && !self.record.borrow().has(self.step.get(), module) {
            self.mode.set(Mode::Invalid);
            self.record.take();
            self.releases.take();
            self.queue.take();
            self.fetched_for.borrow_mut().fill(i64::MIN);
            self.clean_inflight();
        }
        if self.mode.get() == Mode::Record {
            self.record.borrow_mut().push(module);
        }
    }

    /// `begin_module` of one that ran before.
    pub(super) fn begin_backward(&self, module: ModuleKey) {
        self.begin_module(module, &self.own_of(module));
    }

    /// `fetch_sub_module`
    pub(super) fn fetch(&self, module: ModuleKey, forward: bool) {
        if !forward && !self.in_backward.borrow().contains(&module) {
            self.in_backward.borrow_mut().push(module);
        }
        let own = self.own_of(module);
        self.all_gather(own.iter().copied());
        for &at in own.iter() {
            self.mark_active(module, at, forward);
            let handle = self.inflight.borrow_mut().remove(&at);
            if let Some(handle) = handle {
                self.wait(&handle);
            }
        }
        if self.is_complete() {
            self.prefetch(&own);
        }
        self.step.set(self.step.get() + 1);
    }

    fn mark_active(&self, module: ModuleKey, at: usize, forward: bool) {
        let Some(param) = self.params.get(at) else { return };
        param.active.borrow_mut().insert(module);
        let recomputes = forward && self.context.runs_backward() && !param.tensor.requires_grad();
        if let Some(owner) = self.in_backward.borrow().last().filter(|_| recomputes) {
            self.recomputed.borrow_mut().entry(*owner).or_default().insert(at);
            param.active.borrow_mut().insert(*owner);
        }
    }

    fn all_gather(&self, wanted: impl Iterator<Item = usize>) {
        let missing = |at: &usize| self.params.get(*at).is_some_and(|param| param.is(Status::NotAvailable));
        let missing: Vec<usize> = wanted.filter(missing).collect();
        if missing.is_empty() {
            return;
        }
        let numel: u64 = missing.iter().map(|&at| self.numel(at)).sum();
        self.available.set(self.available.get().saturating_add_unsigned(numel));
        let params = missing.iter().filter_map(|&at| self.params.get(at).cloned()).collect();
        let handle = {
            let _stream = self.enter_stream();
            Handle::all_gather(params)
        };
        self.inflight.borrow_mut().extend(missing.into_iter().map(|at| (at, Rc::clone(&handle))));
    }

    fn enter_stream(&self) -> Option<Scope<'_, u8>> {
        self.limits.overlaps.then(|| self.context.enter_stream(self.limits.stream))
    }

    fn wait(&self, handle: &Handle) {
        let _stream = self.enter_stream();
        handle.wait();
    }

    /// What the module needs leaves the queue; then as much is asked for as the bucket takes.
    fn prefetch(&self, own: &Own) {
        let step = self.step.get() as i64;
        let mut queue = self.queue.borrow_mut();
        let mut fetched_for = self.fetched_for.borrow_mut();
        let not_yet = own.iter().filter(|&&at| fetched_for.get(at).is_some_and(|for_step| *for_step < step)).count();
        let mut left_queue = BTreeSet::new();
        while left_queue.len() < not_yet
            && let Some(next) = queue.pop_front()
        {
            left_queue.insert(next.param);
            fetched_for[next.param] = next.step as i64;
        }
        let bucket = i64::try_from(self.limits.prefetch_bucket_size).unwrap_or(i64::MAX);
        let room = i64::try_from(self.limits.max_live_parameters).unwrap_or(i64::MAX) - self.available.get();
        let (mut wanted, mut numel) = (BTreeSet::new(), 0_i64);
        while bucket > 0
            && numel < room.min(bucket)
            && let Some(next) = queue.pop_front()
        {
            fetched_for[next.param] = fetched_for[next.param].max(next.step as i64);
            let is_missing = self.params.get(next.param).is_some_and(|param| param.is(Status::NotAvailable));
            if is_missing && wanted.insert(next.param) {
                numel = numel.saturating_add_unsigned(self.numel(next.param));
            }
        }
        drop((queue, fetched_for));
        self.all_gather(wanted.into_iter());
    }

    /// `release_sub_module`
    pub(super) fn release(&self, module: ModuleKey, forward: bool) {
        let own = self.own_of(module);
        let mut released: BTreeSet<usize> = if self.is_complete() {
            self.releasable(module, &own).as_ref().clone()
        } else {
            own.iter().copied().collect()
        };
        let mut of_module: BTreeSet<usize> = own.iter().copied().collect();
        if !forward {
            let recomputed = self.recomputed.borrow_mut().remove(&module).unwrap_or_default();
            released.extend(recomputed.iter().filter(|&&at| !self.persists(at)));
            of_module.extend(recomputed);
            self.in_backward.borrow_mut().retain(|begun| *begun != module);
        }
        for at in of_module {
            self.leave(module, at);
            if released.contains(&at) {
                self.release_param(at);
            }
        }
    }

    fn persists(&self, at: usize) -> bool {
        self.params.get(at).is_some_and(|param| param.persists)
    }

    fn leave(&self, module: ModuleKey, at: usize) {
        if let Some(param) = self.params.get(at) {
            param.active.borrow_mut().remove(&module);
        }
    }

    /// `__params_to_release`, which is found once for a module and a step.
    fn releasable(&self, module: ModuleKey, own: &Own) -> Released {
        let step = self.step.get();
        let known = self.releases.borrow().get(&(module, step)).cloned();
        known.unwrap_or_else(|| {
            let (record, fetched_for) = (self.record.borrow(), self.fetched_for.borrow());
            let goes = |at: &usize| {
                let is_ahead = fetched_for.get(*at).is_some_and(|for_step| *for_step > step as i64);
                !self.persists(*at) && !is_ahead && !record.reuses(*at, step, self.limits.max_reuse_distance)
            };
            let found = Rc::new(own.iter().copied().filter(goes).collect::<BTreeSet<_>>());
            self.releases.borrow_mut().insert((module, step), Rc::clone(&found));
            found
        })
    }

    fn release_param(&self, at: usize) {
        let Some(param) = self.params.get(at) else { return };
        if param.is(Status::Available) && param.active.borrow().is_empty() {
            param.release();
            self.available.set(self.available.get().saturating_sub_unsigned(param.tensor.numel()));
        }
    }

    /// `release_backward_leftovers`: modules whose input asks for no gradient never end.
    pub(super) fn release_leftovers(&self) {
        while let Some(module) = self.in_backward.borrow_mut().pop() {
            let mut of_module: BTreeSet<usize> = self.own_of(module).iter().copied().collect();
            of_module.extend(self.recomputed.borrow_mut().remove(&module).unwrap_or_default());
            for at in of_module {
                self.leave(module, at);
                if !self.persists(at) {
                    self.release_param(at);
                }
            }
        }
    }

    /// `release_and_reset_all`
    pub(super) fn release_all(&self) {
        for (at, param) in self.params.iter().enumerate() {
            let handle = self.inflight.borrow_mut().remove(&at);
            if let Some(handle) = handle {
                self.wait(&handle);
            }
            param.active.borrow_mut().clear();
            self.release_param(at);
        }
    }
}
