//! Published models by hub name: their `config.json` and parameter count, part of the program.

use super::aliases::ALIASES;
use super::hf::{self, HfModel};
use super::{JobError, copies};
use crate::nearest::nearest;

/// A published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The hub name.
    pub name: &'static str,
    /// Unique parameters (a tied weight counts once), counted by the model's own code: see
    /// `testdata/presets/count_parameters.py`. Of a multimodal model, those of the text model.
    pub parameters: u64,
    /// The text of `config.json`, less what shapes no tensor.
    pub config: &'static str,
}

const fn preset(name: &'static str, parameters: u64, config: &'static str) -> Preset {
    Preset { name, parameters, config }
}

// microsoft/Phi-3.5-mini-instruct's `rope_scaling` is left out: its factors scale values, never shapes.
// Qwen3.5's two large ones and Mistral Medium are by their published sizes; with tower and the layer for multi-token prediction
// the former come to the published 125.1 and 403.4 billion, SmolVLM2 with its tower to the published 2,246,784,880 exactly.
// sapientinc's models have no config.json; theirs are of arch/hrm_v1.yaml, the data sets, and the checkpoint's table of
// puzzles (ARC-2: 1,045,829 rows).
static PRESETS: &[Preset] = &[
    preset("openai-community/gpt2", 124_439_808, include_str!("presets/gpt2.json")),
    preset("openai-community/gpt2-medium", 354_823_168, include_str!("presets/gpt2-medium.json")),
    preset("openai-community/gpt2-large", 774_030_080, include_str!("presets/gpt2-large.json")),
    preset("openai-community/gpt2-xl", 1_557_611_200, include_str!("presets/gpt2-xl.json")),
    preset("distilbert/distilgpt2", 81_912_576, include_str!("presets/distilgpt2.json")),
    preset("cerebras/Cerebras-GPT-1.3B", 1_315_723_264, include_str!("presets/cerebras-gpt-1.3b.json")),
    preset("Qwen/Qwen2.5-0.5B", 494_032_768, include_str!("presets/qwen2.5-0.5b.json")),
    preset("Qwen/Qwen2.5-1.5B", 1_543_714_304, include_str!("presets/qwen2.5-1.5b.json")),
    preset("Qwen/Qwen2.5-3B", 3_085_938_688, include_str!("presets/qwen2.5-3b.json")),
    preset("Qwen/Qwen2.5-7B", 7_615_616_512, include_str!("presets/qwen2.5-7b.json")),
    preset("Qwen/Qwen2.5-14B", 14_770_033_664, include_str!("presets/qwen2.5-14b.json")),
    preset("Qwen/Qwen2.5-32B", 32_763_876_352, include_str!("presets/qwen2.5-32b.json")),
    preset("Qwen/Qwen2.5-72B", 72_706_203_648, include_str!("presets/qwen2.5-72b.json")),
    preset("Qwen/Qwen2.5-VL-7B-Instruct", 7_615_616_512, include_str!("presets/qwen2.5-vl-7b-instruct.json")),
    preset("Qwen/Qwen2.5-VL-72B-Instruct", 72_706_203_648, include_str!("presets/qwen2.5-vl-72b-instruct.json")),
    preset("Qwen/Qwen2-VL-2B-Instruct", 1_543_714_304, include_str!("presets/qwen2-vl-2b-instruct.json")),
    preset("Qwen/Qwen2-VL-7B-Instruct", 7_615_616_512, include_str!("presets/qwen2-vl-7b-instruct.json")),
    preset("Qwen/Qwen3-0.6B", 596_049_920, include_str!("presets/qwen3-0.6b.json")),
    preset("Qwen/Qwen3-1.7B", 1_720_574_976, include_str!("presets/qwen3-1.7b.json")),
    preset("Qwen/Qwen3-4B", 4_022_468_096, include_str!("presets/qwen3-4b.json")),
    preset("Qwen/Qwen3-8B", 8_190_735_360, include_str!("presets/qwen3-8b.json")),
    preset("Qwen/Qwen3-14B", 14_768_307_200, include_str!("presets/qwen3-14b.json")),
    preset("Qwen/Qwen3-32B", 32_762_123_264, include_str!("presets/qwen3-32b.json")),
    preset("Qwen/Qwen3-30B-A3B", 30_532_122_624, include_str!("presets/qwen3-30b-a3b.json")),
    preset("Qwen/Qwen3-235B-A22B", 235_093_634_560, include_str!("presets/qwen3-235b-a22b.json")),
    preset(
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        79_674_391_296,
        include_str!("presets/qwen3-next-80b-a3b-instruct.json"),
    ),
    preset("Qwen/Qwen3.5-0.8B", 752_393_024, include_str!("presets/qwen3.5-0.8b.json")),
    preset("Qwen/Qwen3.5-4B", 4_205_751_296, include_str!("presets/qwen3.5-4b.json")),
    preset("Qwen/Qwen3.5-9B", 8_953_803_264, include_str!("presets/qwen3.5-9b.json")),
    preset("Qwen/Qwen3.5-27B", 26_895_998_464, include_str!("presets/qwen3.5-27b.json")),
    preset("Qwen/Qwen3.6-35B-A3B", 34_660_610_688, include_str!("presets/qwen3.6-35b-a3b.json")),
    preset("Qwen/Qwen3.5-122B-A10B", 122_111_526_912, include_str!("presets/qwen3.5-122b-a10b.json")),
    preset("Qwen/Qwen3.5-397B-A17B", 396_346_350_336, include_str!("presets/qwen3.5-397b-a17b.json")),
    preset("Qwen/Qwen3-VL-4B-Instruct", 4_022_468_096, include_str!("presets/qwen3-vl-4b-instruct.json")),
    preset("OpenGVLab/InternVL3_5-8B-HF", 8_190_735_360, include_str!("presets/internvl3_5-8b-hf.json")),
    preset("ibm-granite/granite-3.3-8b-instruct", 8_170_864_640, include_str!("presets/granite-3.3-8b-instruct.json")),
    preset("HuggingFaceTB/SmolLM3-3B", 3_075_098_624, include_str!("presets/smollm3-3b.json")),
    preset("meta-llama/Llama-3.2-1B", 1_235_814_400, include_str!("presets/llama-3.2-1b.json")),
    preset("meta-llama/Llama-3.2-3B", 3_212_749_824, include_str!("presets/llama-3.2-3b.json")),
    preset("meta-llama/Meta-Llama-3-8B", 8_030_261_248, include_str!("presets/meta-llama-3-8b.json")),
    preset("meta-llama/Llama-3.1-8B", 8_030_261_248, include_str!("presets/llama-3.1-8b.json")),
    preset("meta-llama/Llama-3.1-70B", 70_553_706_496, include_str!("presets/llama-3.1-70b.json")),
    preset("meta-llama/Llama-3.1-405B", 405_853_388_800, include_str!("presets/llama-3.1-405b.json")),
    preset("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496, include_str!("presets/llama-3.3-70b-instruct.json")),
    preset("meta-llama/Llama-2-7b-hf", 6_738_415_616, include_str!("presets/llama-2-7b-hf.json")),
    preset("meta-llama/Llama-2-13b-hf", 13_015_864_320, include_str!("presets/llama-2-13b-hf.json")),
    preset("llava-hf/llava-1.5-7b-hf", 6_738_939_904, include_str!("presets/llava-1.5-7b-hf.json")),
    preset("codellama/CodeLlama-7b-hf", 6_738_546_688, include_str!("presets/codellama-7b-hf.json")),
    preset("codellama/CodeLlama-13b-hf", 13_016_028_160, include_str!("presets/codellama-13b-hf.json")),
    preset("codellama/CodeLlama-34b-hf", 33_743_970_304, include_str!("presets/codellama-34b-hf.json")),
    preset("01-ai/Yi-34B", 34_388_917_248, include_str!("presets/yi-34b.json")),
    preset("openlm-research/open_llama_3b_v2", 3_426_473_600, include_str!("presets/open_llama_3b_v2.json")),
    preset("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1_100_048_384, include_str!("presets/tinyllama-1.1b-chat-v1.0.json")),
    preset("HuggingFaceTB/SmolLM2-135M", 134_515_008, include_str!("presets/smollm2-135m.json")),
    preset("HuggingFaceTB/SmolLM2-360M", 361_821_120, include_str!("presets/smollm2-360m.json")),
    preset("HuggingFaceTB/SmolLM2-1.7B", 1_711_376_384, include_str!("presets/smollm2-1.7b.json")),
    preset("HuggingFaceTB/SmolVLM2-2.2B-Instruct", 1_812_563_968, include_str!("presets/smolvlm2-2.2b-instruct.json")),
    preset("nvidia/Nemotron-Mini-4B-Instruct", 4_190_509_056, include_str!("presets/nemotron-mini-4b-instruct.json")),
    preset("tencent/Hunyuan-0.5B-Instruct", 539_010_048, include_str!("presets/hunyuan-0.5b-instruct.json")),
    preset("arcee-ai/AFM-4.5B", 4_619_189_760, include_str!("presets/afm-4.5b.json")),
    preset("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704, include_str!("presets/mixtral-8x7b-v0.1.json")),
    preset("mistralai/Mixtral-8x22B-v0.1", 140_620_634_112, include_str!("presets/mixtral-8x22b-v0.1.json")),
    preset("mistralai/Mistral-7B-v0.1", 7_241_732_096, include_str!("presets/mistral-7b-v0.1.json")),
    preset("mistralai/Mistral-7B-Instruct-v0.2", 7_241_732_096, include_str!("presets/mistral-7b-instruct-v0.2.json")),
    preset("mistralai/Mistral-7B-v0.3", 7_248_023_552, include_str!("presets/mistral-7b-v0.3.json")),
    preset(
        "mistralai/Ministral-8B-Instruct-2410",
        8_019_808_256,
        include_str!("presets/ministral-8b-instruct-2410.json"),
    ),
    preset(
        "mistralai/Mistral-Small-24B-Base-2501",
        23_572_403_200,
        include_str!("presets/mistral-small-24b-base-2501.json"),
    ),
    preset(
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        23_572_403_200,
        include_str!("presets/mistral-small-3.1-24b-instruct-2503.json"),
    ),
    preset("mistralai/Mistral-Medium-3.5-128B", 125_025_988_608, include_str!("presets/mistral-medium-3.5-128b.json")),
    preset("google/gemma-2-2b", 2_614_341_888, include_str!("presets/gemma-2-2b.json")),
    preset("google/gemma-2-9b", 9_241_705_984, include_str!("presets/gemma-2-9b.json")),
    preset("google/gemma-2-27b", 27_227_128_320, include_str!("presets/gemma-2-27b.json")),
    preset("google/gemma-7b", 8_537_680_896, include_str!("presets/gemma-7b.json")),
    preset("google/gemma-3-270m", 268_098_176, include_str!("presets/gemma-3-270m.json")),
    preset("google/gemma-3-1b-pt", 999_885_952, include_str!("presets/gemma-3-1b-pt.json")),
    preset("google/paligemma-3b-pt-224", 2_508_662_784, include_str!("presets/paligemma-3b-pt-224.json")),
    preset("google/paligemma2-3b-pt-224", 2_617_143_552, include_str!("presets/paligemma2-3b-pt-224.json")),
    preset("google/gemma-3-4b-pt", 3_880_263_168, include_str!("presets/gemma-3-4b-pt.json")),
    preset("google/gemma-3-12b-pt", 11_766_034_176, include_str!("presets/gemma-3-12b-pt.json")),
    preset("google/gemma-3-27b-pt", 27_009_346_304, include_str!("presets/gemma-3-27b-pt.json")),
    preset("google/gemma-3n-E2B", 4_435_182_688, include_str!("presets/gemma-3n-e2b.json")),
    preset("google/gemma-3n-E4B", 6_835_235_568, include_str!("presets/gemma-3n-e4b.json")),
    preset("google/gemma-4-E2B", 4_628_569_344, include_str!("presets/gemma-4-e2b.json")),
    preset("google/gemma-4-12B", 11_907_350_272, include_str!("presets/gemma-4-12b.json")),
    preset("google/gemma-4-26B-A4B", 25_233_141_760, include_str!("presets/gemma-4-26b-a4b.json")),
    preset("google/gemma-4-31B", 30_697_345_280, include_str!("presets/gemma-4-31b.json")),
    preset("google-bert/bert-base-uncased", 109_514_298, include_str!("presets/bert-base-uncased.json")),
    preset("google-bert/bert-base-cased", 108_340_804, include_str!("presets/bert-base-cased.json")),
    preset("google-bert/bert-large-uncased", 335_174_458, include_str!("presets/bert-large-uncased.json")),
    preset("google-bert/bert-large-cased", 333_610_308, include_str!("presets/bert-large-cased.json")),
    preset("distilbert/distilbert-base-uncased", 66_985_530, include_str!("presets/distilbert-base-uncased.json")),
    preset("FacebookAI/roberta-base", 124_697_433, include_str!("presets/roberta-base.json")),
    preset("FacebookAI/roberta-large", 355_412_057, include_str!("presets/roberta-large.json")),
    preset("distilbert/distilroberta-base", 82_170_201, include_str!("presets/distilroberta-base.json")),
    preset("FacebookAI/xlm-roberta-base", 278_295_186, include_str!("presets/xlm-roberta-base.json")),
    preset("FacebookAI/xlm-roberta-large", 560_142_482, include_str!("presets/xlm-roberta-large.json")),
    preset("answerdotai/ModernBERT-base", 149_655_232, include_str!("presets/modernbert-base.json")),
    preset("answerdotai/ModernBERT-large", 395_881_664, include_str!("presets/modernbert-large.json")),
    preset("google/vit-base-patch16-224", 86_567_656, include_str!("presets/vit-base-patch16-224.json")),
    preset("google/vit-large-patch16-224", 304_326_632, include_str!("presets/vit-large-patch16-224.json")),
    preset("google/vit-base-patch16-224-in21k", 85_800_194, include_str!("presets/vit-base-patch16-224-in21k.json")),
    preset("openai/clip-vit-base-patch32", 151_277_313, include_str!("presets/clip-vit-base-patch32.json")),
    preset("openai/clip-vit-large-patch14", 427_616_513, include_str!("presets/clip-vit-large-patch14.json")),
    preset("google/siglip-base-patch16-224", 203_155_970, include_str!("presets/siglip-base-patch16-224.json")),
    preset("google/siglip-so400m-patch14-384", 877_960_498, include_str!("presets/siglip-so400m-patch14-384.json")),
    preset("google/siglip2-base-patch16-224", 375_187_970, include_str!("presets/siglip2-base-patch16-224.json")),
    preset("facebook/dinov2-base", 86_583_554, include_str!("presets/dinov2-base.json")),
    preset("facebook/dinov2-large", 304_372_738, include_str!("presets/dinov2-large.json")),
    preset("facebook/dinov2-small", 22_058_114, include_str!("presets/dinov2-small.json")),
    preset("google/electra-base-discriminator", 109_483_778, include_str!("presets/electra-base-discriminator.json")),
    preset("google/electra-small-discriminator", 13_549_314, include_str!("presets/electra-small-discriminator.json")),
    preset("google/electra-base-generator", 33_740_602, include_str!("presets/electra-base-generator.json")),
    preset("microsoft/deberta-v3-small", 142_024_548, include_str!("presets/deberta-v3-small.json")),
    preset("microsoft/deberta-v3-base", 184_551_780, include_str!("presets/deberta-v3-base.json")),
    preset("microsoft/deberta-v3-large", 435_191_908, include_str!("presets/deberta-v3-large.json")),
    preset("microsoft/mdeberta-v3-base", 279_061_880, include_str!("presets/mdeberta-v3-base.json")),
    preset("google-t5/t5-small", 60_506_624, include_str!("presets/t5-small.json")),
    preset("google-t5/t5-base", 222_903_552, include_str!("presets/t5-base.json")),
    preset("google-t5/t5-large", 737_668_096, include_str!("presets/t5-large.json")),
    preset("google/flan-t5-small", 76_961_152, include_str!("presets/flan-t5-small.json")),
    preset("google/flan-t5-base", 247_577_856, include_str!("presets/flan-t5-base.json")),
    preset("google/flan-t5-large", 783_150_080, include_str!("presets/flan-t5-large.json")),
    preset("google/flan-t5-xl", 2_849_757_184, include_str!("presets/flan-t5-xl.json")),
    preset("google/flan-t5-xxl", 11_135_332_352, include_str!("presets/flan-t5-xxl.json")),
    preset("google/mt5-small", 300_176_768, include_str!("presets/mt5-small.json")),
    preset("google/mt5-base", 582_401_280, include_str!("presets/mt5-base.json")),
    preset("facebook/bart-base", 139_420_416, include_str!("presets/bart-base.json")),
    preset("facebook/bart-large", 406_291_456, include_str!("presets/bart-large.json")),
    preset("facebook/bart-large-cnn", 406_290_432, include_str!("presets/bart-large-cnn.json")),
    preset("facebook/mbart-large-50", 610_879_488, include_str!("presets/mbart-large-50.json")),
    preset("facebook/nllb-200-distilled-600M", 615_073_792, include_str!("presets/nllb-200-distilled-600m.json")),
    preset("Helsinki-NLP/opus-mt-en-de", 74_410_496, include_str!("presets/opus-mt-en-de.json")),
    preset("google/pegasus-xsum", 569_748_480, include_str!("presets/pegasus-xsum.json")),
    preset("openai/whisper-tiny", 37_760_640, include_str!("presets/whisper-tiny.json")),
    preset("openai/whisper-base", 72_593_920, include_str!("presets/whisper-base.json")),
    preset("openai/whisper-small", 241_734_912, include_str!("presets/whisper-small.json")),
    preset("openai/whisper-medium", 763_857_920, include_str!("presets/whisper-medium.json")),
    preset("openai/whisper-large-v2", 1_543_304_960, include_str!("presets/whisper-large-v2.json")),
    preset("openai/whisper-large-v3", 1_543_490_560, include_str!("presets/whisper-large-v3.json")),
    preset("openai/whisper-large-v3-turbo", 808_878_080, include_str!("presets/whisper-large-v3-turbo.json")),
    preset("microsoft/phi-4", 14_659_507_200, include_str!("presets/phi-4.json")),
    preset("microsoft/Phi-3-mini-4k-instruct", 3_821_079_552, include_str!("presets/phi-3-mini-4k-instruct.json")),
    preset("microsoft/Phi-3-medium-4k-instruct", 13_960_238_080, include_str!("presets/phi-3-medium-4k-instruct.json")),
    preset("microsoft/Phi-3.5-mini-instruct", 3_821_079_552, include_str!("presets/phi-3.5-mini-instruct.json")),
    preset("allenai/OLMo-1B-hf", 1_176_764_416, include_str!("presets/olmo-1b-hf.json")),
    preset("allenai/OLMo-7B-hf", 6_888_095_744, include_str!("presets/olmo-7b-hf.json")),
    preset("allenai/OLMo-2-0425-1B", 1_484_916_736, include_str!("presets/olmo-2-0425-1b.json")),
    preset("allenai/OLMo-2-1124-7B", 7_298_617_344, include_str!("presets/olmo-2-1124-7b.json")),
    preset("allenai/Olmo-3-1025-7B", 7_298_011_136, include_str!("presets/olmo-3-1025-7b.json")),
    preset("allenai/OLMoE-1B-7B-0924", 6_919_161_856, include_str!("presets/olmoe-1b-7b-0924.json")),
    preset("unsloth/gpt-oss-20b-BF16", 20_914_757_184, include_str!("presets/gpt-oss-20b-bf16.json")),
    preset("unsloth/gpt-oss-120b-BF16", 116_829_156_672, include_str!("presets/gpt-oss-120b-bf16.json")),
    preset("Qwen/Qwen1.5-MoE-A2.7B", 14_315_784_192, include_str!("presets/qwen1.5-moe-a2.7b.json")),
    preset("Qwen/Qwen3-VL-30B-A3B-Instruct", 30_532_122_624, include_str!("presets/qwen3-vl-30b-a3b-instruct.json")),
    preset("deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224, include_str!("presets/deepseek-v2-lite.json")),
    preset("zai-org/GLM-4.7-Flash", 29_943_390_976, include_str!("presets/glm-4.7-flash.json")),
    preset("meta-llama/Llama-4-Scout-17B-16E", 107_769_861_120, include_str!("presets/llama-4-scout-17b-16e.json")),
    preset(
        "meta-llama/Llama-4-Maverick-17B-128E",
        400_711_848_960,
        include_str!("presets/llama-4-maverick-17b-128e.json"),
    ),
    preset("zai-org/GLM-4.5-Air", 106_852_245_504, include_str!("presets/glm-4.5-air.json")),
    preset("zai-org/GLM-4.5", 352_797_814_784, include_str!("presets/glm-4.5.json")),
    preset("unsloth/DeepSeek-V3-bf16", 671_026_404_352, include_str!("presets/deepseek-v3-bf16.json")),
    preset("moonshotai/Moonlight-16B-A3B", 15_960_108_544, include_str!("presets/moonlight-16b-a3b.json")),
    preset("EleutherAI/pythia-160m", 162_322_944, include_str!("presets/pythia-160m.json")),
    preset("EleutherAI/pythia-1.4b", 1_414_647_808, include_str!("presets/pythia-1.4b.json")),
    preset("EleutherAI/pythia-6.9b", 6_857_302_016, include_str!("presets/pythia-6.9b.json")),
    preset("EleutherAI/pythia-12b", 11_846_072_320, include_str!("presets/pythia-12b.json")),
    preset("EleutherAI/gpt-j-6b", 6_050_882_784, include_str!("presets/gpt-j-6b.json")),
    preset(
        "togethercomputer/RedPajama-INCITE-Chat-3B-v1",
        2_775_864_320,
        include_str!("presets/redpajama-incite-chat-3b-v1.json"),
    ),
    preset("facebook/opt-125m", 125_239_296, include_str!("presets/opt-125m.json")),
    preset("facebook/opt-350m", 331_196_416, include_str!("presets/opt-350m.json")),
    preset("facebook/opt-1.3b", 1_315_758_080, include_str!("presets/opt-1.3b.json")),
    preset("facebook/opt-6.7b", 6_658_473_984, include_str!("presets/opt-6.7b.json")),
    preset("microsoft/phi-1_5", 1_418_270_720, include_str!("presets/phi-1_5.json")),
    preset("microsoft/phi-2", 2_779_683_840, include_str!("presets/phi-2.json")),
    preset("bigcode/gpt_bigcode-santacoder", 1_124_886_528, include_str!("presets/gpt_bigcode-santacoder.json")),
    preset("bigcode/starcoderbase-1b", 1_137_207_296, include_str!("presets/starcoderbase-1b.json")),
    preset("bigcode/starcoderbase-3b", 3_043_311_104, include_str!("presets/starcoderbase-3b.json")),
    preset("bigcode/starcoderbase-7b", 7_327_263_232, include_str!("presets/starcoderbase-7b.json")),
    preset("bigcode/starcoder", 15_517_456_384, include_str!("presets/starcoder.json")),
    preset("bigcode/starcoder2-3b", 3_030_371_328, include_str!("presets/starcoder2-3b.json")),
    preset("bigcode/starcoder2-7b", 7_173_923_840, include_str!("presets/starcoder2-7b.json")),
    preset("tiiuae/falcon-7b", 6_921_720_704, include_str!("presets/falcon-7b.json")),
    preset("stabilityai/stablelm-3b-4e1t", 2_795_443_200, include_str!("presets/stablelm-3b-4e1t.json")),
    preset("stabilityai/stablelm-2-1_6b", 1_644_515_328, include_str!("presets/stablelm-2-1_6b.json")),
    preset("CohereForAI/c4ai-command-r-v01", 34_980_831_232, include_str!("presets/c4ai-command-r-v01.json")),
    preset("CohereForAI/aya-23-8B", 8_028_033_024, include_str!("presets/aya-23-8b.json")),
    preset(
        "CohereForAI/c4ai-command-r7b-12-2024",
        8_028_033_024,
        include_str!("presets/c4ai-command-r7b-12-2024.json"),
    ),
    preset("THUDM/glm-4-9b-chat-hf", 9_399_951_360, include_str!("presets/glm-4-9b-chat-hf.json")),
    preset("THUDM/GLM-4-9B-0414", 9_400_279_040, include_str!("presets/glm-4-9b-0414.json")),
    preset("THUDM/GLM-4-32B-0414", 32_566_081_536, include_str!("presets/glm-4-32b-0414.json")),
    preset("ByteDance-Seed/Seed-OSS-36B-Instruct", 36_151_104_512, include_str!("presets/seed-oss-36b-instruct.json")),
    preset(
        "deepseek-ai/deepseek-coder-6.7b-base",
        6_740_512_768,
        include_str!("presets/deepseek-coder-6.7b-base.json"),
    ),
    preset("deepseek-ai/deepseek-llm-7b-base", 6_910_365_696, include_str!("presets/deepseek-llm-7b-base.json")),
    preset("google/gemma-2b", 2_506_172_416, include_str!("presets/gemma-2b.json")),
    preset("zai-org/GLM-4.1V-9B-Thinking", 9_400_279_040, include_str!("presets/glm-4.1v-9b-thinking.json")),
    preset("mistralai/Ministral-3-3B-Base-2512", 3_429_006_336, include_str!("presets/ministral-3-3b-base-2512.json")),
    preset(
        "canopylabs/orpheus-3b-0.1-pretrained",
        3_300_867_072,
        include_str!("presets/orpheus-3b-0.1-pretrained.json"),
    ),
    preset("mistralai/Mistral-Nemo-Base-2407", 12_247_782_400, include_str!("presets/mistral-nemo-base-2407.json")),
    preset("Qwen/Qwen2.5-VL-3B-Instruct", 3_085_938_688, include_str!("presets/qwen2.5-vl-3b-instruct.json")),
    preset("mistral-community/pixtral-12b", 12_247_782_400, include_str!("presets/pixtral-12b.json")),
    preset("Salesforce/xgen-7b-8k-base", 6_895_702_016, include_str!("presets/xgen-7b-8k-base.json")),
    preset(
        "sapientinc/HRM-checkpoint-sudoku-extreme",
        27_275_266,
        include_str!("presets/hrm-checkpoint-sudoku-extreme.json"),
    ),
    preset(
        "sapientinc/HRM-checkpoint-maze-30x30-hard",
        27_270_146,
        include_str!("presets/hrm-checkpoint-maze-30x30-hard.json"),
    ),
    preset("sapientinc/HRM-checkpoint-ARC-2", 27_276_290, include_str!("presets/hrm-checkpoint-arc-2.json")),
    preset("LiquidAI/LFM2-350M", 354_483_968, include_str!("presets/lfm2-350m.json")),
    preset("LiquidAI/LFM2-700M", 742_489_344, include_str!("presets/lfm2-700m.json")),
    preset("LiquidAI/LFM2-1.2B", 1_170_340_608, include_str!("presets/lfm2-1.2b.json")),
    preset("LiquidAI/LFM2-2.6B", 2_569_272_320, include_str!("presets/lfm2-2.6b.json")),
    preset("LiquidAI/LFM2-8B-A1B", 8_339_929_856, include_str!("presets/lfm2-8b-a1b.json")),
    preset("mistralai/Mamba-Codestral-7B-v0.1", 7_285_403_648, include_str!("presets/mamba-codestral-7b-v0.1.json")),
    preset("ai21labs/Jamba-v0.1", 51_570_323_328, include_str!("presets/jamba-v0.1.json")),
    preset("ai21labs/AI21-Jamba-1.5-Mini", 51_570_323_328, include_str!("presets/ai21-jamba-1.5-mini.json")),
    preset("state-spaces/mamba-130m-hf", 129_135_360, include_str!("presets/mamba-130m-hf.json")),
    preset("state-spaces/mamba-2.8b-hf", 2_768_345_600, include_str!("presets/mamba-2.8b-hf.json")),
    preset("tiiuae/falcon-mamba-7b", 7_272_665_088, include_str!("presets/falcon-mamba-7b.json")),
    preset("Zyphra/Zamba2-1.2B", 1_215_064_704, include_str!("presets/zamba2-1.2b.json")),
    preset("tiiuae/Falcon-H1-0.5B-Base", 521_411_104, include_str!("presets/falcon-h1-0.5b-base.json")),
    preset("tiiuae/Falcon-H1-7B-Base", 7_585_513_568, include_str!("presets/falcon-h1-7b-base.json")),
    preset("ibm-ai-platform/Bamba-9B-v1", 9_780_235_392, include_str!("presets/bamba-9b-v1.json")),
    preset("ibm-granite/granite-4.0-h-micro", 3_191_396_096, include_str!("presets/granite-4.0-h-micro.json")),
    preset("ibm-granite/granite-4.0-h-tiny", 6_939_037_248, include_str!("presets/granite-4.0-h-tiny.json")),
    preset("ibm-granite/granite-4.0-h-small", 32_207_337_984, include_str!("presets/granite-4.0-h-small.json")),
    preset("nvidia/Nemotron-H-8B-Base-8K", 8_100_852_736, include_str!("presets/nemotron-h-8b-base-8k.json")),
    preset("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8_888_227_328, include_str!("presets/nvidia-nemotron-nano-9b-v2.json")),
    preset("black-forest-labs/FLUX.1-dev", 11_901_408_320, include_str!("presets/flux.1-dev.json")),
    preset("black-forest-labs/FLUX.1-schnell", 11_891_178_560, include_str!("presets/flux.1-schnell.json")),
    preset(
        "stabilityai/stable-diffusion-3-medium-diffusers",
        2_028_328_000,
        include_str!("presets/stable-diffusion-3-medium-diffusers.json"),
    ),
    preset(
        "stabilityai/stable-diffusion-3.5-medium",
        2_243_171_520,
        include_str!("presets/stable-diffusion-3.5-medium.json"),
    ),
    preset(
        "stabilityai/stable-diffusion-3.5-large",
        8_056_627_520,
        include_str!("presets/stable-diffusion-3.5-large.json"),
    ),
    preset(
        "stable-diffusion-v1-5/stable-diffusion-v1-5",
        859_520_964,
        include_str!("presets/stable-diffusion-v1-5.json"),
    ),
    preset(
        "stabilityai/stable-diffusion-xl-base-1.0",
        2_567_463_684,
        include_str!("presets/stable-diffusion-xl-base-1.0.json"),
    ),
];

/// What people call the folders that models lie in, and no publisher is called.
const FOLDERS: [&str; 3] = ["models", "checkpoints", "weights"];

/// Letters that a beginning of a name has at least.
const MIN_BEGINNING: usize = 4;

impl Preset {
    /// The preset called `name`: a hub name, a mirror's of it, or its part after the `/`, whatever the case.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::of_publisher(name).or_else(|| Self::of_publisher(copies::mirrored_name(name)?))
    }

    fn of_publisher(name: &str) -> Option<&'static Self> {
        let target = ALIASES.iter().find(|(alias, _)| is_called(alias, name)).map_or(name, |(_, target)| target);
        PRESETS.iter().find(|preset| is_called(preset.name, target))
    }

    /// The preset that a folder of this path is called after: `$HOME/models/Qwen2.5-3B-Instruct`.
    pub fn of_folder(path: &str) -> Option<&'static Self> {
        let (parents, name) = path.trim_end_matches('/').rsplit_once('/')?;
        let is_name = super::hub::is_full_name(path) && !FOLDERS.contains(&parents.to_lowercase().as_str());
        Self::find(name).filter(|_| !is_name)
    }

    /// The full hub name that `name` stands for: the preset's, or the alias under which it was found.
    pub fn full_name(&self, name: &str) -> &'static str {
        ALIASES.iter().map(|(alias, _)| *alias).find(|alias| is_called(alias, name)).unwrap_or(self.name)
    }

    /// In the order in which `tonnage models` lists them.
    pub fn all() -> &'static [Self] {
        PRESETS
    }

    /// The preset name that a mistyped one most likely meant.
    pub fn nearest(name: &str) -> Option<&'static str> {
        let names = || PRESETS.iter().map(|preset| preset.name).chain(ALIASES.iter().map(|(alias, _)| *alias));
        // Who leaves the end of a name out (`mistral-7b`) meant what begins so.
        let begin = short_name(name).to_lowercase();
        let goes_on = |full: &&str| {
            let full = short_name(full).to_lowercase();
            full.strip_prefix(&begin).is_some_and(|rest| rest.starts_with(['-', '.', '_']))
        };
        let begun = || names().find(goes_on).filter(|_| begin.len() >= MIN_BEGINNING);
        begun().or_else(|| nearest(name, names())).or_else(|| {
            let short = nearest(name, names().map(short_name))?;
            names().find(|full| short_name(full) == short)
        })
    }

    /// The model that the config describes.
    ///
    /// # Errors
    /// When nothing simulates its model type.
    pub fn model(&self) -> Result<HfModel, JobError> {
        hf::parse_config(self.name, "config.json", self.config)
    }
}

fn is_called(full: &str, name: &str) -> bool {
    full.eq_ignore_ascii_case(name) || short_name(full).eq_ignore_ascii_case(name)
}

fn short_name(full: &str) -> &str {
    full.rsplit_once('/').map_or(full, |(_, short)| short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::architecture::{Architecture, find_architecture};
    use crate::model_type::is_mirrored;

    #[test]
    fn every_preset_parses_with_its_counted_parameters() {
        let counted: serde_json::Value =
            serde_json::from_str(include_str!("../../../../testdata/presets/parameters.json")).unwrap();
        for preset in Preset::all() {
            let stem = short_name(preset.name).to_lowercase();
            assert_eq!(counted["parameters"][&stem], preset.parameters, "{}", preset.name);
            let model = preset.model().unwrap();
            let model_type = &model.spec.model_type;
            let stood_for = matches!(find_architecture(model_type), Some(Architecture::Decoder));
            assert!(is_mirrored(model_type) || stood_for, "{}", preset.name);
        }
        assert_eq!(counted["parameters"].as_object().unwrap().len(), Preset::all().len());
    }

    #[test]
    fn every_name_means_one_preset() {
        let full: Vec<_> = Preset::all().iter().map(|p| p.name).chain(ALIASES.iter().map(|(a, _)| *a)).collect();
        for name in &full {
            let called = full.iter().filter(|other| other.eq_ignore_ascii_case(name)).count();
            assert_eq!(called, 1, "{name}");
            assert!(Preset::find(&name.to_uppercase()).is_some(), "{name}");
        }
        for (alias, target) in ALIASES {
            assert_eq!(Preset::find(alias).unwrap().name, *target);
        }
    }

    #[test]
    fn finds_short_names_and_suggests() {
        let found = |name| Preset::find(name).map(|preset| preset.name);
        assert_eq!(found("gpt2"), Some("openai-community/gpt2"));
        assert_eq!(found("qwen2.5-7b-instruct"), Some("Qwen/Qwen2.5-7B"));
        assert_eq!(Preset::find("qwen2.5-7b-it").map(|preset| preset.name), None);
        let instruct = Preset::find("QWEN2.5-7b-instruct").unwrap();
        assert_eq!(instruct.full_name("QWEN2.5-7b-instruct"), "Qwen/Qwen2.5-7B-Instruct");
        assert_eq!(found("bert-base-uncased"), Some("google-bert/bert-base-uncased"));
        assert_eq!(found("someone/gpt2"), None);
        assert_eq!(found("unsloth/Llama-3.2-1B-Instruct"), Some("meta-llama/Llama-3.2-1B"));
        let folder = |path| Preset::of_folder(path).map(|preset| preset.name);
        assert_eq!(folder("models/Qwen2.5-7B"), Some("Qwen/Qwen2.5-7B"));
        assert_eq!(folder("$HOME/models/qwen2.5-7b-instruct/"), Some("Qwen/Qwen2.5-7B"));
        for other in ["someone/gpt2", "gpt2", "models/my-own", "Qwen/Qwen2.5-7B"] {
            assert_eq!(folder(other), None, "{other}");
        }
        assert_eq!(Preset::nearest("qwen2.5-7bb"), Some("Qwen/Qwen2.5-7B"));
        assert_eq!(Preset::nearest("meta-llama/Lama-3.1-8B"), Some("meta-llama/Llama-3.1-8B"));
        assert_eq!(Preset::nearest("gtp2"), Some("openai-community/gpt2"));
        assert_eq!(Preset::nearest("bert-base"), Some("google-bert/bert-base-uncased"));
        assert_eq!(Preset::nearest("mistral-7b"), Some("mistralai/Mistral-7B-v0.1"));
        assert_eq!(Preset::nearest("flux"), Some("black-forest-labs/FLUX.1-dev"));
        assert_eq!(Preset::nearest("a-model-nobody-has"), None);
    }
}
