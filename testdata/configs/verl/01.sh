# The keys of volcengine/verl, examples/sft/gsm8k/run_deepseek_6b7.sh; texts replaced.
torchrun --standalone --nnodes=1 --nproc_per_node=$nproc_per_node \
     -m verl.trainer.fsdp_sft_trainer \
    data.train_files=text \
    data.val_files=text \
    data.prompt_key=text \
    data.response_key=text \
    data.prompt_dict_keys=['text'] \
    +data.response_dict_keys=['text'] \
    data.micro_batch_size_per_gpu=4 \
    model.partial_pretrain=deepseek-ai/deepseek-coder-6.7b-instruct \
    trainer.default_local_dir=text \
    trainer.project_name=text \
    trainer.experiment_name=text \
    trainer.total_epochs=4 \
    trainer.logger=text $@
