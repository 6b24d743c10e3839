//! Keys of trainers that generate or compare answers: lengths that all share, `[grpo]`, `[vllm]` and `[dpo]`.

use super::super::kind::Kind;
use super::{Default, Key, MAX_TOKENS, MOST_NEW_TOKENS, names};

pub(super) const TRL_VERSIONS: Kind = Kind::Choice(&[
    ("1.16", "no logits: head and log-softmax fused; beta 0, checkpointing and bf16 on"),
    ("0.25", "full logits; beta 0, checkpointing and bf16 on"),
    ("0.17", "full logits; beta 0.04, no checkpointing, fp32"),
]);
pub(super) const LOG_PROBS: Kind = Kind::Choice(&[
    ("fused", "head and log-softmax fused, in tiles (TRL 1.16)"),
    ("full_logits", "logits of the completion, divided by the temperature (TRL up to 0.25)"),
]);
const ROLLOUTS: Kind = Kind::Choice(&[
    ("generate", "the policy's own generate, its cache growing by concatenation"),
    ("vllm", "a vLLM engine in the same process"),
]);

pub(super) const KEYS: [Key; 15] = [
    Key {
        name: names::PROMPT_LEN,
        kind: Kind::Size { min: 1, max: MAX_TOKENS },
        default: Default::Rule(
            "what the trainer allows a prompt: 512 for TRL's trainers and Flux, 154 for SD3, 77 for a UNet, 64 for a swarm",
        ),
        doc: "tokens of a prompt, for grpo, rloo, dpo, kto, orpo, cpo, gkd, ppo, swarm and diffusion",
        example: "512",
    },
    Key {
        name: names::COMPLETION_LEN,
        kind: Kind::Size { min: 1, max: MOST_NEW_TOKENS },
        default: Default::Rule("what the trainer allows a completion: 256, or 512 from TRL 1.16 on"),
        doc: "tokens of a completion, for grpo, rloo, dpo, kto, orpo, cpo, gkd, ppo and swarm; all rows run to full length",
        example: "256",
    },
    Key {
        name: names::NUM_GENERATIONS,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Fixed("8", "TRL's and GenRL's default for GRPO; rloo's is 2"),
        doc: "completions per prompt: the group that advantages are normalised over",
        example: "8",
    },
    Key {
        name: names::TRL,
        kind: TRL_VERSIONS,
        default: Default::Fixed("\"1.16\"", "the newest whose source was read"),
        doc: "the version of TRL whose behaviour and defaults grpo takes",
        example: "\"0.25\"",
    },
    Key {
        name: names::GRPO_STEPS_PER_GENERATION,
        kind: Kind::Size { min: 1, max: 1 << 20 },
        default: Default::Rule(names::GRADIENT_ACCUMULATION_STEPS),
        doc: "micro-batches generated at once",
        example: "4",
    },
    Key {
        name: names::GRPO_NUM_ITERATIONS,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Fixed("1", "TRL's default"),
        doc: "optimizer updates per generated batch",
        example: "1",
    },
    Key {
        name: names::GRPO_BETA,
        kind: Kind::Number { min: 0.0, max: f64::MAX },
        default: Default::Rule("0, 0.04 for TRL 0.17, 0.05 for rloo"),
        doc: "weight of the KL term; above 0 a reference model is loaded",
        example: "0.04",
    },
    Key {
        name: names::GRPO_LOG_PROBS,
        kind: LOG_PROBS,
        default: Default::Rule("fused, or full_logits before TRL 1.16"),
        doc: "how log-probabilities are computed",
        example: "\"full_logits\"",
    },
    Key {
        name: names::GRPO_PADDED,
        kind: Kind::Switch,
        default: Default::Fixed("false", "rows of one length need no mask, and take as much or less"),
        doc: "rows have unequal lengths, so that an attention mask is built",
        example: "true",
    },
    Key {
        name: names::GRPO_CAST_LM_HEAD_TO_FP32,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "the head works in fp32",
        example: "true",
    },
    Key {
        name: names::GRPO_ROLLOUT,
        kind: ROLLOUTS,
        default: Default::Rule("vllm when a key of [vllm] is set, else generate"),
        doc: "what generates completions",
        example: "\"vllm\"",
    },
    Key {
        name: names::VLLM_GPU_MEMORY_UTILIZATION,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.3", "TRL's vllm_gpu_memory_utilization"),
        doc: "share of the GPU that the vLLM engine takes",
        example: "0.3",
    },
    Key {
        name: names::VLLM_SLEEP_MODE,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's vllm_enable_sleep_mode"),
        doc: "the engine gives weights and cache back while the policy trains",
        example: "true",
    },
    Key {
        name: names::DPO_PRECOMPUTE_REF_LOG_PROBS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "the reference's log-probabilities are computed once, before training",
        example: "true",
    },
    Key {
        name: names::USE_LIGER_KERNEL,
        kind: Kind::Switch,
        default: Default::Fixed("false", "transformers' default"),
        doc: "Liger's kernels replace norms, rotary embeddings and MLPs, and head and loss where the model computes its own",
        example: "true",
    },
];
