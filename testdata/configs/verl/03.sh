# Own words: batches by tokens, a critic, a folder that is called as a published model.
model=$HOME/models/Qwen2.5-1.5B-Instruct
in=512 out=1536
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=gae \
    data.max_prompt_length=$in \
    data.max_response_length=$out \
    actor_rollout_ref.model.path=$model \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$(( (in + out) * 2 )) \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 \
    actor_rollout_ref.actor.entropy_coeff=0.001 \
    actor_rollout_ref.rollout.name=sglang \
    critic.model.path=$model \
    critic.ppo_max_token_len_per_gpu=8192 \
    reward_model.enable=False \
    trainer.n_gpus_per_node=8
