//! Keys of jobs on several GPUs: how many ranks, what is spread over them, and what the wrapper is told.

use super::super::kind::Kind;
use super::{Default, Key};

pub(super) const STRATEGIES: Kind = Kind::Choice(&[
    ("none", "no wrapper"),
    ("data_parallel", "torch.nn.DataParallel: one process, replicas on every GPU"),
    ("all_reduce", "no wrapper: the loop all-reduces each gradient itself, as HRM's does"),
    ("ddp", "DistributedDataParallel"),
    ("zero1", "ZeroRedundancyOptimizer: optimizer state over the ranks"),
    ("fsdp2", "fully_shard: parameters, gradients and state over the ranks"),
    ("deepspeed", "DeepSpeed's ZeRO, by stage (not measured)"),
    ("tensor", "Megatron's tensor parallelism: heads and inner widths over the ranks (not measured)"),
    ("pipeline", "layers over the ranks, a stage each (not measured)"),
]);
const DTYPES: Kind = Kind::Choice(&[("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]);
pub(super) const SCHEDULES: Kind = Kind::Choice(&[
    ("1f1b", "one forward pass, one backward pass, once the pipeline is full"),
    ("gpipe", "all forward passes, then all backward passes"),
]);
pub(super) const INITS: Kind = Kind::Choice(&[
    ("meta", "sharded on the meta device, materialised after"),
    ("full", "materialised in full, sharded after"),
]);

/// The rows.
pub(super) const KEYS: [Key; 16] = [
    Key {
        name: "world_size",
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Fixed("1", "one process"),
        doc: "ranks, one GPU each",
        example: "8",
    },
    Key {
        name: "parallel",
        kind: STRATEGIES,
        default: Default::Rule("ddp when there is more than one rank (all_reduce for HRM), else none"),
        doc: "what is spread over the ranks",
        example: "\"fsdp2\"",
    },
    Key {
        name: "global_batch_size",
        kind: Kind::Size { min: 1, max: 1 << 40 },
        default: Default::Rule("micro_batch_size x gradient_accumulation_steps x world_size"),
        doc: "rows per optimizer step over all ranks; sets the accumulation where that is left out",
        example: "256",
    },
    Key {
        name: "ddp.bucket_cap_mb",
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Rule("PyTorch's: 25, the first bucket 1"),
        doc: "size of a gradient bucket, in MiB",
        example: "25",
    },
    Key {
        name: "ddp.gradient_as_bucket_view",
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "gradients are views of the buckets",
        example: "true",
    },
    Key {
        name: "ddp.static_graph",
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "the graph never changes",
        example: "true",
    },
    Key {
        name: "ddp.find_unused_parameters",
        kind: Kind::Switch,
        default: Default::Rule(
            "the Trainer's: true without gradient checkpointing and with adapters; else PyTorch's false",
        ),
        doc: "each pass looks for parameters that no loss depends on: buckets stay in the parameters' order, outputs are copied",
        example: "false",
    },
    Key {
        name: "zero1.ddp",
        kind: Kind::Switch,
        default: Default::Fixed("true", "the optimizer averages no gradients itself"),
        doc: "the model is in DDP too",
        example: "false",
    },
    Key {
        name: "zero1.parameters_as_bucket_view",
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "parameters are views of the buckets they are broadcast in",
        example: "true",
    },
    Key {
        name: "fsdp2.param_dtype",
        kind: DTYPES,
        default: Default::Rule("the weights' own"),
        doc: "MixedPrecisionPolicy(param_dtype=...): dtype of gathered parameters",
        example: "\"bf16\"",
    },
    Key {
        name: "fsdp2.reduce_dtype",
        kind: DTYPES,
        default: Default::Rule("the gradients' own"),
        doc: "MixedPrecisionPolicy(reduce_dtype=...): dtype of reduced gradients",
        example: "\"fp32\"",
    },
    Key {
        name: "fsdp2.reshard_after_forward",
        kind: Kind::Switch,
        default: Default::Fixed("true", "PyTorch's default"),
        doc: "layers give their gathered parameters back after forward",
        example: "false",
    },
    Key {
        name: "fsdp2.shard_root_only",
        kind: Kind::Switch,
        default: Default::Fixed("false", "layers are wrapped one by one, as all recipes do"),
        doc: "one group for the whole model",
        example: "true",
    },
    Key {
        name: "fsdp2.init",
        kind: INITS,
        default: Default::Fixed("\"meta\"", "what large models need"),
        doc: "when the parameters get memory",
        example: "\"full\"",
    },
    Key {
        name: "deepspeed.stage",
        kind: Kind::Size { min: 1, max: 3 },
        default: Default::Fixed("2", "the stage most recipes use"),
        doc: "ZeRO's stage: 1 divides optimizer state, 2 gradients too, 3 weights too",
        example: "3",
    },
    Key {
        name: "pipeline.schedule",
        kind: SCHEDULES,
        default: Default::Fixed("\"1f1b\"", "what Megatron and DeepSpeed run"),
        doc: "order of a pipeline's passes; its micro-batches are the passes of gradient accumulation",
        example: "\"gpipe\"",
    },
];
