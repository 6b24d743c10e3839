//! verl's Hydra keys: those of its SFT trainer, and those that all its trainers read.

use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::words::{CODE, DATA, LOGS, NAME, OFFLOAD, PACKING, SAVES, SCALAR, SEED, TOKENS};
use crate::facts::{Dtype, Facts, Weights};
use crate::rule::Rule::{Free, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::is_on;

const RANK: &str = "model.lora_rank";
const ENGINE: &str = "the engine of verl's workers is not simulated";
const MESH: &str = "several parallel dimensions at once are not simulated: a rank may hold more or less";

/// verl 0.8 (trainer/config/sft_trainer.yaml calls the key deprecated, and trainer/fsdp_sft_trainer.py never reads it).
const ALL_ROWS: &str = "verl 0.8 reads data.micro_batch_size_per_gpu alone, 4 where nobody says it; older versions dealt these rows \
                        over all GPUs";

/// Its keys, written with dots.
pub const ROWS: &[Row] = &[
    // The SFT trainer (trainer/config/sft_trainer.yaml).
    ("model.partial_pretrain", Sets(keys::MODEL)),
    ("model.path", Sets(keys::MODEL)),
    ("model.fsdp_config.model_dtype", Reads(|facts, said| facts.take_weights(said.value, said.place))),
    ("model.fsdp_config.cpu_offload", Notes(OFFLOAD, Allowance::Less)),
    ("model.fsdp_config.offload_params", Notes(OFFLOAD, Allowance::Less)),
    ("model.fsdp_config.wrap_policy.min_num_params", Free("layers are wrapped one by one")),
    ("model.enable_gradient_checkpointing", Sets(keys::GRADIENT_CHECKPOINTING)),
    ("model.strategy", Free("FSDP, first or second version")),
    ("model.trust_remote_code", Free(CODE)),
    ("model.use_shm", Free("files are copied to the host's memory before they are read")),
    ("model.external_lib", Free(CODE)),
    ("model.lora_rank", Reads(lora_rank)),
    ("model.lora_alpha", Reads(|facts, said| of_adapter(facts, said, (RANK, keys::LORA_ALPHA)))),
    ("model.target_modules", Reads(|facts, said| of_adapter(facts, said, (RANK, keys::LORA_TARGETS)))),
    ("model.use_liger", Sets(keys::USE_LIGER_KERNEL)),
    ("model.use_remove_padding", Notes(PACKING, Allowance::Fifth)),
    ("use_remove_padding", Notes(PACKING, Allowance::Fifth)),
    ("ulysses_sequence_parallel_size", Reads(parallel_degree)),
    ("data.micro_batch_size_per_gpu", Sets(keys::MICRO_BATCH_SIZE)),
    ("data.micro_batch_size", Notes(ALL_ROWS, Allowance::Unknown)),
    ("data.max_length", Sets(keys::SEQ_LEN)),
    (
        "data.max_token_len_per_gpu",
        Notes("rows of any length up to so many tokens: the largest batch is not told by this", Allowance::Unknown),
    ),
    ("data.use_dynamic_bsz", Notes("batches by tokens are not simulated", Allowance::Unknown)),
    ("data.pad_mode", Free(DATA)),
    ("data.balance_dp_token", Free(DATA)),
    ("optim.lr", Free(SCALAR)),
    ("optim.betas", Free(SCALAR)),
    ("optim.weight_decay", Reads(super::optimizer::decay)),
    ("optim.clip_grad", Sets(keys::CLIP_GRAD_NORM)),
    ("optim.optimizer", Reads(super::optimizer::read)),
    ("optim.*", Free(SCALAR)),
    ("engine.*", Refuses(ENGINE)),
    ("trainer.nnodes", Reads(|facts, said| rank_count(facts, said, "trainer.n_gpus_per_node"))),
    ("trainer.n_gpus_per_node", Reads(|facts, said| rank_count(facts, said, "trainer.nnodes"))),
    ("trainer.total_training_steps", Reads(super::trainer::max_steps)),
    ("trainer.device", Free(NAME)),
    ("trainer.seed", Free(SEED)),
    ("trainer.*", Free(LOGS)),
    ("checkpoint.*", Free(SAVES)),
    ("global_profiler.*", Free(LOGS)),
    ("ray_kwargs.*", Free(super::words::LAUNCH)),
    ("ray_init.*", Free(super::words::LAUNCH)),
    ("hydra.*", Free(SAVES)),
    ("config-path", Free(NAME)),
    ("config-name", Free(NAME)),
    ("custom_reward_function.*", Free("a function of texts, which runs on the host")),
    ("data.tokenizer", Free(TOKENS)),
    ("data.*", Free(DATA)),
];

/// `lora_rank`: 0 makes no adapter.
pub fn lora_rank(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0) | None => Became::NoMemory(OFF),
        Some(_) => facts.set_key(keys::LORA_R, said.value, said.place),
    }
}

/// A key of adapters, which are made where the key `rank` is more than 0.
pub fn of_adapter(facts: &mut Facts, said: &Said<'_>, (rank, key): (&str, &'static str)) -> Became {
    let rank = said.other(rank).and_then(|rank| rank.as_u64()).unwrap_or(0);
    if rank == 0 || !is_on(said.value) {
        return Became::NoMemory("no adapter is made: lora_rank is 0");
    }
    match said.word().as_str() {
        "all-linear" => facts.set_key(key, said.value, said.place),
        word if key == keys::LORA_TARGETS && word.starts_with('[') => {
            facts.set_text(key, word.trim_matches(['[', ']']), said.place);
            Became::Used(key)
        }
        _ => facts.set_key(key, said.value, said.place),
    }
}

fn rank_count(facts: &mut Facts, said: &Said<'_>, other: &str) -> Became {
    let other = said.other(other).and_then(|value| value.as_u64()).unwrap_or(1);
    match said.value.as_u64() {
        Some(here) => {
            facts.set_text(keys::WORLD_SIZE, here.saturating_mul(other), said.place);
            Became::Used(keys::WORLD_SIZE)
        }
        None => Became::Noted(
            "how many GPUs there are is not said as a number: say --world-size".to_owned(),
            Allowance::None,
        ),
    }
}

fn parallel_degree(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(0 | 1) | None => Became::NoMemory(OFF),
        _ => Became::Noted(MESH.to_owned(), Allowance::Unknown),
    }
}

/// What all of verl's FSDP workers do where nobody says otherwise (workers/fsdp_workers.py).
pub fn imply_loop(facts: &mut Facts) {
    facts.imply_key(keys::FRAMEWORK, "loop", "verl's own loop");
    facts.imply_key(keys::PARALLEL, "fsdp2", "verl shards with FSDP");
    facts.imply_key(keys::FSDP2_PARAM_DTYPE, "bf16", "verl's mixed precision");
    facts.imply_key(keys::FSDP2_REDUCE_DTYPE, "fp32", "verl's mixed precision");
    facts.imply_key(keys::GRADIENT_CHECKPOINTING, true, "verl's enable_gradient_checkpointing");
    facts.imply_key(keys::CLIP_GRAD_NORM, 1.0, "verl's clip_grad");
    facts.imply_key(keys::USE_CACHE, false, "verl calls the model without a KV cache");
    super::optimizer::imply_decay(facts, "0.01", "verl's weight_decay");
}

/// What verl's SFT trainer does where nobody says otherwise (trainer/fsdp_sft_trainer.py).
pub fn finish_verl(facts: &mut Facts) {
    facts.imply_key(keys::TASK, "causal_lm", "verl's SFT trainer");
    imply_loop(facts);
    facts.imply_key(keys::MICRO_BATCH_SIZE, 4, "verl's data.micro_batch_size_per_gpu");
    facts.imply_key(keys::SEQ_LEN, 1024, "verl's data.max_length");
    if facts.weights.is_none() {
        facts.weights = Some((Weights::As(Dtype::Fp32), None));
    }
    facts.left_open.push(LeftOpen {
        text: "verl's SFT trainer shards with FSDP1 or FSDP2, simulated as FSDP2; it was not measured, the range allows a fifth of the \
               peak"
            .to_owned(),
        allowance: Allowance::Fifth,
    });
}
