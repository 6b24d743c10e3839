//! What to write in place of values that other programs have.

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
pub(super) const TASK: &str = "this trainer is not simulated: `tonnage rehearse --gpu GPU -- python train.py` runs your script and tells its peak";
