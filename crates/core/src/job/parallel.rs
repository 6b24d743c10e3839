//! How a job is spread over ranks: the wrapper round the model, and what it is told. One rank's process is simulated.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::host::HostKind;
use crate::tensor::Ring;

/// Ranks, and what they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parallel {
    /// Number of ranks, one GPU each.
    pub world_size: u64,
    /// The rank whose GPU is simulated, from 0; of `DataParallel`, whose one process has every GPU, the GPU.
    pub rank: u64,
    /// What is spread.
    pub strategy: Strategy,
}

impl Parallel {
    /// Ranks that train on rows of their own; those that share a layer or the layers share the rows too.
    pub const fn replicas(&self) -> u64 {
        match self.strategy {
            Strategy::TensorParallel { .. } => 1,
            Strategy::PipelineParallel { replicas, .. } => StageReplicas::count_ranks(replicas),
            _ => match self.ring() {
                Some(ring) => self.world_size / ring.ranks,
                None => self.world_size,
            },
        }
    }
}

impl Parallel {
    /// How many ranks have a part of each layer that transformers' plan divides.
    pub const fn ranks_of_layers(&self) -> Option<u64> {
        match self.strategy {
            Strategy::TensorParallel { size, plan: TensorPlan::Transformers } if size > 1 => Some(size),
            _ => None,
        }
    }

    /// Ranks that share the tokens of each row with this one.
    pub const fn ring(&self) -> Option<Ring> {
        match self.strategy {
            Strategy::Fsdp2(Fsdp2 { token_ranks, .. }) if token_ranks > 1 => {
                Some(Ring { ranks: token_ranks, rank: self.rank % token_ranks })
            }
            _ => None,
        }
    }

    /// Ranks that the stages of one pipeline lie over, and the place of this one among them: ranks that have the same stage are next to
    /// each other.
    pub const fn place_in_pipeline(&self) -> (u64, u64) {
        let replicas = match self.strategy {
            Strategy::PipelineParallel { replicas, .. } => StageReplicas::count_ranks(replicas),
            _ => 1,
        };
        (self.world_size / replicas, self.rank / replicas)
    }

    /// What each stage of a pipeline is wrapped in, where several ranks have it.
    pub const fn stage_replicas(&self) -> Option<StageReplicas> {
        match self.strategy {
            Strategy::PipelineParallel { replicas, .. } => replicas,
            _ => None,
        }
    }

    /// The stages of a pipeline that this rank has, in the order of their layers.
    pub fn stages_of_rank(&self) -> impl Iterator<Item = u64> {
        let stages = match self.strategy {
            Strategy::PipelineParallel { stages, .. } => stages,
            _ => 0,
        };
        let (ranks, rank) = self.place_in_pipeline();
        (rank..stages).step_by(usize::try_from(ranks.max(1)).unwrap_or(usize::MAX))
    }

    /// Ranks that FSDP shards a model over, all but with HSDP and of a pipeline's stages, and the place of this one among them.
    pub const fn sharding_group(&self) -> (u64, u64) {
        if let Some(StageReplicas { ranks, .. }) = self.stage_replicas() {
            return (ranks, self.rank % ranks);
        }
        let replicate_size = match self.strategy {
            Strategy::Fsdp1(Fsdp1 { replicate_size, .. }) | Strategy::Fsdp2(Fsdp2 { replicate_size, .. }) => {
                replicate_size
            }
            _ => 1,
        };
        let shards = match self.world_size.checked_div(replicate_size) {
            Some(shards) if shards > 0 => shards,
            _ => 1,
        };
        (shards, self.rank % shards)
    }

    /// Whether models that a trainer does not train are sharded too, or engines: accelerate's autocast is round none of them.
    pub(crate) const fn shards_frozen_models(&self) -> bool {
        matches!(self.strategy, Strategy::Fsdp1(_) | Strategy::Fsdp2(_) | Strategy::DeepSpeed(_))
    }

    /// Whether the optimizer's step is taken on the host.
    pub const fn steps_on_host(&self) -> bool {
        match self.strategy {
            Strategy::Fsdp1(Fsdp1 { cpu_offload, .. }) => cpu_offload,
            Strategy::Fsdp2(Fsdp2 { cpu_offload, .. }) => cpu_offload.is_some(),
            Strategy::DeepSpeed(DeepSpeed { offload_optimizer, .. }) => offload_optimizer.is_some(),
            _ => false,
        }
    }
}

impl Default for Parallel {
    fn default() -> Self {
        Self { world_size: 1, rank: 0, strategy: Strategy::None }
    }
}

/// What is spread over the ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// One rank, or ranks that share nothing.
    None,
    /// `torch.nn.DataParallel`: one process, replicas on every GPU.
    DataParallel,
    /// No wrapper: the loop itself all-reduces each gradient, as HRM's `pretrain.py` does.
    AllReduce,
    /// `DistributedDataParallel`.
    Ddp(Ddp),
    /// `ZeroRedundancyOptimizer`, round a model in DDP or round a plain one.
    Zero1 {
        /// DDP round the model.
        ddp: Option<Ddp>,
        /// `parameters_as_bucket_view`
        parameters_as_bucket_view: bool,
    },
    /// `FullyShardedDataParallel` (FSDP1) round every layer and the model.
    Fsdp1(Fsdp1),
    /// `fully_shard` (FSDP2) on every layer and on the model.
    Fsdp2(Fsdp2),
    /// DeepSpeed's ZeRO, version 0.19.
    DeepSpeed(DeepSpeed),
    /// Tensor parallelism: heads and inner widths divided.
    TensorParallel {
        /// Ranks that share a layer.
        size: u64,
        /// What else is divided, and how the ranks' parts meet.
        plan: TensorPlan,
    },
    /// A stage of the layers on each rank; micro-batches are the passes of gradient accumulation.
    PipelineParallel {
        /// How many stages, as many on each rank; with one on each the rank is the stage.
        stages: u64,
        /// In what order a stage runs forward and backward passes.
        schedule: Schedule,
        /// The ranks that have the same stages as this one, if there are more than it.
        replicas: Option<StageReplicas>,
    },
}

/// Ranks that have the same stages of a pipeline and train on rows of their own: the second dimension of a mesh whose first is the pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageReplicas {
    /// How many, 2 or more.
    pub ranks: u64,
    /// What is round each stage.
    pub wrapper: StageWrapper,
}

impl StageReplicas {
    /// The dtype that sharded stages compute in, where a policy says it.
    pub(crate) const fn param_dtype(&self) -> Option<DType> {
        match self.wrapper {
            StageWrapper::Fsdp2(policy) => policy.param_dtype,
            StageWrapper::Ddp(_) => None,
        }
    }

    const fn count_ranks(replicas: Option<Self>) -> u64 {
        match replicas {
            Some(Self { ranks, .. }) if ranks > 1 => ranks,
            _ => 1,
        }
    }
}

/// What spreads a stage of a pipeline over ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StageWrapper {
    /// `DistributedDataParallel`.
    Ddp(Ddp),
    /// `fully_shard` on every layer and on the stage.
    Fsdp2(Fsdp2),
}

/// Whose tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorPlan {
    /// Megatron-LM's: the vocabulary is divided too, and logits stay so in the loss.
    Megatron,
    /// transformers' `tp_plan` over DTensors: embedding and logits are whole on every rank.
    Transformers,
}

/// The order of a pipeline's passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward pass, one backward pass, once the pipeline is full.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// The same with several stages on each rank, as many ranks apart.
    #[serde(rename = "interleaved_1f1b")]
    Interleaved,
}

/// Arguments of `DistributedDataParallel`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ddp {
    /// Size of a gradient bucket, in MiB; `None` is PyTorch's 25 with a first bucket of 1.
    pub bucket_cap_mb: Option<u64>,
    /// Whether gradients are views of the buckets.
    pub gradient_as_bucket_view: bool,
    /// Whether the graph never changes.
    pub static_graph: bool,
    /// Whether each pass looks for parameters that no loss depends on, as the Trainer asks for.
    pub find_unused_parameters: bool,
}

impl Default for Ddp {
    /// As `DistributedDataParallel` is called without options.
    fn default() -> Self {
        Self { bucket_cap_mb: None, gradient_as_bucket_view: false, static_graph: false, find_unused_parameters: false }
    }
}

/// What DeepSpeed's `zero_optimization` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeepSpeed {
    /// 1: optimizer state is divided, 2: gradients too, 3: weights too.
    pub stage: u8,
    /// Elements of the buffer that gradients are reduced from.
    pub reduce_bucket_size: u64,
    /// Whether gradients are reduced while backward runs, of stages 1 and 2 from two buffers; stage 3 gathers on a stream of its own too.
    pub overlap_comm: bool,
    /// Stage 3: elements that are gathered ahead at once.
    pub prefetch_bucket_size: u64,
    /// Stage 3: parameters of no more elements stay whole.
    pub param_persistence_threshold: u64,
    /// Stage 3: elements beyond which nothing is gathered ahead.
    pub max_live_parameters: u64,
    /// Stage 3: a parameter stays that is used again before so many elements.
    pub max_reuse_distance: u64,
    /// Stage 3: elements of a rank's parameters that are stepped at once.
    pub sub_group_size: u64,
    /// `offload_optimizer` to the CPU, and how the host holds it.
    pub offload_optimizer: Option<HostKind>,
    /// Stage 3: `offload_param` to the CPU, and how the host holds what is not trained; what is trained is pinned.
    pub offload_param: Option<HostKind>,
}

impl DeepSpeed {
    /// Elements of `reduce_bucket_size` where nothing says it (0.19, runtime/zero/config.py).
    pub const REDUCE_BUCKET_SIZE: u64 = 500_000_000;
    /// `stage3_prefetch_bucket_size`, likewise.
    pub const PREFETCH_BUCKET_SIZE: u64 = 50_000_000;
    /// `stage3_param_persistence_threshold`, likewise.
    pub const PARAM_PERSISTENCE_THRESHOLD: u64 = 100_000;
    /// `stage3_max_live_parameters`, likewise.
    pub const MAX_LIVE_PARAMETERS: u64 = 1_000_000_000;
    /// `stage3_max_reuse_distance`, likewise.
    pub const MAX_REUSE_DISTANCE: u64 = 1_000_000_000;
    /// `sub_group_size`, likewise.
    pub const SUB_GROUP_SIZE: u64 = 1_000_000_000;

    /// A stage with what the Trainer makes of `auto` for a model of this hidden size (transformers 5.17, integrations/deepspeed.py).
    pub(crate) fn auto(stage: u8, width: u64) -> Self {
        let squared = width.saturating_mul(width);
        Self {
            reduce_bucket_size: squared,
            prefetch_bucket_size: (squared as f64 * 0.9) as u64,
            param_persistence_threshold: width.saturating_mul(10),
            ..Self::stage(stage)
        }
    }

    /// A stage as DeepSpeed runs it without further settings.
    pub const fn stage(stage: u8) -> Self {
        Self {
            stage,
            reduce_bucket_size: Self::REDUCE_BUCKET_SIZE,
            overlap_comm: stage == 3,
            prefetch_bucket_size: Self::PREFETCH_BUCKET_SIZE,
            param_persistence_threshold: Self::PARAM_PERSISTENCE_THRESHOLD,
            max_live_parameters: Self::MAX_LIVE_PARAMETERS,
            max_reuse_distance: Self::MAX_REUSE_DISTANCE,
            sub_group_size: Self::SUB_GROUP_SIZE,
            offload_optimizer: None,
            offload_param: None,
        }
    }
}

/// Arguments of `FullyShardedDataParallel`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fsdp1 {
    /// `MixedPrecision(param_dtype=...)`: the dtype of gathered parameters; `None` is the shards' own.
    pub param_dtype: Option<DType>,
    /// `MixedPrecision(reduce_dtype=...)`; `None` is that of gathered parameters.
    pub reduce_dtype: Option<DType>,
    /// `MixedPrecision(buffer_dtype=...)`; `None` leaves each buffer its own.
    pub buffer_dtype: Option<DType>,
    /// `FULL_SHARD`, whose layers give their gathered parameters back after forward; else `SHARD_GRAD_OP`.
    pub reshard_after_forward: bool,
    /// `HYBRID_SHARD`: groups of ranks that hold a sharded model each, whose gradients are all-reduced; 1 without.
    pub replicate_size: u64,
    /// Whether the optimizer steps the model's own parameters, as far as they lie in the rank's shard.
    pub use_orig_params: bool,
    /// When backward gathers the parameters of the layer that it comes to next.
    pub backward_prefetch: BackwardPrefetch,
    /// One flat parameter for the whole model instead of one a layer.
    pub shard_root_only: bool,
    /// Whether each layer's parameters are broadcast from the first rank before they are sharded.
    pub sync_module_states: bool,
    /// Where the model is before it is wrapped.
    pub init: FlatInit,
    /// `CPUOffload(offload_params=True)`: pinned shards and gradients on the host; states lie beside them.
    pub cpu_offload: bool,
}

/// When FSDP1's backward pass gathers the parameters of the layer before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackwardPrefetch {
    /// `BACKWARD_PRE`: before the gradients of this layer are computed.
    Pre,
    /// `BACKWARD_POST`: after that, and after its own parameters have gone.
    Post,
    /// Not before it comes to that layer.
    None,
}

/// Where a model is when `FullyShardedDataParallel` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlatInit {
    /// On the host: each layer comes to the device when it is wrapped (`device_id`).
    Host,
    /// On the device, in full.
    Device,
}

impl From<FlatInit> for ShardInit {
    fn from(init: FlatInit) -> Self {
        match init {
            FlatInit::Host => Self::Meta,
            FlatInit::Device => Self::Full,
        }
    }
}

/// Arguments of `fully_shard`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fsdp2 {
    /// `MixedPrecisionPolicy(param_dtype=...)`: the dtype of gathered parameters; `None` is the shards' own.
    pub param_dtype: Option<DType>,
    /// `MixedPrecisionPolicy(reduce_dtype=...)`; `None` is the gradients' own.
    pub reduce_dtype: Option<DType>,
    /// Whether layers give their gathered parameters back after forward.
    pub reshard_after_forward: bool,
    /// The first dimension of a 2-D mesh: groups of ranks that hold a sharded model each, whose gradients are all-reduced; 1 without.
    pub replicate_size: u64,
    /// Context parallelism: ranks that share the tokens of each row, which are next to each other; 1 without.
    pub token_ranks: u64,
    /// One group for the whole model instead of one a layer.
    pub shard_root_only: bool,
    /// When the parameters get memory.
    pub init: ShardInit,
    /// `CPUOffloadPolicy`: how the host holds shards and gradients; states lie beside them.
    pub cpu_offload: Option<HostKind>,
}

/// When a sharded model's parameters get memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardInit {
    /// Sharded on the meta device, materialised after.
    Meta,
    /// Materialised in full, sharded after.
    Full,
}
