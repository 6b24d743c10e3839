//! Plain PyTorch: torchrun's flags, and the line of code that every framework comes down to where it has no option.

use super::{Line, as_launcher};
use crate::job::JobSpec;
use crate::job::keys;

/// What torchrun is told.
pub(super) fn launch_lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match key {
        keys::WORLD_SIZE => as_launcher(format!("--nproc_per_node {value}")),
        _ => None,
    }
}

/// The line of code.
pub(super) fn code_lines(job: &JobSpec, key: &str, value: &str) -> Vec<Line> {
    let own = |value| job.task.facts().own_argument(key, value, job.parallel.world_size);
    if let Some(argument) = value.parse().ok().and_then(own) {
        return vec![Line::Argument(argument)];
    }
    let text = match (key, value) {
        (keys::MICRO_BATCH_SIZE, rows) => format!("DataLoader(dataset, batch_size={rows})"),
        (keys::GRADIENT_ACCUMULATION_STEPS, passes) => {
            format!("optimizer.step() every {passes} backward passes, each loss / {passes}")
        }
        (keys::SEQ_LEN, tokens) => format!("tokenizer(text, truncation=True, max_length={tokens})"),
        (keys::GRADIENT_CHECKPOINTING, _) => {
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})".to_owned()
        }
        (keys::ACTIVATION_OFFLOADING, _) => {
            "with torch.autograd.graph.save_on_cpu(): loss = model(...).loss".to_owned()
        }
        (keys::OPTIMIZER, "adamw8bit") => "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())".to_owned(),
        (keys::OPTIMIZER, _) => "optimizer = torch.optim.AdamW(model.parameters(), fused=True)".to_owned(),
        (keys::PRECISION, "amp-bf16") => {
            "with torch.autocast(\"cuda\", dtype=torch.bfloat16): loss = model(...)".to_owned()
        }
        (keys::PRECISION, _) => "model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)".to_owned(),
        (keys::ATTENTION, name) => {
            format!("model = AutoModelForCausalLM.from_pretrained(name, attn_implementation=\"{name}\")")
        }
        (keys::LOSS | keys::USE_LIGER_KERNEL, _) => {
            "model = liger_kernel.transformers.AutoLigerKernelForCausalLM.from_pretrained(name)".to_owned()
        }
        (keys::LORA_R, r) => {
            format!("model = peft.get_peft_model(model, LoraConfig(r={r}, target_modules=\"all-linear\"))")
        }
        (keys::LORA_TARGETS, _) => return Vec::new(),
        (keys::PARALLEL, "fsdp1") => {
            "model = FullyShardedDataParallel(model, auto_wrap_policy=..., device_id=device)".to_owned()
        }
        (keys::FSDP1_CPU_OFFLOAD, _) => "FullyShardedDataParallel(..., cpu_offload=CPUOffload(True))".to_owned(),
        (keys::PARALLEL, "fsdp2") => "fully_shard(layer) for every layer, then fully_shard(model)".to_owned(),
        (keys::FSDP2_CPU_OFFLOAD, _) => "fully_shard(..., offload_policy=CPUOffloadPolicy())".to_owned(),
        (keys::DEEPSPEED_OFFLOAD_OPTIMIZER, _) => {
            "deepspeed.initialize(config={\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}})"
                .to_owned()
        }
        (keys::PARALLEL, "zero1") => {
            "optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)".to_owned()
        }
        (keys::PARALLEL, "ddp") => "model = DistributedDataParallel(model)".to_owned(),
        (keys::PARALLEL, _) => "no wrapper round the model".to_owned(),
        (keys::EMBEDDING_MINI_BATCH_SIZE, rows) => {
            format!(
                "embed {rows} rows at a time without a graph, take the loss's gradients of all embeddings, embed again and go back"
            )
        }
        (keys::DDP_GRADIENT_AS_BUCKET_VIEW, _) => {
            "DistributedDataParallel(model, gradient_as_bucket_view=True)".to_owned()
        }
        _ => return reinforcement_lines(key, value),
    };
    vec![Line::Code(text)]
}

/// The same for trainers that generate, whose second models are the user's own code in every framework.
fn reinforcement_lines(key: &str, value: &str) -> Vec<Line> {
    let text = match (key, value) {
        (keys::JUDGE_WEIGHTS, "int8") => {
            "judge = from_pretrained(judge_name, quantization_config=BitsAndBytesConfig(load_in_8bit=True))".to_owned()
        }
        (keys::JUDGE_WEIGHTS, _) => "judge = from_pretrained(judge_name, quantization_config=BitsAndBytesConfig(\
            load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype=torch.bfloat16))"
            .to_owned(),
        (keys::JUDGE_MODEL, name) => format!("judge_name = \"{name}\""),
        (keys::JUDGE_ROWS, rows) => format!("the reward function: judge.generate on {rows} completions at a time"),
        (keys::JUDGE_PLACE, "offload") => {
            "the reward function: judge.to(\"cuda\") first; at its end judge.to(\"cpu\"), torch.cuda.empty_cache()"
                .to_owned()
        }
        (keys::JUDGE_PLACE, _) => "judge = from_pretrained(judge_name, device_map={\"\": \"cuda:1\"})".to_owned(),
        (keys::GRPO_LOG_PROBS, _) => "pip install \"trl>=1.16\"".to_owned(),
        (keys::SWARM_LOGITS_TO_KEEP, _) => {
            "the trainer's log-probabilities: model(..., logits_to_keep=completion_len + 1)".to_owned()
        }
        (keys::SWARM_LOG_PROBS, _) => {
            "the trainer's log-probabilities: head and cross-entropy of 8 rows at a time under \
             torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
                .to_owned()
        }
        _ => return vec![Line::Remark(format!("no option does it: {key} = {value}"))],
    };
    vec![Line::Code(text)]
}
