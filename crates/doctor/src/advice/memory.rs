//! What to do about GPU memory: by the numbers of the message, and by framework, platform and phase.

use super::class::of_class;
use super::framework;
use super::{Advice, Context, say_text, with_flag};
use crate::memory::GpuMemory;
use crate::phase::Phase;
use crate::setting::Framework;
use tonnage_core::failure::Class;
use tonnage_core::units::Bytes;

/// What to do, the strongest reason first.
pub(super) fn advice(memory: &GpuMemory, context: &Context<'_>) -> Vec<Advice> {
    let mut all = Vec::new();
    for class in memory.reasons() {
        match class {
            Class::GpuMemory => all.extend(too_large(memory, context)),
            Class::Neighbour => all.extend(neighbour(memory, context)),
            Class::AllocatorCap if memory.allowed.is_none() && memory.private_pools.is_some() => all.push(with_flag(
                "let fewer CUDA graphs keep memory in private pools",
                "torch.compile(model, mode=\"default\")  # instead of reduce-overhead",
            )),
            Class::OutsideAllocator => all.extend(beside_allocator(memory, context)),
            other => all.extend(of_class(other, context)),
        }
    }
    all
}

/// The job itself.
fn too_large(memory: &GpuMemory, context: &Context<'_>) -> Vec<Advice> {
    if memory.requested == Some(1 << 60) {
        return vec![say_text(
            "a size was computed wrong, no memory is missing: print the shapes of the op in the traceback",
        )];
    }
    if context.phase == Some(Phase::Save) {
        return saving(context);
    }
    let mut all = Vec::new();
    if let (Some(requested), Some(total)) = (memory.requested, memory.total)
        && requested > total
    {
        let text = format!(
            "one tensor of {} is larger than the GPU: keep no attention scores, chunk the loss",
            Bytes(requested)
        );
        all.push(with_flag(&text, "attn_implementation=\"sdpa\""));
    }
    let flags = framework::of_memory(context.setting, memory);
    match context.phase {
        Some(Phase::Load) => all.extend(loading(context)),
        Some(Phase::Eval) => {
            all.push(with_flag(
                "evaluation keeps outputs of all batches: smaller batches, given to the host in between",
                "--per_device_eval_batch_size 1 --eval_accumulation_steps 8",
            ));
        }
        _ if flags.framework == Framework::Jax => {
            all.push(with_flag(
                "let JAX take memory as it needs it, where other programs use the GPU too",
                "XLA_PYTHON_CLIENT_PREALLOCATE=false",
            ));
            all.push(with_flag("fewer samples at a time", flags.batch));
        }
        _ => all.push(with_flag(
            "halve the micro-batch and accumulate twice as often: the same effective batch",
            flags.batch,
        )),
    }
    if context.phase != Some(Phase::Load)
        && let Some(activations) = flags.activations
    {
        all.push(with_flag("keep fewer activations", activations));
    }
    if memory.backend == "MPS" {
        all.push(say_text(
            "Apple's GPU shares the machine's memory: close other programs, or take a smaller model or image",
        ));
    }
    all
}

/// What this process holds beside PyTorch's allocator, which itself found no more: it has nothing to leave to others.
fn beside_allocator(memory: &GpuMemory, context: &Context<'_>) -> Vec<Advice> {
    let outside = memory.outside().unwrap_or(0);
    let text = format!(
        "{} of this process lie beside PyTorch's allocator: see what takes them (NCCL's buffers, CUDA graphs, an engine or library with memory of its own)",
        Bytes(outside)
    );
    let mut all = vec![
        with_flag(&text, "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALLOC"),
        with_flag("where it is NCCL: fewer process groups, or fewer channels in each", "NCCL_MAX_CTAS=8"),
    ];
    all.extend(too_large(memory, context));
    all
}

/// The state of all ranks in one place, after the training went well.
fn saving(context: &Context<'_>) -> Vec<Advice> {
    let mut all = vec![with_flag(
        "it fails while it saves: a whole copy of the weights is made on the GPU; collect them on the host, on rank 0 alone",
        "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)  # or state_dict_type SHARDED_STATE_DICT",
    )];
    if context.setting.has(Framework::DeepSpeed) {
        all.push(with_flag(
            "or save what each rank has and join it afterwards",
            "\"stage3_gather_16bit_weights_on_model_save\": false; then python zero_to_fp32.py . out",
        ));
    }
    all.push(say_text("the batch is not the reason: the training itself had fitted"));
    all
}

/// The weights alone.
fn loading(context: &Context<'_>) -> Vec<Advice> {
    let mut all = vec![with_flag(
        "the weights alone are too large: load them in half the precision, or quantized",
        "torch_dtype=torch.bfloat16  # or load_in_4bit",
    )];
    all.push(with_flag(
        "see that every rank loads to its own GPU, checkpoints to the host first",
        "torch.load(path, map_location=\"cpu\")",
    ));
    if context.setting.has(Framework::Vllm) || context.setting.has(Framework::Sglang) {
        all.push(with_flag("or spread them over more GPUs", "--tensor-parallel-size 2"));
    }
    all
}

fn neighbour(memory: &GpuMemory, context: &Context<'_>) -> Vec<Advice> {
    let pids: Vec<String> =
        memory.neighbours().iter().filter(|(pid, _)| *pid > 1).map(|(pid, _)| pid.to_string()).collect();
    let setting = context.setting;
    if memory.backend == "MPS" || setting.apple {
        return vec![say_text("other programs hold the machine's memory, which the GPU shares: close them")];
    }
    let (who, other_gpu) = if setting.amd || memory.backend == "HIP" {
        ("rocm-smi --showpids", "HIP_VISIBLE_DEVICES=1")
    } else {
        ("nvidia-smi --query-compute-apps=pid,used_memory --format=csv", "CUDA_VISIBLE_DEVICES=1")
    };
    let owner = if pids.is_empty() || setting.windows {
        with_flag("see who holds the memory", who)
    } else {
        with_flag("see who holds the memory", &format!("ps -o pid,user,etime,args -p {}", pids.join(",")))
    };
    vec![owner, with_flag("wait until it ends, or take another GPU; the batch is not the reason", other_gpu)]
}
