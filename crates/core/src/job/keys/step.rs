//! Keys of every job: the model, the sizes of a step, how it is run, and on what.

use super::super::kind::Kind;
use super::optimizers::{AVERAGES, OPTIMIZERS};
use super::{Default, Key, MAX_ROWS, MAX_TOKENS, MOST_NEW_TOKENS, names};

/// Images of a row: more than rows have.
const MAX_IMAGES: u64 = 1 << 12;

pub(super) const TASKS: Kind = Kind::Choice(&[
    ("causal_lm", "next-token training with labels"),
    ("masked_lm", "masked-token training with labels (encoders)"),
    ("seq2seq_lm", "training an encoder-decoder on labels of target_len tokens"),
    ("sequence_classification", "training on a class of each row (model.num_labels says of how many)"),
    ("token_classification", "training on a class of each token (model.num_labels says of how many)"),
    (
        "image_classification",
        "training on a class of each image of model.image_size (model.num_labels says of how many)",
    ),
    ("inference_forward", "one forward pass without gradients"),
    ("generate", "`generate` with a KV cache"),
    ("grpo", "TRL's GRPOTrainer: rollout, reward, log-probabilities and training in turn"),
    ("dpo", "TRL's DPOTrainer: a policy and its reference on chosen and rejected answers"),
    ("rloo", "TRL's RLOOTrainer: as grpo, with rewards less the mean of the others and whole completions' ratios"),
    ("ppo", "TRL's PPOTrainer (1.12): a policy and its critic, a reference and a reward model"),
    ("gkd", "TRL's GKDTrainer: a student learns a teacher's distribution, on the data's answers and on its own"),
    ("kto", "TRL's KTOTrainer: a policy and its reference on answers that are desirable or not"),
    ("orpo", "TRL's ORPOTrainer: chosen and rejected answers, without a reference"),
    ("cpo", "TRL's CPOTrainer, SimPO's loss among others: chosen and rejected answers, without a reference"),
    ("reward", "TRL's RewardTrainer: a score of chosen and rejected rows"),
    ("contrastive", "CLIPModel and SiglipModel with return_loss=True: micro_batch_size images and their texts"),
    ("embedding", "sentence-transformers' trainer with in-batch negatives: anchors near to their positives"),
    ("swarm", "a node of a swarm: generates, and trains on its own and others' completions"),
    ("hrm", "one segment of the hierarchical reasoning model"),
    ("diffusion", "a denoiser of diffusers (Flux, Stable Diffusion) on latents with noise, as its examples train it"),
]);
pub(super) const FRAMEWORKS: Kind = Kind::Choice(&[
    ("trainer", "Hugging Face's Trainer"),
    ("trl", "TRL's trainers: SFTTrainer for causal_lm"),
    ("loop", "a loop of one's own in plain PyTorch"),
    ("accelerate", "a loop of one's own under accelerate"),
    ("deepspeed", "a loop of one's own under DeepSpeed"),
    ("rl_swarm", "Gensyn's rl-swarm over GenRL"),
]);
pub(super) const PRECISIONS: Kind = Kind::Choice(&[
    ("fp32", "fp32 weights, no autocast"),
    ("bf16", "bf16 weights, gradients and optimizer state"),
    ("fp16", "fp16 weights, gradients and optimizer state"),
    ("bf16-amp", "bf16 weights under bf16 autocast (TRL with dtype bfloat16 and bf16=True)"),
    ("amp-bf16", "fp32 weights under bf16 autocast (Trainer's bf16=True)"),
    ("fp16-amp", "fp16 weights under fp16 autocast with a GradScaler (a frozen base)"),
    ("amp-fp16", "fp32 weights under fp16 autocast with a GradScaler (Trainer's fp16=True)"),
]);
pub(super) const ATTENTIONS: Kind = Kind::Choice(&[
    ("sdpa", "the kernel that scaled_dot_product_attention chooses"),
    ("flash", "SDPA's flash kernel"),
    ("mem_efficient", "SDPA's mem-efficient kernel"),
    ("math", "SDPA's math fallback"),
    ("cudnn", "SDPA's cuDNN kernel (workspace not known)"),
    ("eager", "the modeling file's own matmul and softmax"),
    ("flash_attention_2", "the flash-attn package, as transformers calls it"),
]);
const ACTIVATION_OFFLOADING: Kind = Kind::Choice(&[
    ("none", "they stay on the GPU"),
    ("save_on_cpu", "torch.autograd.graph.save_on_cpu() round forward pass and loss"),
    ("streams", "OffloadActivations of TRL (activation_offloading=True) and torchtune, on a stream of its own"),
]);
pub(super) const LOSSES: Kind = Kind::Choice(&[
    ("full", "full logits, then cross_entropy (Hugging Face's)"),
    ("liger", "Liger's fused_linear_cross_entropy"),
]);

/// Long jobs are not simulated to their end: what repeats is left out.
const MAX_PASSES: u64 = u32::MAX as u64;
const MAX_STEPS: u64 = u32::MAX as u64;

pub(super) const KEYS: [Key; 42] = [
    Key {
        name: names::MODEL,
        kind: Kind::Text,
        default: Default::Rule("must be given"),
        doc: "a published model's hub name, a path to a config.json, or a [model] table of config fields",
        example: "\"Qwen/Qwen2.5-0.5B\"",
    },
    Key {
        name: names::TASK,
        kind: TASKS,
        default: Default::Rule(
            "masked_lm for encoders (what `architectures` of its config names), seq2seq_lm for encoder-decoders, hrm for HRM, diffusion \
             for denoisers, causal_lm for all others",
        ),
        doc: "what is run",
        example: "\"causal_lm\"",
    },
    Key {
        name: names::FRAMEWORK,
        kind: FRAMEWORKS,
        default: Default::Rule(
            "trainer, trl for the tasks of TRL's trainers, rl_swarm for swarm, loop for hrm and inference",
        ),
        doc: "what you train with: whose defaults hold, in whose words a plan says its changes",
        example: "\"trl\"",
    },
    Key {
        name: names::MICRO_BATCH_SIZE,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Fixed("8", "Hugging Face Trainer's per_device_train_batch_size"),
        doc: "rows per forward pass on this GPU (completions for grpo, pairs for dpo, orpo, cpo and reward)",
        example: "8",
    },
    Key {
        name: names::SEQ_LEN,
        kind: Kind::Size { min: 1, max: MAX_TOKENS },
        default: Default::Rule("1024, or the model's positions if fewer"),
        doc: "tokens per row (the prompt's, for generate)",
        example: "1024",
    },
    Key {
        name: names::SEQ_LEN_START,
        kind: Kind::Size { min: 2, max: MAX_TOKENS },
        default: Default::Unset,
        doc: "tokens per row in the first epoch of the guide's small GPT; from epoch to epoch rows grow to seq_len",
        example: "16",
    },
    Key {
        name: names::TARGET_LEN,
        kind: Kind::Size { min: 1, max: MAX_TOKENS },
        default: Default::Fixed("128", "max_target_length of Hugging Face's examples"),
        doc: "tokens of the labels of a row, which an encoder-decoder writes (seq2seq_lm)",
        example: "64",
    },
    Key {
        name: names::MAX_NEW_TOKENS,
        kind: Kind::Size { min: 0, max: MOST_NEW_TOKENS },
        default: Default::Rule("20 for generate (transformers' default), else 0"),
        doc: "tokens that generate adds",
        example: "256",
    },
    Key {
        name: names::GRADIENT_ACCUMULATION_STEPS,
        kind: Kind::Size { min: 1, max: MAX_PASSES },
        default: Default::Fixed("1", "Hugging Face Trainer's default"),
        doc: "forward-backward passes per optimizer step",
        example: "4",
    },
    Key {
        name: names::PRECISION,
        kind: PRECISIONS,
        default: Default::Rule("the dtype that from_pretrained loads the model in; TRL's trainers have their own"),
        doc: "weight dtype and autocast",
        example: "\"amp-bf16\"",
    },
    Key {
        name: names::ATTENTION,
        kind: ATTENTIONS,
        default: Default::Fixed("\"sdpa\"", "transformers' default"),
        doc: "attention implementation",
        example: "\"sdpa\"",
    },
    Key {
        name: names::GRADIENT_CHECKPOINTING,
        kind: Kind::Switch,
        default: Default::Rule("false, as in transformers; true for TRL's trainers"),
        doc: "recompute every decoder layer in backward",
        example: "true",
    },
    Key {
        name: names::USE_REENTRANT,
        kind: Kind::Switch,
        default: Default::Rule("true with transformers before 5.0, whose default it is; false after"),
        doc: "checkpointing by an autograd.Function, which runs a layer again to its end (gradient_checkpointing_kwargs)",
        example: "false",
    },
    Key {
        name: names::ACTIVATION_OFFLOADING,
        kind: ACTIVATION_OFFLOADING,
        default: Default::Unset,
        doc: "what moves activations to the host until backward",
        example: "\"streams\"",
    },
    Key {
        name: names::ACTIVATION_OFFLOADING_PIN_MEMORY,
        kind: Kind::Switch,
        default: Default::Rule("true for streams, as TRL calls it; false for save_on_cpu, PyTorch's default"),
        doc: "whether activations on the host are page-locked, in blocks of powers of two",
        example: "true",
    },
    Key {
        name: names::OPTIMIZER,
        kind: OPTIMIZERS,
        default: Default::Rule("the framework's: adamw_fused for trainer and trl, adamw for a loop"),
        doc: "optimizer and its implementation",
        example: "\"adamw_fused\"",
    },
    Key {
        name: names::OPTIMIZER_IN_BACKWARD,
        kind: Kind::Switch,
        default: Default::Fixed("false", "the step follows backward"),
        doc: "an optimizer for each parameter steps in backward and frees its gradient (torchtune's optimizer_in_bwd), in a loop of one's own",
        example: "true",
    },
    Key {
        name: names::EMA,
        kind: AVERAGES,
        default: Default::Fixed("\"off\"", "no average of the weights"),
        doc: "what keeps an average of the weights, in a loop of one's own or diffusers' examples (their use_ema)",
        example: "\"ema_model\"",
    },
    Key {
        name: names::OPTIM_ARGS,
        kind: Kind::Text,
        default: Default::Rule(
            "rank=128, update_proj_gap=200, transformers' for GaLore and APOLLO; max_precondition_dim=10000, precondition_frequency=10 for SOAP",
        ),
        doc: "arguments of an optimizer in a low rank, as transformers reads them: rank, update_proj_gap, scale, scale_type; of SOAP: max_precondition_dim, precondition_frequency",
        example: "\"rank=64, update_proj_gap=100\"",
    },
    Key {
        name: names::OPTIM_TARGET_MODULES,
        kind: Kind::Texts,
        default: Default::Rule("all-linear"),
        doc: "linear layers whose gradients GaLore and APOLLO project: names, parts of names or patterns, or \"all-linear\"",
        example: "[\"attn\", \"mlp\"]",
    },
    Key {
        name: names::CLIP_GRAD_NORM,
        kind: Kind::Number { min: 0.0, max: f64::MAX },
        default: Default::Rule("the framework's: 1 for trainer and trl, 0 for a loop"),
        doc: "norm that clip_grad_norm_ clips to; 0 does not clip",
        example: "1.0",
    },
    Key {
        name: names::ZERO_GRAD_SET_TO_NONE,
        kind: Kind::Switch,
        default: Default::Fixed("true", "PyTorch's default"),
        doc: "zero_grad(set_to_none=...)",
        example: "true",
    },
    Key {
        name: names::TRAIN_MODE,
        kind: Kind::Switch,
        default: Default::Rule("true when the task trains"),
        doc: "model.train(): dropout active as in the config",
        example: "true",
    },
    Key {
        name: names::OWN_LABELS,
        kind: Kind::Switch,
        default: Default::Rule("true for data.train_files whose rows are prompts or messages; a Trainer's always have"),
        doc: "the labels of a plain loop lie in a tensor beside the tokens, as where only completions are learnt",
        example: "true",
    },
    Key {
        name: names::PADDED,
        kind: Kind::Switch,
        default: Default::Rule("not known: rows are simulated as of one length, and the range allows for padded ones"),
        doc: "some rows are shorter than seq_len and padded, so that attention masks are built; false: all have seq_len tokens, as packed ones",
        example: "true",
    },
    Key {
        name: names::PADDING_FREE,
        kind: Kind::Switch,
        default: Default::Fixed("false", "SFTTrainer's without packing"),
        doc: "SFTTrainer lays the rows of a batch end to end in one, as packing = true does by default: outside flash-attn a mask over all of them",
        example: "true",
    },
    Key {
        name: names::IMAGES_PER_ROW,
        kind: Kind::Size { min: 0, max: MAX_IMAGES },
        default: Default::Fixed("0", "rows are text: the tower of a multimodal model is then left out"),
        doc: "images in each row of a vision-language model, whose tower is then simulated; their tokens count towards seq_len",
        example: "1",
    },
    Key {
        name: names::IMAGE_SIZE,
        kind: Kind::TextOrNumber,
        default: Default::Rule("the tower's own, where it takes images of one size"),
        doc: "pixels on a side of those images, or height x width, as the processor resizes them",
        example: "\"448x672\"",
    },
    Key {
        name: names::FREEZE_VISION_TOWER,
        kind: Kind::Switch,
        default: Default::Fixed("false", "everything is trained, or gets adapters"),
        doc: "the tower stays as it is and gets no adapters",
        example: "true",
    },
    Key {
        name: names::FREEZE_ENCODER,
        kind: Kind::Switch,
        default: Default::Fixed("false", "all of the model is trained"),
        doc: "Whisper's encoder is not trained (model.freeze_encoder())",
        example: "true",
    },
    Key {
        name: names::FREEZE_MULTI_MODAL_PROJECTOR,
        kind: Kind::Switch,
        default: Default::Fixed("false", "everything is trained, or gets adapters"),
        doc: "the projector between tower and language model (Qwen's merger) stays as it is and gets no adapters",
        example: "true",
    },
    Key {
        name: names::DROPOUT,
        kind: Kind::Number { min: 0.0, max: 0.99 },
        default: Default::Rule("the config's"),
        doc: "overrides every dropout probability of the config",
        example: "0.0",
    },
    Key {
        name: names::TIE_WORD_EMBEDDINGS,
        kind: Kind::Switch,
        default: Default::Rule("the config's"),
        doc: "overrides whether input embedding and head share their weight",
        example: "true",
    },
    Key {
        name: names::USE_CACHE,
        kind: Kind::Switch,
        default: Default::Rule("the framework's: false for trainer and trl, true for a loop and for generate"),
        doc: "use_cache of the forward call",
        example: "false",
    },
    Key {
        name: names::KEEP_OUTPUTS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "the usual loop keeps the loss only"),
        doc: "the model's output, logits included, stays referenced during backward",
        example: "true",
    },
    Key {
        name: names::LOGITS_TO_KEEP,
        kind: Kind::Size { min: 0, max: MAX_TOKENS },
        default: Default::Fixed("0", "transformers' default: all positions"),
        doc: "positions whose logits inference computes, counted from the end; 0 is all",
        example: "1",
    },
    Key {
        name: names::LOSS,
        kind: LOSSES,
        default: Default::Fixed("\"full\"", "transformers' default"),
        doc: "how the loss is computed from hidden states",
        example: "\"liger\"",
    },
    Key {
        name: names::KERNELS,
        kind: Kind::Texts,
        default: Default::Rule("none"),
        doc: "fms-acceleration's kernels by its own names: fast_rms_layernorm, fast_rope_embeddings, fast_loss or fused_ce_liger, fused_lora",
        example: "[\"fast_rms_layernorm\", \"fast_rope_embeddings\", \"fast_loss\", \"fused_lora\"]",
    },
    Key {
        name: names::STEPS,
        kind: Kind::Size { min: 1, max: MAX_STEPS },
        default: Default::Fixed("2", "optimizer state appears in step 1, the steady peak in step 2"),
        doc: "optimizer steps simulated",
        example: "2",
    },
    Key {
        name: names::TRANSFORMERS,
        kind: Kind::TextOrNumber,
        default: Default::Fixed("\"5.17\"", "the version that is simulated when nothing else is said"),
        doc: "version of transformers that runs: logits, losses, masks and attention changed between 4.38 and 5.17; an active environment's is read",
        example: "\"4.48\"",
    },
    Key {
        name: names::DEVICE_MAP,
        kind: Kind::Switch,
        default: Default::Fixed("false", "the model is moved with .to()"),
        doc: "from_pretrained(device_map=...) loads the model, which first takes its bytes in one block (transformers 4.50 on)",
        example: "true",
    },
    Key {
        name: names::GPU,
        kind: Kind::Text,
        default: Default::Rule("none: sizes, and the GPUs that they fit"),
        doc: "catalog GPU (h100, a100-80, NVIDIA L4), `live` for this machine's, or your own (24GiB,sm_86,multiprocessors=82)",
        example: "\"a100-80\"",
    },
];
