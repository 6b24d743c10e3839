//! What configs come to.

use serde_json::json;
use tonnage_config::{Became, ConfigText, Kind, Object, Reading, read_files, read_objects};
use tonnage_core::job::{Allowance, JobError, JobSource, Resolved};

fn reading(files: &[(&str, &str)]) -> Result<Reading, JobError> {
    let files: Vec<_> = files.iter().map(|(name, text)| (None, ConfigText { name, text })).collect();
    read_files(&files)
}

fn job(files: &[(&str, &str)]) -> Result<Resolved, JobError> {
    reading(files)?.as_source(JobSource::new())?.resolve(&[])
}

fn said(resolved: &Resolved, key: &str) -> String {
    resolved.provenance.iter().find(|value| value.key == key).map_or_else(String::new, |value| value.value.clone())
}

const SFT: &str =
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nper_device_train_batch_size: 4\nlearning_rate: 1.0e-5\n";

#[test]
fn trl_sft_is_fp32_weights_under_bf16_autocast_unless_it_says_otherwise() {
    let resolved = job(&[("sft.yaml", SFT)]).unwrap();
    let keys = ["precision", "seq_len", "micro_batch_size", "gradient_checkpointing", "framework", "device_map"];
    let values: Vec<String> = keys.iter().map(|key| said(&resolved, key)).collect();
    assert_eq!(values, ["\"amp-bf16\"", "512", "4", "true", "\"trl\"", "true"]);
    let with = |more: &str| said(&job(&[("sft.yaml", &format!("{SFT}{more}"))]).unwrap(), "precision");
    assert_eq!(with("dtype: bfloat16\n"), "\"bf16-amp\"");
    assert_eq!(with("dtype: bfloat16\nbf16: false\n"), "\"bf16\"");
    assert_eq!(with("fp16: true\n"), "\"amp-fp16\"");
    assert_eq!(with("dtype: auto\n"), "\"bf16-amp\"", "Qwen2.5 was published in bf16");
    assert_eq!(with("torch_dtype: bfloat16\n"), "\"amp-bf16\"", "TRL 1.16 leaves torch_dtype unread");
    let error = job(&[("sft.yaml", &format!("{SFT}dtype: float16\nfp16: true\n"))]).unwrap_err();
    assert_eq!(error.place.unwrap().line, 6);
}

#[test]
fn decay_that_copies_gradients_is_read_and_implied() {
    let copies = |name: &str, text: &str| {
        let resolved = job(&[(name, text)]).unwrap();
        resolved.job.decays && resolved.job.optimizer.adds_decay()
    };
    let sft = |more: &str| copies("sft.yaml", &format!("{SFT}{more}"));
    assert!(sft("optim: sgd\nweight_decay: .1\n") && sft("optim: adagrad\nweight_decay: 1e-2\n"));
    assert!(!sft("optim: sgd\n") && !sft("optim: sgd\nweight_decay: 0\n") && !sft("weight_decay: 0.1\n"));
    let titan = |optimizer: &str| {
        let model = "[job]\ndump_folder = \"a\"\n[model]\nname = \"llama3\"\nflavor = \"8B\"\ntokenizer_path = \"a\"\n";
        let training =
            "[training]\nbatch_size = 1\nseq_len = 512\nsteps = 10\n[parallelism]\ndata_parallel_shard_degree = 8\n";
        let text = format!("{model}{training}[optimizer]\nname = \"Adam\"\n{optimizer}");
        copies("train.toml", &text)
    };
    assert!(titan("implementation = \"foreach\"\n") && !titan(""));
    assert!(!titan("implementation = \"foreach\"\nweight_decay = 0.0\n"), "its default is 0.1");
}

#[test]
fn errors_stand_where_the_key_stands() {
    let error = job(&[("sft.yaml", &format!("{SFT}lora_r: many\nuse_peft: true\n"))]).unwrap_err();
    assert_eq!((error.key(), error.place.as_ref().map(|place| place.line)), (Some("lora.r"), Some(5)));
    let error = job(&[("sft.yaml", &format!("{SFT}use_cpu: true\n"))]).unwrap_err();
    assert!(error.hint.is_some());
    assert_eq!(error.place.unwrap().line, 5);
}

#[test]
fn files_of_one_job_are_read_together() {
    let accelerate =
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n";
    let arguments = "output_dir: out\nper_device_train_batch_size: 2\nmodel_name_or_path: gpt2\nblock_size: 128\n";
    let resolved = job(&[("train.yaml", arguments), ("accelerate.yaml", accelerate)]).unwrap();
    let keys = ["world_size", "parallel", "precision", "framework"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["4", "\"ddp\"", "\"amp-bf16\"", "\"trainer\""]);
    let deepspeed =
        r#"{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}"#;
    let named = format!("{arguments}bf16: true\ndeepspeed: configs/ds.json\n");
    let resolved = job(&[("train.yaml", &named), ("ds.json", deepspeed)]).unwrap();
    let keys = ["parallel", "deepspeed.stage", "precision"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["\"deepspeed\"", "2", "\"bf16\""]);
    // A file that is named and not given is asked for.
    let alone = reading(&[("train.yaml", &named)]).unwrap();
    assert_eq!(alone.wanted(), ["configs/ds.json"]);
    assert!(alone.as_source(JobSource::new()).is_err());
}

#[test]
fn files_that_contradict_each_other_are_refused() {
    let deepspeed = r#"{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 8}"#;
    let arguments = "output_dir: out\nper_device_train_batch_size: 2\nmodel_name_or_path: gpt2\nblock_size: 64\ndeepspeed: ds.json\n";
    let error = job(&[("train.yaml", arguments), ("ds.json", deepspeed)]).unwrap_err();
    assert!(error.problem.contains("micro_batch_size"), "{error}");
}

#[test]
fn what_is_typed_goes_before_what_a_config_says() {
    let typed = JobSource::new().set("seq_len", 64).set("precision", "fp32");
    let resolved = reading(&[("sft.yaml", SFT)]).unwrap().as_source(typed).unwrap().resolve(&[]).unwrap();
    assert_eq!((said(&resolved, "seq_len"), said(&resolved, "precision")), ("64".to_owned(), "\"fp32\"".to_owned()));
}

#[test]
fn a_key_that_nobody_knows_keeps_a_job_from_surely_fitting() {
    let reading = reading(&[("sft.yaml", &format!("{SFT}extra_heads: 8\n"))]).unwrap();
    let unknown: Vec<_> =
        reading.keys().filter(|read| read.became == Became::NotUnderstood).map(|read| read.key.as_str()).collect();
    assert_eq!(unknown, ["extra_heads"]);
    let source = reading.as_source(JobSource::new()).unwrap();
    assert!(
        source.left_open.iter().any(|left| left.allowance == Allowance::Unknown && left.text.contains("extra_heads"))
    );
}

#[test]
fn a_command_line_says_the_launchers_ranks_too() {
    let text = "MODEL=gpt2\naccelerate launch --num_processes 2 --mixed_precision bf16 \\\n  run_clm.py --model_name_or_path $MODEL \\\n  --block_size=128 --per_device_train_batch_size 2 --output_dir out\n";
    let resolved = job(&[("train.sh", text)]).unwrap();
    let keys = ["world_size", "seq_len", "precision", "micro_batch_size"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["2", "128", "\"amp-bf16\"", "2"]);
    let trl = "trl sft --model_name_or_path gpt2 --use_peft --lora_r 4 --lora_target_modules c_attn --max_length 64";
    let resolved = job(&[("train.sh", trl)]).unwrap();
    assert_eq!(["framework", "lora.r", "seq_len"].map(|key| said(&resolved, key)), ["\"trl\"", "4", "64"]);
}

#[test]
fn a_launchers_module_is_the_program_however_it_is_named() {
    let options = "--pretrain Qwen/Qwen2.5-0.5B --micro_train_batch_size 2 --max_len 512 --zero_stage 2";
    let launchers = [
        "deepspeed --module openrlhf.cli.train_sft",
        "deepspeed --module --num_gpus 1 openrlhf.cli.train_sft",
        "deepspeed -m openrlhf.cli.train_sft",
        "torchrun --nproc_per_node 1 --module openrlhf.cli.train_sft",
        "python3 -m torch.distributed.run --nproc_per_node 1 -m openrlhf.cli.train_sft",
    ];
    for launcher in launchers {
        let resolved = job(&[("run.sh", &format!("{launcher} {options}\n"))]).unwrap();
        let keys = ["model", "micro_batch_size", "seq_len"].map(|key| said(&resolved, key));
        assert_eq!(keys, ["\"Qwen/Qwen2.5-0.5B\"", "2", "512"], "{launcher}");
    }
}

#[test]
fn keys_within_tables_tell_whose_a_config_is() {
    let file =
        "data:\n  micro_batch_size_per_gpu: 4\n  max_length: 1024\nmodel:\n  partial_pretrain: Qwen/Qwen2.5-0.5B\n";
    let reading = reading(&[("sft.yaml", file)]).unwrap();
    assert_eq!(reading.files[0].kind, Kind::Verl);
}

#[test]
fn objects_of_python_are_read_by_their_attributes() {
    let arguments = json!({"per_device_train_batch_size": 2, "max_length": 256, "bf16": true, "report_to": ["none"]});
    let lora =
        json!({"r": 8, "target_modules": ["q_proj"], "lora_dropout": 0.0, "bias": "none", "modules_to_save": null});
    let model = json!({"dtype": "torch.bfloat16"});
    let table = |value: &serde_json::Value| value.as_object().unwrap().clone();
    let (arguments, lora, model) = (table(&arguments), table(&lora), table(&model));
    let objects = [("SFTConfig", &arguments), ("LoraConfig", &lora), ("model", &model)];
    let objects = objects.map(|(class, attributes)| Object { class, attributes });
    let reading = read_objects(&objects).unwrap();
    let resolved = reading.as_source(JobSource::model("Qwen/Qwen2.5-0.5B")).unwrap().resolve(&[]).unwrap();
    let keys = ["precision", "lora.r", "seq_len", "framework"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["\"bf16-amp\"", "8", "256", "\"trl\""]);
    let unknown = json!({"x": 1});
    let unknown = read_objects(&[Object { class: "MyConfig", attributes: unknown.as_object().unwrap() }]).unwrap();
    assert_eq!(unknown.keys().next().unwrap().became, Became::NotUnderstood);
}

fn of_objects(objects: &[(&str, serde_json::Value)]) -> Result<Resolved, JobError> {
    let objects = objects.iter().map(|(class, value)| Object { class, attributes: value.as_object().unwrap() });
    let reading = read_objects(&objects.collect::<Vec<_>>()).unwrap();
    reading.as_source(JobSource::model("Qwen/Qwen2.5-0.5B"))?.resolve(&[])
}

#[test]
fn a_switch_that_is_off_in_an_object_is_off() {
    let precision = |arguments| said(&of_objects(&[("SFTConfig", arguments)]).unwrap(), "precision");
    assert_eq!(precision(json!({"bf16": false, "fp16": false})), "\"fp32\"");
    assert_eq!(precision(json!({"bf16": true, "fp16": false})), "\"amp-bf16\"");
    assert_eq!(precision(json!({})), "\"amp-bf16\"", "bf16 is what SFTConfig takes by itself");
}

#[test]
fn a_model_that_the_trainer_loads_is_probed_as_it_does() {
    let arguments = || ("SFTConfig", json!({"max_length": 64}));
    let by_name = of_objects(&[arguments()]).unwrap();
    let live = of_objects(&[("model", json!({"dtype": "float32"})), arguments()]).unwrap();
    assert_eq!((said(&by_name, "device_map"), said(&live, "device_map") == "true"), ("true".to_owned(), false));
}

#[test]
fn a_class_of_ones_own_is_read_as_what_it_is_made_of() {
    let own = json!({"max_length": 128, "my_switch": 3});
    let resolved = of_objects(&[("MyConfig SFTConfig TrainingArguments", own)]).unwrap();
    assert_eq!(said(&resolved, "seq_len"), "128");
    let notes: Vec<_> = resolved.notes.iter().chain(resolved.job.left_open.iter().map(|left| &left.text)).collect();
    assert!(notes.iter().any(|note| note.contains("my_switch")), "{notes:?}");
}

#[test]
fn an_object_that_nobody_knows_is_named() {
    let open = |object| of_objects(&[object]).unwrap().job.left_open.clone();
    for object in [("Thing Base", json!({})), ("Thing", json!({"x": 1}))] {
        let left = open(object);
        assert!(left[0].text.contains("Thing") && left[0].allowance == Allowance::Unknown, "{left:?}");
    }
}

#[test]
fn what_grpo_has_by_default_is_no_caveat() {
    let texts = |arguments| {
        let resolved = of_objects(&[("GRPOConfig", arguments)]).unwrap();
        resolved.job.left_open.iter().map(|left| left.text.clone()).collect::<Vec<_>>().join("\n")
    };
    let by_default = texts(json!({"top_entropy_quantile": 1.0, "ds3_gather_for_generation": true}));
    assert!(!by_default.contains("entrop") && !by_default.contains("gathered"), "{by_default}");
    let said = texts(json!({"top_entropy_quantile": 0.2, "ds3_gather_for_generation": false}));
    assert!(said.contains("entropies of all tokens") && said.contains("not gathered"), "{said}");
}

#[test]
fn arguments_for_the_cpu_are_answered_for_a_gpu() {
    let resolved = of_objects(&[("SFTConfig", json!({"use_cpu": true, "bf16": true}))]).unwrap();
    assert!(
        resolved.job.left_open.iter().any(|left| left.text.contains("use_cpu") && left.allowance == Allowance::None)
    );
    assert!(job(&[("sft.yaml", &format!("{SFT}use_cpu: true\n"))]).is_err(), "a file says where it runs");
}

#[test]
fn what_only_a_live_model_shows_is_a_caveat() {
    let left_open = |fact: &str| {
        let model = json!({"dtype": "bfloat16", fact: "3 of 290"});
        of_objects(&[("model", model)]).unwrap().job.left_open.clone()
    };
    assert_eq!(left_open("frozen")[0].allowance, Allowance::Less);
    for fact in ["other_dtypes", "other_size", "adapters", "hooks"] {
        let left = left_open(fact);
        assert!(left[0].allowance == Allowance::Unknown && left[0].text.contains(fact), "{left:?}");
    }
}

#[test]
fn deepspeed_as_a_table_is_read_in_its_place() {
    let zero = json!({"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": true, "contiguous_gradients": true});
    let table = json!({"zero_optimization": zero, "bf16": {"enabled": true}, "made_up": 1});
    let arguments = json!({"per_device_train_batch_size": 2, "bf16": true, "deepspeed": table, "world_size": 4});
    let resolved = of_objects(&[("TrainingArguments", arguments)]).unwrap();
    let keys = ["parallel", "deepspeed.stage", "world_size", "precision"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["\"deepspeed\"", "2", "4", "\"bf16\""]);
    let gradients = ["deepspeed.reduce_bucket_size", "deepspeed.overlap_comm"].map(|key| said(&resolved, key));
    assert_eq!(gradients, ["200000000", "true"]);
    let undivided = json!({"zero_optimization": {"stage": 0, "reduce_bucket_size": 2e8, "overlap_comm": false}});
    let arguments = json!({"per_device_train_batch_size": 2, "deepspeed": undivided, "world_size": 4});
    assert_eq!(said(&of_objects(&[("TrainingArguments", arguments)]).unwrap(), "parallel"), "\"ddp\"");
    assert!(resolved.job.left_open.iter().any(|left| left.text.contains("deepspeed.made_up")));
    let with_adam = |params| {
        let optimizer = json!({"type": "AdamW", "params": params});
        let arguments = json!({"per_device_train_batch_size": 2, "world_size": 4,
            "deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "optimizer": optimizer}});
        let left_open = of_objects(&[("TrainingArguments", arguments)]).unwrap().job.left_open;
        left_open.iter().any(|left| left.allowance == Allowance::Unknown)
    };
    assert!(with_adam(json!({"lr": 1e-4, "torch_adam": true})), "PyTorch's own Adam makes temporaries");
    assert!(!with_adam(json!({"lr": 1e-4, "torch_adam": false})) && !with_adam(json!({"lr": 1e-4})));
}

#[test]
fn a_notebooks_keywords_are_read_and_names_followed() {
    let cell = "from trl import SFTConfig\nlength = 2 * 512\nargs = SFTConfig(\n  max_length = length, # tokens\n  bf16 = True,\n  optim = 'adamw_8bit',\n)\nmodel = AutoModelForCausalLM.from_pretrained(\"gpt2\", dtype=torch.bfloat16)";
    let notebook = json!({"cells": [{"cell_type": "code", "source": cell}]}).to_string();
    let resolved = job(&[("a.ipynb", &notebook)]).unwrap();
    let keys = ["seq_len", "precision", "optimizer", "framework"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["1024", "\"bf16-amp\"", "\"adamw8bit\"", "\"trl\""]);
}

#[test]
fn calls_within_calls_are_read() {
    let script = "length = 256\ntrainer = SFTTrainer(\n    model=\"Qwen/Qwen2.5-0.5B\",\n    peft_config=LoraConfig(r = 4),\n    \
                  args=SFTConfig(\n        max_length = length,\n        per_device_train_batch_size = 3,\n        made_up = 1,\n    ),\n)\n";
    let reading = reading(&[("train.py", script)]).unwrap();
    let keys: Vec<&str> = reading.files[0].keys.iter().map(|key| key.key.as_str()).collect();
    assert!(keys.contains(&"SFTConfig(made_up)"), "{keys:?}");
    let resolved = job(&[("train.py", script)]).unwrap();
    let values = ["model", "seq_len", "micro_batch_size", "lora.r"].map(|key| said(&resolved, key));
    assert_eq!(values, ["\"Qwen/Qwen2.5-0.5B\"", "256", "3", "4"]);
    // A bracket that nothing opened ends nothing, and holds up nothing.
    let torn =
        job(&[("train.py", "SFTTrainer(\"Qwen/Qwen2.5-0.5B\", args=SFTConfig(max_length=256, ] bf16=True, }))")]);
    assert_eq!(said(&torn.unwrap(), "seq_len"), "256");
    let nested = format!("{}1{}", "SFTConfig(a=".repeat(20_000), ")".repeat(20_000));
    assert!(job(&[("train.py", &nested)]).unwrap_err().to_string().contains("too deep"));
}

#[test]
fn the_first_argument_of_arguments_is_their_folder_and_what_is_unpacked_is_named() {
    let became = |arguments: &str| {
        let reading = reading(&[("train.py", &format!("args = TrainingArguments({arguments}, bf16=True)"))]).unwrap();
        reading.files[0].keys[0].became.clone()
    };
    assert!(matches!(became("\"out\""), Became::NoMemory(_)));
    assert_eq!(became("**common"), Became::NotUnderstood);
}

#[test]
fn unsloth_loads_4_bits_unless_it_is_told_otherwise() {
    let script = |more: &str| {
        format!(
            "m, t = FastLanguageModel.from_pretrained(\"Qwen/Qwen2.5-0.5B\", max_seq_length=512{more})\n\
             m = FastLanguageModel.get_peft_model(m, r=16)\nSFTConfig(per_device_train_batch_size=2)\n"
        )
    };
    let values = |more: &str| {
        let resolved = job(&[("unsloth.py", &script(more))]).unwrap();
        assert!(resolved.job.left_open.iter().any(|open| open.allowance == Allowance::Unknown), "its kernels: {more}");
        (said(&resolved, "quantization"), said(&resolved, "bnb_4bit_use_double_quant"))
    };
    let four_bits = ("\"nf4\"".to_owned(), "true".to_owned());
    assert_eq!(values(""), four_bits);
    assert_eq!(values(", load_in_4bit=True"), four_bits);
    assert_eq!(values(", load_in_8bit=True").0, "\"int8\"");
    for more in [", load_in_4bit=False", ", load_in_16bit=True", ", load_in_4bit=True, full_finetuning=True"] {
        assert_ne!(values(more), four_bits, "{more}");
    }
}

#[test]
fn every_kind_has_a_name_and_no_key_of_a_table_twice() {
    for (kind, name, what) in tonnage_config::KINDS {
        assert_eq!(Kind::find_kind(name), Some(*kind));
        assert!(!what.is_empty());
        let mut seen = std::collections::BTreeSet::new();
        for table in kind.tables() {
            let mut own = std::collections::BTreeSet::new();
            for key in table.keys() {
                assert!(own.insert(key), "{name}: `{key}` twice in a table");
                seen.insert(key);
            }
        }
        assert_eq!(seen.is_empty(), *name == "python");
    }
}

/// A recipe of Axolotl's as people publish it.
fn recipe(more: &str) -> String {
    format!("base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: auto\n{more}")
}

#[test]
fn patterns_of_target_modules_become_the_names_they_end_in() {
    let lora = "adapter: lora\nlora_r: 8\nlora_target_modules: ";
    let all = recipe(&format!("{lora}'model.layers.[\\d]+.(mlp|self_attn).(up|down|q)_proj'\n"));
    assert_eq!(said(&job(&[("recipe.yml", &all)]).unwrap(), "lora.targets"), "[\"up_proj\",\"down_proj\",\"q_proj\"]");
    let some = recipe(&format!("{lora}'model.layers.(3|7).self_attn.(q|v)_proj'\n"));
    let read = reading(&[("recipe.yml", &some)]).unwrap();
    let noted = read.keys().find(|read| read.key == "lora_target_modules").unwrap();
    assert!(matches!(noted.became, Became::Noted(_, Allowance::Less)), "{noted:?}");
    let other = recipe(&format!("{lora}'(?!lm_head).*'\n"));
    assert!(job(&[("recipe.yml", &other)]).unwrap_err().problem.contains("pattern of names"));
}

#[test]
fn what_is_offloaded_to_the_host_is_said_where_it_is_simulated() {
    let fsdp = "fsdp:\n  - full_shard\nfsdp_config:\n  fsdp_offload_params: true\n  cpu_offload_pin_memory: false\n";
    let resolved = job(&[("recipe.yml", &recipe(fsdp))]).unwrap();
    let keys = ["fsdp2.cpu_offload", "fsdp2.cpu_offload_pin_memory"].map(|key| said(&resolved, key));
    assert_eq!(keys, ["true", "false"]);
    let arguments = "output_dir: out\nper_device_train_batch_size: 2\nmodel_name_or_path: gpt2\nblock_size: 64\ndeepspeed: ds.json\n";
    let deepspeed = |stage: u8, device: &str| {
        let offload = format!("{{\"device\": \"{device}\", \"pin_memory\": false}}");
        let zero = format!("{{\"zero_optimization\": {{\"stage\": {stage}, \"offload_optimizer\": {offload}}}}}");
        job(&[("train.yaml", arguments), ("ds.json", &zero)]).unwrap()
    };
    let simulated = deepspeed(2, "cpu");
    let keys_of_states = ["deepspeed.offload_optimizer", "deepspeed.offload_pin_memory"];
    assert_eq!(keys_of_states.map(|key| said(&simulated, key)), ["true", "false"]);
    let stage_3 = deepspeed(3, "cpu");
    assert_eq!(keys_of_states.map(|key| said(&stage_3, key)), ["true", "false"]);
    for counted in [deepspeed(2, "nvme"), deepspeed(3, "nvme")] {
        assert!(said(&counted, "deepspeed.offload_optimizer") != "true");
        assert!(counted.job.left_open.iter().any(|left| left.allowance == Allowance::Less));
    }
}

#[test]
fn weights_on_the_host_are_said_where_stage_3_has_all_of_them_there() {
    let arguments = "output_dir: out\nper_device_train_batch_size: 2\nmodel_name_or_path: gpt2\nblock_size: 64\ndeepspeed: ds.json\n";
    let deepspeed = |stage: u8, more: &str| {
        let zero = format!(
            "{{\"zero_optimization\": {{\"stage\": {stage}, \"offload_optimizer\": {{\"device\": \"cpu\"{more}}}, \
             \"offload_param\": {{\"device\": \"cpu\", \"pin_memory\": false}}}}}}"
        );
        job(&[("train.yaml", arguments), ("ds.json", &zero)]).unwrap()
    };
    let keys = ["deepspeed.offload_optimizer", "deepspeed.offload_param", "deepspeed.offload_param_pin_memory"];
    assert_eq!(keys.map(|key| said(&deepspeed(3, ""), key)), ["true", "true", "false"]);
    for in_part in [", \"ratio\": 0.5", ", \"super_offload\": true"] {
        let resolved = deepspeed(3, in_part);
        assert!(said(&resolved, keys[0]) != "true");
        assert!(resolved.job.left_open.iter().any(|left| left.allowance == Allowance::Less));
    }
    let accelerate = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n  \
                      offload_optimizer_device: cpu\n";
    let launched =
        job(&[("train.yaml", &arguments.replace("deepspeed: ds.json\n", "")), ("accelerate.yaml", accelerate)])
            .unwrap();
    assert_eq!(keys.map(|key| said(&launched, key)), ["true", "true", "true"]);
}

#[test]
fn axolotl_leaves_quantized_models_on_shards_and_with_packed_experts_unprepared() {
    let qlora = "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n";
    let resolved = |more: &str| job(&[("recipe.yml", &recipe(&format!("{qlora}{more}")))]).unwrap();
    let sharded = resolved("fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: false\n");
    assert_eq!(said(&sharded, "fsdp2.init"), "\"full\"");
    for (more, prepared, experts) in [
        ("", "true", "false"),
        ("quantize_moe_experts: true\n", "false", "true"),
        ("quantize_moe_experts: false\n", "true", "false"),
    ] {
        let resolved = resolved(more);
        assert_eq!(said(&resolved, "prepare_for_kbit_training"), prepared, "{more}");
        assert_eq!(said(&resolved, "quantize_moe_experts"), experts, "{more}");
    }
    assert_eq!(said(&sharded, "prepare_for_kbit_training"), "false");
    assert_eq!(said(&sharded, "lora.targets"), "[\"all-linear-names\"]");
}

#[test]
fn optimizers_have_the_names_of_a_job_file_and_those_nearby_widen() {
    for (word, ours, widens) in [
        ("adamw_torch_8bit", "adamw_torch_8bit", false),
        ("ao_adamw_8bit", "adamw_torch_8bit", false),
        ("adamw_torch_4bit", "adamw_torch_4bit", false),
        ("ao_adamw_4bit", "ao_adamw_4bit", false),
        ("adamw_torch_fused", "adamw_fused", false),
        ("paged_adamw", "paged_adamw_32bit", false),
        ("adamw_apex_fused", "adamw_fused", true),
        ("muon", "muon", true),
    ] {
        let text = recipe(&format!("optimizer: {word}\n"));
        let read = reading(&[("recipe.yml", &text)]).unwrap();
        let read = read.keys().find(|read| read.key == "optimizer").unwrap();
        assert_eq!(matches!(read.became, Became::Noted(_, Allowance::Fifth)), widens, "{read:?}");
        assert_eq!(said(&job(&[("recipe.yml", &text)]).unwrap(), "optimizer"), format!("\"{ours}\""));
    }
    let unsaid = job(&[("recipe.yml", &recipe("optimizer:\n"))]).unwrap();
    assert_eq!(said(&unsaid, "optimizer"), "\"adamw_fused\"");
}

#[test]
fn attention_that_is_not_simulated_for_a_model_is_pytorchs_with_a_range() {
    let attention = |text: &str| {
        let source = reading(&[("recipe.yml", text)]).unwrap().as_source(JobSource::new()).unwrap();
        let noted = source.left_open.iter().filter(|left| left.text.contains("sdpa")).map(|left| left.allowance);
        let noted: Vec<Allowance> = noted.collect();
        (said(&source.resolve(&[]).unwrap(), "attention"), noted)
    };
    let sdpa = "\"sdpa\"".to_owned();
    let phi =
        recipe("attn_implementation: flash_attention_2\n").replace("NousResearch/Meta-Llama-3-8B", "microsoft/phi-2");
    assert_eq!(attention(&phi), (sdpa.clone(), vec![Allowance::Fifth]));
    assert_eq!(attention(&recipe("flex_attention: true\n")), (sdpa, vec![Allowance::Unknown]));
    let read = reading(&[("recipe.yml", &recipe("attn_implementation: xformers\n"))]).unwrap();
    let noted = read.keys().find(|read| read.key == "attn_implementation").unwrap();
    assert!(matches!(noted.became, Became::Noted(_, Allowance::Fifth)), "{noted:?}");
    let xformers = job(&[("recipe.yml", &recipe("xformers_attention: true\n"))]).unwrap();
    assert_eq!(said(&xformers, "attention"), "\"mem_efficient\"");
    let llama = recipe("attn_implementation: flash_attention_2\n");
    assert_eq!(attention(&llama), ("\"flash_attention_2\"".to_owned(), vec![]));
    // What the package itself refuses stays refused.
    let old = reading(&[("recipe.yml", &phi)]).unwrap().as_source(JobSource::new().set("gpu", "t4")).unwrap();
    assert!(old.resolve(&[]).unwrap_err().problem.contains("Ampere GPUs or newer"));
}

#[test]
fn optimizers_that_save_an_unknown_part_are_bounded_on_neither_side() {
    let begin = "model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\nper_device_train_batch_size: 1\n";
    for switch in ["use_galore", "use_apollo", "use_badam", "use_adam_mini"] {
        let text = format!("{begin}pure_bf16: true\n{switch}: true\n");
        let source = reading(&[("recipe.yaml", &text)]).unwrap().as_source(JobSource::new()).unwrap();
        let allows = |allowance| source.left_open.iter().any(|left| left.allowance == allowance);
        assert!(allows(Allowance::Less) && allows(Allowance::Unknown), "{switch}");
    }
    let muon = job(&[("recipe.yaml", &format!("{begin}use_muon: true\n"))]).unwrap();
    assert_eq!(said(&muon, "optimizer"), "\"muon\"");
}

/// A config of LLaMA-Factory v1's form.
fn second_form(more: &str) -> String {
    format!("model: Qwen/Qwen3-0.6B\nmodel_class: llm\nmicro_batch_size: 2\ncutoff_len: 512\n{more}")
}

#[test]
fn the_second_form_of_llama_factory_is_read_by_its_tables() {
    let full = job(&[("v1.yaml", &second_form("dist_config:\n  name: fsdp2\n"))]).unwrap();
    let keys = ["parallel", "precision", "fsdp2.param_dtype", "gradient_checkpointing", "framework", "lora.r"];
    let said_by = |resolved: &Resolved| keys.map(|key| said(resolved, key));
    let expected = ["\"fsdp2\"", "\"fp32\"", "\"bf16\"", "true", "\"loop\"", ""];
    assert_eq!(said_by(&full), expected.map(str::to_owned));
    let lora = job(&[("v1.yaml", &second_form("peft_config:\n  name: lora\n  target_modules: all\n"))]).unwrap();
    assert_eq!(["lora.r", "precision"].map(|key| said(&lora, key)), ["8".to_owned(), "\"bf16\"".to_owned()]);
    let deepspeed =
        r#"{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}"#;
    let named = second_form("dist_config:\n  name: deepspeed\n  config_file: ds.json\n");
    let zero = job(&[("v1.yaml", &named), ("ds.json", deepspeed)]).unwrap();
    assert_eq!(said(&zero, "deepspeed.stage"), "3");
    // Its own loop was never measured: no figure of it surely fits.
    let source = reading(&[("v1.yaml", &second_form(""))]).unwrap().as_source(JobSource::new()).unwrap();
    assert!(source.left_open.iter().any(|left| left.allowance == Allowance::Unknown && left.text.contains("own loop")));
    let other = job(&[("v1.yaml", &second_form("dist_config:\n  name: fsdpturbo\n"))]).unwrap_err();
    assert!(other.problem.contains("fsdpturbo"), "{other}");
}
