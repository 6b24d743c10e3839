# The options of a run_clm.py as documented in huggingface/transformers, examples/pytorch/language-modeling.
torchrun --nproc_per_node 2 run_clm.py \
    --model_name_or_path openai-community/gpt2 \
    --dataset_name text \
    --dataset_config_name text \
    --per_device_train_batch_size 8 \
    --per_device_eval_batch_size 8 \
    --block_size 512 \
    --do_train \
    --do_eval \
    --bf16 \
    --output_dir text
