//! Plain PyTorch: torchrun's flags, and the line of code that every framework comes down to where it has no option.

use super::{Line, launcher};
use crate::job::JobSpec;

/// What torchrun is told.
pub(super) fn launch(key: &str, value: &str) -> Option<Vec<Line>> {
    match key {
        "world_size" => launcher(format!("--nproc_per_node {value}")),
        _ => None,
    }
}

/// The line of code.
pub(super) fn code(job: &JobSpec, key: &str, value: &str) -> Vec<Line> {
    let own = |value| job.task.facts().own_argument(key, value, job.parallel.world_size);
    if let Some(argument) = value.parse().ok().and_then(own) {
        return vec![Line::Argument(argument)];
    }
    let text = match (key, value) {
        ("micro_batch_size", rows) => format!("DataLoader(dataset, batch_size={rows})"),
        ("gradient_accumulation_steps", passes) => {
            format!("optimizer.step() every {passes} backward passes, each loss / {passes}")
        }
        ("seq_len", tokens) => format!("tokenizer(text, truncation=True, max_length={tokens})"),
        ("gradient_checkpointing", _) => {
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})".to_owned()
        }
        ("optimizer", "adamw8bit") => "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())".to_owned(),
        ("optimizer", _) => "optimizer = torch.optim.AdamW(model.parameters(), fused=True)".to_owned(),
        ("precision", "amp-bf16") => {
            "with torch.autocast(\"cuda\", dtype=torch.bfloat16): loss = model(...)".to_owned()
        }
        ("precision", _) => "model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)".to_owned(),
        ("attention", name) => {
            format!("model = AutoModelForCausalLM.from_pretrained(name, attn_implementation=\"{name}\")")
        }
        ("loss" | "use_liger_kernel", _) => {
            "model = liger_kernel.transformers.AutoLigerKernelForCausalLM.from_pretrained(name)".to_owned()
        }
        ("lora.r", r) => {
            format!("model = peft.get_peft_model(model, LoraConfig(r={r}, target_modules=\"all-linear\"))")
        }
        ("lora.targets", _) => return Vec::new(),
        ("parallel", "fsdp2") => "fully_shard(layer) for every layer, then fully_shard(model)".to_owned(),
        ("parallel", "zero1") => {
            "optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)".to_owned()
        }
        ("parallel", "ddp") => "model = DistributedDataParallel(model)".to_owned(),
        ("parallel", _) => "no wrapper round the model".to_owned(),
        ("ddp.gradient_as_bucket_view", _) => "DistributedDataParallel(model, gradient_as_bucket_view=True)".to_owned(),
        _ => return reinforcement(key, value),
    };
    vec![Line::Code(text)]
}

/// The same for trainers that generate, whose second models are the user's own code in every framework.
fn reinforcement(key: &str, value: &str) -> Vec<Line> {
    let text = match (key, value) {
        ("judge.weights", "int8") => {
            "judge = from_pretrained(judge_name, quantization_config=BitsAndBytesConfig(load_in_8bit=True))".to_owned()
        }
        ("judge.weights", _) => "judge = from_pretrained(judge_name, quantization_config=BitsAndBytesConfig(\
            load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype=torch.bfloat16))"
            .to_owned(),
        ("judge.model", name) => format!("judge_name = \"{name}\""),
        ("judge.rows", rows) => format!("the reward function: judge.generate on {rows} completions at a time"),
        ("judge.place", "offload") => {
            "the reward function: judge.to(\"cuda\") first; at its end judge.to(\"cpu\"), torch.cuda.empty_cache()"
                .to_owned()
        }
        ("judge.place", _) => "judge = from_pretrained(judge_name, device_map={\"\": \"cuda:1\"})".to_owned(),
        ("grpo.log_probs", _) => "pip install \"trl>=1.16\"".to_owned(),
        ("swarm.logits_to_keep", _) => {
            "the trainer's log-probabilities: model(..., logits_to_keep=completion_len + 1)".to_owned()
        }
        ("swarm.log_probs", _) => "the trainer's log-probabilities: head and cross-entropy of 8 rows at a time under \
             torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
            .to_owned(),
        _ => return vec![Line::Remark(format!("no option does it: {key} = {value}"))],
    };
    vec![Line::Code(text)]
}
