# Own words: lists of a shell, a key of Hydra's given twice, rows by the number.
set -x
export MODEL_PATH=${MODEL_PATH:-"Qwen/${SIZE:-Qwen2.5-0.5B}"}
prompt=256
DATA=(
    data.train_batch_size=64   # prompts a step
    data.max_prompt_length=$prompt
    "data.max_response_length=$((prompt * 3))"
)
ACTOR=(
    actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.fsdp_config.param_offload=True
)
ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=4
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4
    actor_rollout_ref.rollout.tensor_model_parallel_size=2
)
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    "${DATA[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" \
    trainer.nnodes=1 trainer.n_gpus_per_node=4 \
    trainer.total_epochs=1 "$@"
