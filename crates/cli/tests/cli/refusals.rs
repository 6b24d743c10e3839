//! Every refusal of what is not modelled names the rehearsal that runs it, and every "does not fit" the plan of the same job.

use serde_json::{Value, json};

use super::tonnage;

/// A folder with this config.
fn config(name: &str, config: &Value) -> String {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("refused_{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder.to_str().unwrap().to_owned()
}

fn with(model_type: &str, more: &Value) -> Value {
    let mut config = json!({"model_type": model_type, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "max_position_embeddings": 512});
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    config
}

fn refused(words: &[&str]) {
    let output = tonnage(&[&["estimate"], words].concat());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(said.contains("tonnage rehearse") && said.contains("-- "), "{words:?}: {said}");
    // A rank that holds a share needs less than one process: no bound may be made of that.
    assert!(!said.contains("what one process needs"), "{words:?}: {said}");
    assert!(!said.contains("similar") && !said.contains("Usage"), "{words:?}: {said}");
}

#[test]
fn configs_that_are_not_modelled() {
    let quantized = json!({"quantization_config": {"quant_method": "fp8"}});
    let cases = [
        ("olmoe", json!({"num_experts": 8, "experts_implementation": "eager"})),
        ("phimoe", json!({})),
        ("mixtral", json!({"num_local_experts": 8, "router_jitter_noise": 0.1})),
        ("qwen3_moe", json!({"num_experts": 8, "experts_implementation": "eager"})),
        ("dbrx", json!({})),
        ("xlstm", json!({})),
        ("led", json!({})),
        ("albert", json!({})),
        ("altclip", json!({})),
        ("speech_to_text", json!({})),
        ("swin", json!({})),
        ("modernbert", json!({"sparse_prediction": true})),
        ("electra", json!({"architectures": ["ElectraForPreTraining"]})),
        ("deberta-v2", json!({"conv_kernel_size": 3})),
        ("dinov2", json!({"image_size": [126, 98]})),
        ("vit", json!({"architectures": ["ViTForMaskedImageModeling"]})),
        ("minicpm3", json!({})),
        ("chameleon", json!({})),
        ("llava", json!({})),
        ("nobody_knows", json!({})),
        ("llama", quantized),
        ("llama", json!({"architectures": ["LlamaForQuestionAnswering"]})),
        ("roberta", json!({"architectures": ["RobertaForQuestionAnswering"]})),
        ("xlm-roberta", json!({"architectures": ["XLMRobertaForSequenceClassification"], "num_labels": 1})),
        ("helium", json!({"num_local_experts": 8})),
        ("bert", json!({"is_decoder": true})),
        ("gemma2", json!({"use_bidirectional_attention": true, "head_dim": 16})),
        ("falcon", json!({"alibi": true})),
        ("opt", json!({"layerdrop": 0.1})),
        ("phi", json!({"tie_word_embeddings": true})),
        ("stablelm", json!({"qk_layernorm": true})),
    ];
    for (at, (model_type, more)) in cases.iter().enumerate() {
        refused(&[&config(&at.to_string(), &with(model_type, more)), "-b", "1", "-s", "64"]);
    }
}

#[test]
fn jobs_that_are_not_modelled() {
    let cases: [&[&str]; 24] = [
        &["qwen2.5-7b", "--task", "grpo", "--world-size", "8", "--parallel", "deepspeed", "--deepspeed-stage", "3"],
        &["llama-3.1-70b", "--task", "inference", "--world-size", "8", "--parallel", "tensor"],
        &["phi-3.5-moe-instruct"],
        &["mixtral-8x7b-v0.1", "--lora-r", "8", "--lora-targets", "all-linear"],
        &["mixtral-8x7b-v0.1", "--parallel", "tensor", "--world-size", "2"],
        &["gpt2", "--parallel", "tensor", "--world-size", "2"],
        &["llama-3.2-1b", "--parallel", "fsdp2", "--world-size", "2", "--optimizer", "adamw8bit"],
        &["llama-3.2-1b", "--parallel", "fsdp2", "--world-size", "2", "--precision", "amp-fp16"],
        &["llama-3.2-1b", "--parallel", "fsdp2", "--world-size", "2", "--optimizer", "adafactor"],
        &["llama-3.2-1b", "--task", "kto", "--parallel", "fsdp2", "--world-size", "2"],
        &["llama-3.2-1b", "--task", "grpo", "--parallel", "fsdp1", "--world-size", "2"],
        &["gpt2", "--attention", "flash_attention_2", "--precision", "bf16", "--gpu", "l4"],
        &["llama-3.2-1b", "--attention", "flash_attention_2", "--precision", "bf16", "--task", "grpo", "--gpu", "l4"],
        &["gpt2", "--loss", "liger"],
        &["llama-3.2-1b", "--load-in-4bit", "--lora-r", "8", "--task", "grpo"],
        &["llama-3.2-1b", "--quantization", "int8", "--lora-r", "8", "--parallel", "deepspeed", "--world-size", "2"],
        &[
            "llama-3.2-1b",
            "--quantization",
            "int8",
            "--lora-r",
            "8",
            "--parallel",
            "fsdp2",
            "--world-size",
            "2",
            "--precision",
            "bf16",
        ],
        &["gpt2", "--torch-compile"],
        &["gpt2", "--cpu-offload"],
        &["gpt2", "--task", "ppo", "--ppo-reward-model", "gpt2", "--precision", "amp-bf16"],
        &["llama-3.2-1b", "--lora-r", "8", "--lora-use-dora", "--quantization", "nf4"],
        &["llama-3.2-1b", "--lora-r", "8", "--lora-modules-to-save", "norm"],
        &["gpt2", "--precision", "fp8"],
        &["gpt2", "--lora-r", "8", "--lora-targets", "wte"],
    ];
    cases.into_iter().for_each(refused);
}

#[test]
fn what_does_not_fit_names_the_plan_of_the_same_job() {
    let gpu = ["--gpu", "2GiB,sm_86,multiprocessors=28"];
    let says = |words: &[&str], plan: &str| {
        let output = tonnage(words);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(plan), "{words:?}: {said}");
        let command: Vec<&str> = plan.trim_start_matches("tonnage ").split(' ').collect();
        assert_ne!(tonnage(&command).status.code(), Some(2), "{plan}");
    };
    let of_gpt2 = "tonnage plan gpt2 --gpu 2GiB,sm_86,multiprocessors=28 -b 4";
    says(&[&["estimate", "gpt2"][..], &gpu, &["-b", "4"]].concat(), of_gpt2);
    let compared = ["-b", "4", "--compare", "precision=fp32,bf16"];
    says(&[&["estimate", "gpt2"][..], &gpu, &compared].concat(), of_gpt2);
    says(&["estimate", "llama-3.1-70b", "-b", "1", "-s", "64"], "tonnage plan llama-3.1-70b -b 1 -s 64 --gpus all");
    let flags = "tonnage plan gpt2 --micro-batch-size=4 --gpu=2GiB,sm_86,multiprocessors=28";
    says(&[&["fit", "gpt2", "-b", "4", "--no-largest"][..], &gpu].concat(), flags);
    says(&[&["cost", "gpt2", "-b", "4", "--max-steps", "5"][..], &gpu].concat(), &format!("{flags} --max-steps=5"));
    says(
        &["fit", "gpt2", "-b", "64", "--no-largest", "--gpus", "2GiB,3GiB"],
        "tonnage plan gpt2 --micro-batch-size=64 --gpus 2GiB,3GiB",
    );
}

#[test]
fn the_rehearsal_is_shown_on_the_gpu_that_was_asked_for() {
    let folder = config("on_t4", &with("albert", &json!({})));
    let job = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("refused_on_t4.toml");
    std::fs::write(&job, format!("model = \"{folder}\"\ngpu = \"t4\"\n")).unwrap();
    for words in [
        &["estimate", &folder, "--gpu", "t4"][..],
        &["estimate", job.to_str().unwrap()],
        &["fit", &folder, "--gpus", "t4"],
        &["estimate", "gpt2", "--fp8", "--gpu=t4"],
        &["estimate", "gpt2", "--optimizer", "zampo", "--gpu", "t4"],
        &["estimate", "gpt2", "--set", "model.add_cross_attention=true", "--gpu", "t4"],
    ] {
        let said = String::from_utf8(tonnage(words).stderr).unwrap();
        assert!(said.contains("tonnage rehearse --gpu t4 -- python"), "{words:?}: {said}");
    }
}

#[test]
fn files_of_other_programs_where_the_model_stands() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("refused_sft.yaml");
    std::fs::write(&file, "model_name_or_path: gpt2\n").unwrap();
    let file = file.to_str().unwrap();
    for words in [&["estimate", file][..], &["plan", file, "--gpu", "t4"], &["fit", file], &["estimate", "none.yaml"]] {
        let said = String::from_utf8(tonnage(words).stderr).unwrap();
        assert!(said.contains("--from [KIND]") && !said.contains("broken JSON"), "{words:?}: {said}");
    }
    for words in [&["estimate", "train.py"][..], &["train.py"], &["rehearse", "python", "train.py"]] {
        let said = String::from_utf8(tonnage(words).stderr).unwrap();
        assert!(said.contains("tonnage rehearse -- python train.py"), "{words:?}: {said}");
    }
    refused(&["resnet50"]);
    refused(&["gpt2", "--gpu", "mi300x"]);
    refused(&["gpt2", "--transformers", "4.30"]);
}

#[test]
fn a_class_of_somebodys_own_is_never_said_to_fit() {
    let own = config("own_class", &with("llama", &json!({"architectures": ["MyOwnForCausalLM"]})));
    let output = tonnage(&["estimate", &own, "--gpu", "h100", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(answer["verdict"], "fits", "{answer}");
    assert!(answer.to_string().contains("MyOwnForCausalLM"), "{answer}");
}
