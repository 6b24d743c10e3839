//! What is answered to words of other programs that nothing here means exactly.

pub(super) const LOW_RANK: &str = "write --optim-args \"rank=64, update_proj_gap=200\"";
pub(super) const EMA: &str = "write --ema ema_model_foreach, ema_model_offload or, for both, ema_model_foreach_offload: each stands for use_ema too";
pub(super) const FP8: &str =
    "fp8 is not simulated: `tonnage rehearse --gpu GPU -- python train.py` runs your script and tells its peak";
pub(super) const EXPERTS: &str = "ranks that share experts are not simulated: `tonnage rehearse --gpu GPU -- python train.py` runs your script \
                       and tells its peak";
pub(super) const DEVICE_MAP: &str = "on one GPU it is --device-map alone; layers laid over several GPUs are not simulated but as --parallel pipeline: \
                          `tonnage rehearse --gpu GPU -- python train.py` runs your script";
pub(super) const ADAPTER: &str =
    "adapters are --lora (rank 8) or --lora-r N; over weights in 4 bits --qlora, or --quantization nf4 with --lora-r N";
pub(super) const ZERO1: &str = "ZeRO-1 is DeepSpeed's, --parallel deepspeed --deepspeed-stage 1, or PyTorch's own ZeroRedundancyOptimizer, \
                     --parallel zero1";
pub(super) const CONTEXT_PARALLEL: &str = "ranks that share the tokens of a row by PyTorch's ring attention (accelerate's cp_size) are --framework loop --parallel fsdp2 \
                                --fsdp2-context-parallel-size N; Ulysses (sp_size) and the ring-flash-attn package are not simulated: \
                                `tonnage rehearse --gpu GPU -- python train.py` runs your script and tells its peak";
pub(super) const INTERLEAVED: &str = "write --set pipeline.schedule=interleaved_1f1b and, for how many stages each rank has, --set \
                           pipeline.stages_per_rank=N";
pub(super) const FOUR_BIT: &str = "quantized weights that adapters are trained on (QLoRA) are --quantization nf4 or int8 with --lora-r; --precision \
                        is what all else is stored and computed in";
pub(super) const BF16: &str = "bf16=True is autocast: write --precision amp-bf16 (over fp32 weights) or bf16-amp (over bf16 weights, as \
                    from_pretrained of transformers 5 loads most models); --precision bf16 has no autocast";
pub(super) const FP16: &str = "fp16=True is autocast with loss scaling: write --precision amp-fp16; --precision fp16 is fp16 weights and \
                    gradients";
pub(super) const OFFLOAD: &str = "what lies on the host is said as --fsdp2-cpu-offload true (with --parallel fsdp2) or --deepspeed-offload-optimizer true, \
                       at stage 3 --deepspeed-offload-param true beside it; other offloading is not simulated: `tonnage rehearse --gpu GPU -- python train.py` runs your \
                       script and tells its peak";
pub(super) const COMPILE: &str = "torch.compile is not simulated; what is estimated without it is more, as a rule: `tonnage rehearse --gpu \
                       GPU -- python train.py` runs your script";
pub(super) const PACKING: &str = "packed rows are rows of `seq_len` tokens: leave it out and say --seq-len; for padding-free batches \
                       `tonnage rehearse --gpu GPU -- python train.py` runs your script";
pub(super) const DEEPSPEED: &str = "a DeepSpeed config is read with --from deepspeed FILE; without one write --parallel deepspeed \
                         --deepspeed-stage 0, 1, 2 or 3 --world-size N";
pub(super) const FSDP: &str = "there are two versions of FSDP: write --parallel fsdp2 --world-size N for fully_shard, --parallel fsdp1 for \
                    FullyShardedDataParallel";
pub(super) const REENTRANT: &str =
    "write use_reentrant = true or false; left out it is what the version of transformers does where nothing is said";
pub(super) const LARGEST: &str = "`tonnage fit` finds the largest micro-batch of a job; `tonnage train` and `run` start with it where yours does not \
                       fit, at the same effective batch";
pub(super) const EMPTY_CACHE: &str = "emptying the cache between steps lowers no peak of a step, and the next step asks the driver for all of it again: leave \
                           it out";
pub(super) const ACCELERATE: &str =
    "accelerate's config is read with --from accelerate FILE; without one say --precision, --parallel and --world-size";
pub(super) const CONFIG: &str = "a trainer's config is read with --from FILE, a job of our own is the first word";
pub(super) const MEMORY: &str = "a GPU is named, or given by its memory: --gpu l4, --gpu 24GiB";
pub(super) const EVALUATORS: &str = "there is no checker of that kind: --grpo-reward judge_score pays what the judge thinks of it, judge_answer what a \
                          kind of question's checker says of the judge's answer";
pub(super) const CLIENTS: &str = "no server is asked: a judge runs in the trainer's own process, --judge-place same_gpu or cpu, from the folder of \
                       its weights, --judge-model";
pub(super) const FLASH_PACKAGE: &str = "version 3 of the flash-attn package is not simulated: version 2 is --attention flash_attention_2, \
                             SDPA's own kernel --attention flash; `tonnage rehearse` runs your script";
pub(super) const MEGATRON: &str = "Megatron is not simulated: --parallel tensor or pipeline is a model's share; `tonnage rehearse` runs your \
                        script";
pub(super) const LIGHTNING: &str =
    "Lightning's loop is not simulated: --framework loop is a plain one; `tonnage rehearse` runs your script";
pub(super) const SHAMPOO: &str = "Shampoo in blocks is not simulated: `shampoo` is pytorch_optimizer's with whole preconditioners, `soap` its SOAP; \
                    `tonnage rehearse` runs your script";
pub(super) const OTHER_DEVICES: &str =
    "it steps on devices that are no GPUs: adamw_torch_fused is what the Trainer has on a GPU";
pub(super) const ADAMW_HF: &str =
    "transformers 5 has no adamw_hf: adamw_torch is --optimizer adamw, adamw_torch_fused is adamw_fused";
pub(super) const APEX: &str =
    "apex is not simulated: --optimizer adamw_fused is PyTorch's fused AdamW; `tonnage rehearse` runs your script";
pub(super) const ANYPRECISION: &str =
    "torchdistx is not simulated: stable_adamw sums with Kahan's correction too; `tonnage rehearse` runs your script";
pub(super) const ADAFACTOR_LAYERWISE: &str = "transformers 5.17 makes GaLore's Adafactor with both a learning rate and a relative step, which it refuses: use \
             galore_adafactor";
pub(super) const DTYPE: &str = "write --precision: bf16, fp16 or fp32 weights without autocast; under bf16 autocast (bf16=True, TRL's default) \
                     it is bf16-amp over bf16 weights and amp-bf16 over fp32 weights";
pub(super) const FLASH: &str =
    "SDPA's own flash kernel is --attention flash; the flash-attn package is --attention flash_attention_2";
pub(super) const UNSLOTH: &str = "Unsloth's kernels are not simulated: `tonnage rehearse --gpu GPU -- python train.py` runs your script and \
                       tells its peak";
