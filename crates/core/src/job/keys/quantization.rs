//! Keys of quantized training: the base as bitsandbytes or a checkpoint stores it, adapters as `[lora]` says.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const WEIGHTS: Kind = Kind::Choice(&[
    ("nf4", "bitsandbytes, 4 bits, values of a normal distribution (QLoRA)"),
    ("fp4", "bitsandbytes, 4 bits, floating point"),
    ("int8", "bitsandbytes LLM.int8()"),
    ("gptq", "a checkpoint of GPTQ in 4 bits, by Triton kernels (fms-acceleration's and AutoGPTQ's tritonv2)"),
    (
        "gptqmodel",
        "a checkpoint of GPTQ, by gptqmodel 7 as transformers 5 loads it to be trained (backend = \"auto_trainable\")",
    ),
    ("awq", "a checkpoint of AWQ in 4 bits (`gemm`), by gptqmodel 7 likewise"),
]);
pub(super) const COMPUTE_DTYPES: Kind =
    Kind::Choice(&[("fp32", "torch.float32"), ("bf16", "torch.bfloat16"), ("fp16", "torch.float16")]);

pub(super) const KEYS: [Key; 8] = [
    Key {
        name: names::QUANTIZATION,
        kind: WEIGHTS,
        default: Default::Rule("as the config's quantization_config says, else not set"),
        doc: "how the frozen linear layers are stored that adapters are trained on; the head and the embeddings stay whole",
        example: "\"nf4\"",
    },
    Key {
        name: names::BNB_4BIT_USE_DOUBLE_QUANT,
        kind: Kind::Switch,
        default: Default::Fixed("false", "BitsAndBytesConfig's default"),
        doc: "4 bits: the scales of the blocks are quantized too",
        example: "true",
    },
    Key {
        name: names::BNB_4BIT_COMPUTE_DTYPE,
        kind: COMPUTE_DTYPES,
        default: Default::Rule("fp32, BitsAndBytesConfig's default; the weights' dtype with framework = \"trl\""),
        doc: "4 bits: what the quantized layers compute in, and are unpacked to",
        example: "\"bf16\"",
    },
    Key {
        name: names::PREPARE_FOR_KBIT_TRAINING,
        kind: Kind::Switch,
        default: Default::Rule(
            "true, as peft's guide does it; false with framework = \"trl\" under FSDP2 and with quantized experts",
        ),
        doc: "peft's prepare_model_for_kbit_training: what is not quantized is cast to fp32",
        example: "false",
    },
    Key {
        name: names::GPTQ_GROUP_SIZE,
        kind: Kind::Size { min: 0, max: 1 << 20 },
        default: Default::Fixed("128", "what most checkpoints have"),
        doc: "gptq, gptqmodel, awq: inputs that share a scale (group_size of the checkpoint's quantization_config); 0 where all do, which is its -1",
        example: "0",
    },
    Key {
        name: names::GPTQ_BITS,
        kind: Kind::Size { min: 2, max: 8 },
        default: Default::Fixed("4", "what most checkpoints have"),
        doc: "gptqmodel: bits of a weight (bits of the checkpoint's quantization_config): 2, 4 or 8",
        example: "8",
    },
    Key {
        name: names::PEFT_MODULE_CASTING_TO_BF16,
        kind: Kind::Switch,
        default: Default::Fixed("false", "peft's preparation leaves them in fp32"),
        doc: "4 bits, prepared for training: embeddings and head are cast to bf16 again, as TRL's SFTTrainer of 0.11 to 0.13 did it",
        example: "true",
    },
    Key {
        name: names::QUANTIZE_MOE_EXPERTS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "from_pretrained leaves them whole"),
        doc: "experts' weights, which are no linear layers, are quantized too, and unpacked in whole when they run: Axolotl's \
              quantize_moe_experts",
        example: "true",
    },
];
