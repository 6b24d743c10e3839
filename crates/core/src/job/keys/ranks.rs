//! Keys of jobs on several GPUs: how many ranks, what is spread over them, and what the wrapper is told.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const STRATEGIES: Kind = Kind::Choice(&[
    ("none", "no wrapper"),
    ("data_parallel", "torch.nn.DataParallel: one process, replicas on every GPU"),
    ("all_reduce", "no wrapper: the loop all-reduces each gradient itself, as HRM's does"),
    ("ddp", "DistributedDataParallel"),
    ("zero1", "ZeroRedundancyOptimizer: optimizer state over the ranks"),
    ("fsdp1", "FullyShardedDataParallel: flat parameters, gradients and state over the ranks"),
    ("fsdp2", "fully_shard: parameters, gradients and state over the ranks"),
    ("deepspeed", "DeepSpeed's ZeRO, by stage (not measured)"),
    ("tensor", "tensor parallelism: heads and inner widths over the ranks, by tensor.plan"),
    ("pipeline", "layers over the ranks in stages, as torch.distributed.pipelining runs them"),
]);
const DTYPES: Kind = Kind::Choice(&[("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]);
pub(super) const SCHEDULES: Kind = Kind::Choice(&[
    ("1f1b", "one forward pass, one backward pass, once the pipeline is full"),
    ("gpipe", "all forward passes, then all backward passes"),
    ("interleaved_1f1b", "1f1b with several stages on each rank"),
]);
const STAGE_WRAPPERS: Kind = Kind::Choice(&[
    ("ddp", "DistributedDataParallel round each stage"),
    ("fsdp2", "fully_shard on every layer and on the stage"),
]);
const TENSOR_PLANS: Kind = Kind::Choice(&[
    (names::TRANSFORMERS, "tp_plan of transformers: embedding and logits whole on every rank"),
    ("megatron", "Megatron's: vocabulary and logits divided too (not measured)"),
]);
pub(super) const INITS: Kind = Kind::Choice(&[
    ("meta", "sharded on the meta device, materialised after"),
    ("full", "materialised in full, sharded after"),
]);

const SHARDING_STRATEGIES: Kind = Kind::Choice(&[
    ("full_shard", "layers give their gathered parameters back after forward"),
    ("shard_grad_op", "layers keep them until their gradients are there"),
]);
const PREFETCHES: Kind = Kind::Choice(&[
    ("pre", "BACKWARD_PRE: before a layer's gradients are computed"),
    ("post", "BACKWARD_POST: after that"),
    ("none", "not before backward comes to the layer"),
]);
const FLAT_INITS: Kind = Kind::Choice(&[
    ("host", "on the host: each layer comes to the GPU when it is wrapped (device_id)"),
    ("device", "on the GPU, in full"),
]);

pub(super) const KEYS: [Key; 45] = [
    Key {
        name: names::WORLD_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "one process"),
        doc: "ranks, one GPU each",
        example: "8",
    },
    Key {
        name: names::PARALLEL,
        kind: STRATEGIES,
        default: Default::Rule("ddp when there is more than one rank (all_reduce for HRM), else none"),
        doc: "what is spread over the ranks",
        example: "\"fsdp2\"",
    },
    Key {
        name: names::GLOBAL_BATCH_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 40 },
        default: Default::Rule("micro_batch_size x gradient_accumulation_steps x world_size"),
        doc: "rows per optimizer step over all ranks; sets the accumulation where that is left out",
        example: "256",
    },
    Key {
        name: names::DDP_BUCKET_CAP_MB,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Rule("PyTorch's: 25, the first bucket 1"),
        doc: "size of a gradient bucket, in MiB",
        example: "25",
    },
    Key {
        name: names::DDP_GRADIENT_AS_BUCKET_VIEW,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "gradients are views of the buckets",
        example: "true",
    },
    Key {
        name: names::DDP_STATIC_GRAPH,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "the graph never changes",
        example: "true",
    },
    Key {
        name: names::DDP_FIND_UNUSED_PARAMETERS,
        kind: Kind::Switch,
        default: Default::Rule(
            "the Trainer's: true without gradient checkpointing and with adapters; else PyTorch's false",
        ),
        doc: "each pass looks for parameters that no loss depends on: buckets stay in the parameters' order, outputs are copied",
        example: "false",
    },
    Key {
        name: names::ZERO1_DDP,
        kind: Kind::Switch,
        default: Default::Fixed("true", "the optimizer averages no gradients itself"),
        doc: "the model is in DDP too",
        example: "false",
    },
    Key {
        name: names::ZERO1_PARAMETERS_AS_BUCKET_VIEW,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "parameters are views of the buckets they are broadcast in",
        example: "true",
    },
    Key {
        name: names::FSDP1_PARAM_DTYPE,
        kind: DTYPES,
        default: Default::Rule("the weights' own"),
        doc: "MixedPrecision(param_dtype=..., buffer_dtype=...): dtype of gathered parameters, and of buffers as accelerate has it",
        example: "\"bf16\"",
    },
    Key {
        name: names::FSDP1_REDUCE_DTYPE,
        kind: DTYPES,
        default: Default::Rule("that of gathered parameters"),
        doc: "MixedPrecision(reduce_dtype=...): dtype of reduced gradients",
        example: "\"fp32\"",
    },
    Key {
        name: names::FSDP1_SHARDING_STRATEGY,
        kind: SHARDING_STRATEGIES,
        default: Default::Fixed("\"full_shard\"", "PyTorch's default"),
        doc: "ShardingStrategy: how long gathered parameters stay",
        example: "\"shard_grad_op\"",
    },
    Key {
        name: names::FSDP1_REPLICATE_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "PyTorch's default: every rank holds another shard"),
        doc: "HYBRID_SHARD: groups of ranks, often nodes, that each shard a model of their own; gradients are all-reduced between them",
        example: "2",
    },
    Key {
        name: names::FSDP1_USE_ORIG_PARAMS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "the optimizer steps the model's own parameters, as far as they lie in a rank's shard",
        example: "true",
    },
    Key {
        name: names::FSDP1_BACKWARD_PREFETCH,
        kind: PREFETCHES,
        default: Default::Fixed("\"pre\"", "PyTorch's default"),
        doc: "BackwardPrefetch: when the parameters of the layer before are gathered",
        example: "\"none\"",
    },
    Key {
        name: names::FSDP1_SHARD_ROOT_ONLY,
        kind: Kind::Switch,
        default: Default::Fixed("false", "layers are wrapped one by one, as all recipes do"),
        doc: "one flat parameter for the whole model",
        example: "true",
    },
    Key {
        name: names::FSDP1_SYNC_MODULE_STATES,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "each layer is broadcast from the first rank before it is sharded",
        example: "true",
    },
    Key {
        name: names::FSDP1_INIT,
        kind: FLAT_INITS,
        default: Default::Rule("host, what accelerate does; device with quantization, which packs weights there"),
        doc: "where the model is before it is wrapped",
        example: "\"device\"",
    },
    Key {
        name: names::FSDP1_CPU_OFFLOAD,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "CPUOffload(offload_params=True): shards, their gradients and the optimizer's states lie on the host, where the step is taken",
        example: "true",
    },
    Key {
        name: names::FSDP2_PARAM_DTYPE,
        kind: DTYPES,
        default: Default::Rule("the weights' own"),
        doc: "MixedPrecisionPolicy(param_dtype=...): dtype of gathered parameters",
        example: "\"bf16\"",
    },
    Key {
        name: names::FSDP2_REDUCE_DTYPE,
        kind: DTYPES,
        default: Default::Rule("the gradients' own"),
        doc: "MixedPrecisionPolicy(reduce_dtype=...): dtype of reduced gradients",
        example: "\"fp32\"",
    },
    Key {
        name: names::FSDP2_RESHARD_AFTER_FORWARD,
        kind: Kind::Switch,
        default: Default::Fixed("true", "PyTorch's default"),
        doc: "layers give their gathered parameters back after forward",
        example: "false",
    },
    Key {
        name: names::FSDP2_REPLICATE_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "a mesh of one dimension: every rank holds another shard"),
        doc: "HSDP, a mesh of (replicate, shard): groups of ranks that each shard a model of their own; gradients are all-reduced between them",
        example: "2",
    },
    Key {
        name: names::FSDP2_CONTEXT_PARALLEL_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "every rank has rows of its own"),
        doc: "ranks that share the tokens of each row (context_parallel's ring attention); they shard the model with the others",
        example: "2",
    },
    Key {
        name: names::FSDP2_SHARD_ROOT_ONLY,
        kind: Kind::Switch,
        default: Default::Fixed("false", "layers are wrapped one by one, as all recipes do"),
        doc: "one group for the whole model",
        example: "true",
    },
    Key {
        name: names::FSDP2_INIT,
        kind: INITS,
        default: Default::Rule(
            "meta, what large models need; full with quantization, which packs weights on the device",
        ),
        doc: "when the parameters get memory",
        example: "\"full\"",
    },
    Key {
        name: names::FSDP2_CPU_OFFLOAD,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "CPUOffloadPolicy: shards, their gradients and the optimizer's states lie on the host, where the step is taken",
        example: "true",
    },
    Key {
        name: names::FSDP2_CPU_OFFLOAD_PIN_MEMORY,
        kind: Kind::Switch,
        default: Default::Fixed("true", "PyTorch's default"),
        doc: "CPUOffloadPolicy(pin_memory=...): shards and gradients are page-locked, in blocks of powers of two",
        example: "false",
    },
    Key {
        name: names::DEEPSPEED_STAGE,
        kind: Kind::Size { min: 1, max: 3 },
        default: Default::Fixed("2", "the stage most recipes use"),
        doc: "ZeRO's stage: 1 divides optimizer state, 2 gradients too, 3 weights too",
        example: "3",
    },
    Key {
        name: names::DEEPSPEED_REDUCE_BUCKET_SIZE,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Fixed("500000000", "DeepSpeed's default"),
        doc: "elements of the buffer that gradients are reduced from; 0 is the hidden size squared, the Trainer's `auto`",
        example: "200000000",
    },
    Key {
        name: names::DEEPSPEED_OVERLAP_COMM,
        kind: Kind::Switch,
        default: Default::Rule("true at stage 3, as DeepSpeed's own"),
        doc: "gradients are reduced while backward runs, from two buffers at stages 1 and 2; stage 3 gathers weights ahead on a \
              stream of their own",
        example: "true",
    },
    Key {
        name: names::DEEPSPEED_PREFETCH_BUCKET_SIZE,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Rule("DeepSpeed's 50000000; where reduce_bucket_size is 0, 0.9 of the hidden size squared"),
        doc: "elements of weights that stage 3 gathers ahead at once",
        example: "15000000",
    },
    Key {
        name: names::DEEPSPEED_PARAM_PERSISTENCE_THRESHOLD,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Rule("DeepSpeed's 100000; where reduce_bucket_size is 0, ten times the hidden size"),
        doc: "parameters of no more elements than these stay whole at stage 3",
        example: "40960",
    },
    Key {
        name: names::DEEPSPEED_MAX_LIVE_PARAMETERS,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Fixed("1000000000", "DeepSpeed's default"),
        doc: "elements of gathered weights beyond which stage 3 gathers nothing ahead",
        example: "100000000",
    },
    Key {
        name: names::DEEPSPEED_MAX_REUSE_DISTANCE,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Fixed("1000000000", "DeepSpeed's default"),
        doc: "a weight that is used again before so many elements of others stays whole at stage 3",
        example: "0",
    },
    Key {
        name: names::DEEPSPEED_SUB_GROUP_SIZE,
        kind: Kind::Size { min: 0, max: 1 << 40 },
        default: Default::Fixed("1000000000", "DeepSpeed's default"),
        doc: "elements of a rank's weights that stage 3 steps at once",
        example: "100000000",
    },
    Key {
        name: names::DEEPSPEED_OFFLOAD_OPTIMIZER,
        kind: Kind::Switch,
        default: Default::Fixed("false", "DeepSpeed's default"),
        doc: "offload_optimizer to the CPU: fp32 weights, their gradient and the optimizer's states lie on the host",
        example: "true",
    },
    Key {
        name: names::DEEPSPEED_OFFLOAD_PIN_MEMORY,
        kind: Kind::Switch,
        default: Default::Fixed("true", "DeepSpeed 0.19.8's default"),
        doc: "offload_optimizer.pin_memory: what is offloaded is page-locked, in blocks of powers of two, but for the states",
        example: "false",
    },
    Key {
        name: names::DEEPSPEED_OFFLOAD_PARAM,
        kind: Kind::Switch,
        default: Default::Fixed("false", "DeepSpeed's default"),
        doc: "offload_param to the CPU at stage 3: a rank's part of each weight lies on the host and comes when it is gathered",
        example: "true",
    },
    Key {
        name: names::DEEPSPEED_OFFLOAD_PARAM_PIN_MEMORY,
        kind: Kind::Switch,
        default: Default::Fixed("true", "DeepSpeed 0.19.8's default"),
        doc: "offload_param.pin_memory: parts of weights are page-locked as they are made; trained ones always end so",
        example: "false",
    },
    Key {
        name: names::TENSOR_PLAN,
        kind: TENSOR_PLANS,
        default: Default::Rule("transformers with its Trainer and TRL's trainers, else megatron"),
        doc: "whose tensor parallelism: what is divided beside heads and inner widths",
        example: "\"transformers\"",
    },
    Key {
        name: names::PIPELINE_SCHEDULE,
        kind: SCHEDULES,
        default: Default::Fixed("\"1f1b\"", "what Megatron and DeepSpeed run"),
        doc: "order of a pipeline's passes; its micro-batches are the passes of gradient accumulation",
        example: "\"gpipe\"",
    },
    Key {
        name: names::PIPELINE_STAGES_PER_RANK,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Rule("2 with pipeline.schedule = \"interleaved_1f1b\", else 1"),
        doc: "stages that each rank has, as many ranks apart",
        example: "4",
    },
    Key {
        name: names::PIPELINE_DATA_PARALLEL_SIZE,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "a pipeline alone"),
        doc: "ranks that have the same stage and train on rows of their own; world_size is the pipeline's ranks times this",
        example: "2",
    },
    Key {
        name: names::PIPELINE_DATA_PARALLEL,
        kind: STAGE_WRAPPERS,
        default: Default::Fixed("\"ddp\"", "what holds whole stages"),
        doc: "what is round each stage where pipeline.data_parallel_size is more than 1; its options are those of the table ddp or fsdp2",
        example: "\"fsdp2\"",
    },
];
