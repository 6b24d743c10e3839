//! The trace of a job: every device allocation and free in program order, with where each came from.
//!
//! `step` writes it, `alloc` and `estimate` read it.

mod growing;
mod lasting;
mod live;

pub use growing::{Growing, LAST_TOKENS, Stride, leap_factor, will_be_unbounded};

use serde::{Deserialize, Serialize};

/// What an allocation holds; the names follow the PyTorch profiler's categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A weight, trained or frozen.
    Parameter,
    /// A registered buffer that is no parameter (rotary frequencies, position ids).
    Buffer,
    /// A gradient that ends in `.grad`.
    Gradient,
    /// What the optimizer keeps between steps.
    OptimizerState,
    /// Saved by the forward pass and still alive when backward begins.
    Activation,
    /// A half-precision copy of a weight that autocast made.
    WeightCast,
    /// Made again in backward by gradient checkpointing.
    Recompute,
    /// The batch: tokens, labels, masks.
    Input,
    /// Keys and values kept between generated tokens.
    KvCache,
    /// Lives inside one operator and is not its result.
    OpInternal,
    /// cuBLAS and cuBLASLt workspaces, kept for the life of the process.
    Workspace,
    /// Buckets, gathered parameters and buffers of collectives.
    Communication,
    /// Any other tensor.
    Temporary,
}

impl Category {
    /// All categories, each at the index `category as usize`.
    pub const ALL: [Self; 13] = [
        Self::Parameter,
        Self::Buffer,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::WeightCast,
        Self::Recompute,
        Self::Input,
        Self::KvCache,
        Self::OpInternal,
        Self::Workspace,
        Self::Communication,
        Self::Temporary,
    ];

    /// The name in figures and files (`optimizer_state`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer_state",
            Self::Activation => "activation",
            Self::WeightCast => "weight_cast",
            Self::Recompute => "recompute",
            Self::Input => "input",
            Self::KvCache => "kv_cache",
            Self::OpInternal => "op_internal",
            Self::Workspace => "workspace",
            Self::Communication => "communication",
            Self::Temporary => "temporary",
        }
    }
}

/// Index of an allocation in [`Trace::allocations`]; unique over the whole trace.
pub type AllocationId = u32;

/// One allocation: how much, and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Requested bytes, before any rounding; never 0.
    pub bytes: u64,
    /// Index into [`Trace::origins`].
    pub origin: u16,
    /// Index into [`Trace::modules`].
    pub module: u32,
    /// Index into [`Trace::phases`].
    pub phase: u32,
    /// What it holds.
    pub category: Category,
    /// The CUDA stream whose pool it comes from; 0 is the one that kernels run on.
    pub stream: u8,
    /// The place, from 1, of its size in a simulation's `other_sizes`; 0 where every device that was
    /// asked about needs as much.
    pub other_size: u32,
}

impl Allocation {
    /// A temporary of which only the size matters.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { bytes, origin: 0, module: 0, phase: 0, category: Category::Temporary, stream: 0, other_size: 0 }
    }
}

/// What asked for memory. Allocations are many and origins few, so that they refer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The operator, under its aten name (`addmm.default`).
    pub op: &'static str,
    /// The autograd node that ran it in backward (`AddmmBackward0`).
    pub node: Option<&'static str>,
}

/// One entry of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The allocation is requested.
    Alloc(AllocationId),
    /// The allocation is released.
    Free(AllocationId),
    /// The phase (index into [`Trace::phases`]) begins.
    Phase(u32),
    /// `torch.cuda.empty_cache()`
    EmptyCache,
    /// The stretch of events that begins after this one (index into [`Trace::repeats`]) happens several times.
    Repeat(u32),
    /// Before the stretch of events that begins after this one (index into [`Trace::growing`]) the same happens with sizes
    /// that grow towards those recorded.
    Growing(u32),
}

/// A stretch of events that frees all it allocates, and nothing else; it is recorded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Index of the event after its last.
    pub until: usize,
    /// How often it happens.
    pub times: u64,
}

/// What a phase is called in the reference measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// Weights move to the device.
    Load,
    /// The batch moves to the device.
    Input,
    /// The model's forward pass up to the loss.
    Forward,
    /// Inside the loss function.
    Loss,
    /// From the loss to the start of backward.
    ForwardTail,
    /// The backward pass.
    Backward,
    /// Unscaling and gradient clipping.
    Clip,
    /// The optimizer step.
    Optimizer,
    /// `zero_grad`.
    ZeroGrad,
    /// Prefill and decoding of `generate`.
    Generate,
    /// A wrapper (DDP, FSDP2) is put round the model.
    Wrap,
    /// Completions are scored.
    Reward,
    /// Log-probabilities without gradients, of the old policy and the reference.
    Logps,
    /// The rest of generating and scoring a batch.
    Prepare,
    /// The step of the optimizer of sparse embeddings.
    EmbOptimizer,
    /// What the trainer does between steps.
    Between,
    /// After the last step.
    End,
}

impl PhaseKind {
    /// The name in figures and reference files (`forward_tail`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::ForwardTail => "forward_tail",
            Self::Backward => "backward",
            Self::Clip => "clip",
            Self::Optimizer => "optimizer",
            Self::ZeroGrad => "zero_grad",
            Self::Generate => "generate",
            Self::Wrap => "wrap",
            Self::Reward => "reward",
            Self::Logps => "logps",
            Self::Prepare => "prepare",
            Self::EmbOptimizer => "emb_optimizer",
            Self::Between => "between",
            Self::End => "end",
        }
    }
}

/// A stretch of the job between two boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What happens in it.
    pub kind: PhaseKind,
    /// The optimizer step it belongs to, from 1; 0 for loading.
    pub step: u32,
}

impl Phase {
    /// `2:backward`, the label of the reference measurements.
    pub fn label(&self) -> String {
        format!("{}:{}", self.step, self.kind.name())
    }
}

/// The models beside the policy, each the first component of its modules' paths.
pub const SECOND_MODELS: [&str; 2] = ["reference", "judge"];

/// Every allocation and free of a job, in program order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Allocations by id.
    pub allocations: Vec<Allocation>,
    /// What asked for memory, in the order in which each first did.
    pub origins: Vec<Origin>,
    /// Module paths (`transformer.h.0.attn`); index 0 is the empty path.
    pub modules: Vec<String>,
    /// Phases in order of their first event; a label may occur again (gradient accumulation).
    pub phases: Vec<Phase>,
    /// Stretches that happen several times.
    pub repeats: Vec<Repeat>,
    /// Stretches that happen several times with growing sizes.
    pub growing: Vec<Growing>,
}

impl Trace {
    /// Every event as it happens, repeated stretches as often as they do; and the allocations they then name.
    pub fn unrolled(&self) -> Self {
        match self.growing.is_empty() {
            true => self.repeated(),
            false => self.grown().repeated(),
        }
    }

    /// Every repeated stretch as often as it happens.
    fn repeated(&self) -> Self {
        let mut trace = Self { events: Vec::new(), repeats: Vec::new(), ..self.clone() };
        let mut index = 0;
        while let Some(event) = self.events.get(index) {
            index += 1;
            match event {
                Event::Repeat(at) => {
                    let Some(repeat) = self.repeats.get(*at as usize) else { continue };
                    let stretch = self.events.get(index..repeat.until).unwrap_or_default();
                    (1..repeat.times).for_each(|_| trace.append_again(stretch));
                }
                event => trace.events.push(*event),
            }
        }
        trace
    }

    /// Appends the stretch again, its allocations under new ids; what it leaves alive is left out.
    pub fn append_again(&mut self, stretch: &[Event]) {
        let allocated = |event: &Event| if let Event::Alloc(id) = event { Some(*id) } else { None };
        let Some(first) = stretch.iter().find_map(allocated) else { return };
        let mut again: Vec<Option<AllocationId>> = vec![None; self.allocations.len().saturating_sub(first as usize)];
        let at = |id: AllocationId| id.wrapping_sub(first) as usize;
        for event in stretch {
            if let Event::Free(id) = event
                && let Some(freed) = again.get_mut(at(*id))
            {
                *freed = Some(AllocationId::MAX);
            }
        }
        for event in stretch {
            match *event {
                Event::Alloc(id) => {
                    if let (Some(Some(new)), Some(allocation)) =
                        (again.get_mut(at(id)), self.allocations.get(id as usize))
                    {
                        *new = self.allocations.len() as AllocationId;
                        let allocation = *allocation;
                        self.allocations.push(allocation);
                        self.events.push(Event::Alloc(self.allocations.len() as AllocationId - 1));
                    }
                }
                Event::Free(id) => self.events.extend(again.get(at(id)).copied().flatten().map(Event::Free)),
                other => self.events.push(other),
            }
        }
    }

    /// What asked for an allocation.
    pub fn origin(&self, allocation: &Allocation) -> Origin {
        self.origins.get(allocation.origin as usize).copied().unwrap_or(Origin { op: "", node: None })
    }

    /// The module path of an allocation, empty outside any module.
    pub fn module(&self, allocation: &Allocation) -> &str {
        self.modules.get(allocation.module as usize).map_or("", String::as_str)
    }

    /// The model an allocation belongs to: one of [`SECOND_MODELS`], or the policy for all else that has a module.
    pub fn model(&self, allocation: &Allocation) -> Option<&'static str> {
        let module = self.module(allocation);
        let first = module.split('.').next().filter(|first| !first.is_empty())?;
        Some(SECOND_MODELS.into_iter().find(|name| *name == first).unwrap_or("policy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_stand_at_their_index_and_serialize_to_their_name() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
            assert_eq!(serde_json::to_value(category).unwrap(), category.name());
        }
    }
}
