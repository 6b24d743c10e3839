//! All layers of a job become one [`JobSpec`]: defaults, then the job file, then flags; every value keeps its origin.

mod chooser;
mod data;
mod embedding;
mod gkd;
mod job;
mod ppo;
mod preference;
mod quantization;
mod ranks;
mod trainer;
mod training;
mod vision;

use super::settings::{Origin, Override, Provenance, Setting, Settings};
use super::{
    FieldError, JobError, JobSource, JobSpec, Place, TrainingSpec, UnnamedGpu, WeightsBeside, check, keys,
    model_source, own_class,
};

use chooser::Chooser;

/// A job with the story of its values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// Every value decided.
    pub job: JobSpec,
    /// What its training learns by, and what is generated from it; nothing of it changes a byte.
    pub training: TrainingSpec,
    /// Every value and where it came from, in the order of the keys.
    pub provenance: Vec<Provenance>,
    /// What the answer must say about the input.
    pub notes: Vec<String>,
    /// Name and text of the config that was read, for the places of its errors.
    pub config_file: Option<(String, String)>,
}

impl Resolved {
    /// The error of a family about a field of the config, with the place or the flag that set it.
    pub fn locate(&self, error: &FieldError) -> JobError {
        let gpu = self.names_gpu().then_some(self.job.gpu.id.as_str());
        let located = JobError::from(error.clone()).on_gpu(gpu);
        match self.origin(&format!("model.{}", error.key)) {
            Some(Origin::JobFile(place)) => located.at_place(Some(place.clone())),
            Some(origin) if origin.is_above_file() => {
                let set_by = format!("it was set by {origin}");
                let hint = located.hint.as_ref().map_or_else(|| set_by.clone(), |hint| format!("{set_by}; {hint}"));
                located.hint(hint)
            }
            _ => located.at_place(self.config_file.as_ref().and_then(|(file, text)| place_of(file, text, &error.key))),
        }
    }

    /// The error of a job that cannot be run, with the place of the key that it names.
    pub fn locate_job(&self, error: JobError) -> JobError {
        at_key(&self.provenance, error)
    }

    /// Whether anybody said which GPU; the job has one in any case, whose kernels it is simulated with.
    pub fn names_gpu(&self) -> bool {
        !matches!(self.origin(keys::GPU), Some(Origin::Default(_)) | None)
    }

    /// Where the value of `key` came from.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.provenance.iter().find(|value| value.key == key).map(|value| &value.origin)
    }
}

/// The error with the place of the first of its keys that the job file sets.
fn at_key(provenance: &[Provenance], error: JobError) -> JobError {
    let place_of = |key: &String| {
        let decided = provenance.iter().find(|value| value.key == *key)?;
        model_source::place_of_origin(&decided.origin)
    };
    let place = error.keys.iter().find_map(place_of);
    error.at_place(place)
}

/// The same while values are still being decided.
fn at_setting(settings: &Settings, error: JobError) -> JobError {
    let place = error.keys.iter().find_map(|key| model_source::place_of_origin(&settings.get(key)?.origin));
    error.at_place(place)
}

/// Where a config says `key` first; a key that it leaves out has no place but the file.
fn place_of(file: &str, text: &str, key: &str) -> Option<Place> {
    let quoted = format!("\"{key}\"");
    let is_key = |at: &usize| text[at + quoted.len()..].trim_start().starts_with(':');
    let at = text.match_indices(&quoted).map(|(at, _)| at).find(is_key)?;
    Some(Place::of_offset(file, text, at))
}

/// The job of `source` with `changes`.
///
/// # Errors
/// When a layer cannot be read, names no model, or says what cannot be.
pub(super) fn resolve(source: &JobSource, changes: &[Override]) -> Result<Resolved, JobError> {
    let settings = source.settings(changes)?;
    let gpu = settings.get(keys::GPU).and_then(|setting| setting.value.as_str());
    resolve_settings(&settings, source).map_err(|error| error.on_gpu(gpu))
}

fn resolve_settings(settings: &Settings, source: &JobSource) -> Result<Resolved, JobError> {
    let model = model_source::load_model(settings, source)?;
    own_class::refuse_towers(&model.spec)?;
    let mut choose = Chooser::new(settings, source, model.provenance.clone());
    let mut notes = [source.notes.as_slice(), &settings.notes].concat();
    let published_dtype = model.published_dtype.clone();
    let config_file = model.config_file.clone();
    let mut job = job::resolve_job(&mut choose, model, source).map_err(|error| at_setting(settings, error))?;
    job.left_open.extend(own_class::other_class(&job.model));
    let training =
        training::resolve_training(&mut choose, job.task.name()).map_err(|error| at_setting(settings, error))?;
    notes.extend(choose.notes);
    let provenance = choose.provenance;
    refuse_unread(settings, &provenance, &job)?;
    check::check_possible(&job).map_err(|error| at_key(&provenance, error))?;
    if let (UnnamedGpu::Refused { problem, hint }, None) = (&source.unnamed_gpu, settings.get(keys::GPU)) {
        return Err(JobError::new(problem.clone()).about(&[keys::GPU]).hint(hint.clone()));
    }
    notes.extend(check::all_notes(&job, settings, published_dtype.as_deref()));
    let mut resolved = Resolved { job, training, provenance, notes, config_file };
    let of_source = source_notes(source, settings, &resolved);
    resolved.notes.extend(of_source);
    Ok(resolved)
}

/// What the answer must say about what was gathered.
fn source_notes(source: &JobSource, settings: &Settings, resolved: &Resolved) -> Vec<String> {
    let config = |key: &str| source.configs.get(settings.get(key)?.value.as_str()?);
    let (model, judge) = (config(keys::MODEL), config(keys::JUDGE_MODEL));
    let mut notes: Vec<String> =
        [model, judge].into_iter().flatten().filter_map(|config| config.note.clone()).collect();
    notes.dedup();
    let decides = matches!(resolved.origin(keys::TRANSFORMERS), Some(Origin::Default(_)));
    if let Some(installed) = source.installed.as_ref().filter(|_| decides) {
        notes.push(format!(
            "transformers {} in {} is not simulated: the answer is for {}",
            installed.version, installed.environment, resolved.job.transformers
        ));
    }
    notes.extend(source.named_gpu(settings).and_then(|(named, _)| named.caveat.clone()));
    let weights = model.filter(|_| settings.model.is_empty()).map(|config| &config.weights);
    if let Some(WeightsBeside::Incomplete(missing)) = weights {
        notes.push(format!("the parameter count could not be checked: {missing} is not there"));
    }
    notes
}

/// A key that was set and that nothing of the job reads would silently change nothing. What a trainer's config implies was not set.
fn refuse_unread(settings: &Settings, provenance: &[Provenance], job: &JobSpec) -> Result<(), JobError> {
    let is_read = |key: &str| provenance.iter().any(|value| value.key == key);
    let is_unread = |key: &str, setting: &Setting| !is_read(key) && !matches!(setting.origin, Origin::Default(_));
    let Some((key, setting)) = settings.keys().find(|(key, setting)| is_unread(key, setting)) else { return Ok(()) };
    let task = serde_json::to_value(job.task.name()).unwrap_or_default();
    let hint = match key {
        keys::SEQ_LEN => "its lengths are `prompt_len` and `completion_len`".to_owned(),
        keys::USE_LIGER_KERNEL => "trainers apply Liger's kernels to the model that they train".to_owned(),
        keys::MICRO_BATCH_SIZE => "its rows are the questions times `num_generations`".to_owned(),
        _ => "leave it out, or choose what reads it (`tonnage keys` says)".to_owned(),
    };
    let error = JobError::new(format!("`{key}` has no meaning for this job (task = {task})")).about(&[key]).hint(hint);
    Err(error.at_place(model_source::place_of_origin(&setting.origin)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{
        Attention, CheckpointPolicy, ClipSpec, ConfigSource, Ddp, LoraSpec, OptimizerKind, Precision, Strategy, Task,
    };

    fn resolved(job_file: &str, assignments: &[&str]) -> Result<Resolved, JobError> {
        let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
        let secret = ConfigSource { text: Err("permission denied".to_owned()), ..String::new().into() };
        let source = JobSource::from_file("job.toml", job_file)
            .config("local", r#"{"model_type": "llama", "max_position_embeddings": 256}"#)
            .config("secret", secret);
        source.resolve(&overrides)
    }

    fn counted(resolved: &Resolved) -> Option<u64> {
        resolved.job.model.beside.counted.as_ref().map(|counted| counted.parameters)
    }

    fn lines(resolved: &Resolved) -> Vec<String> {
        resolved.provenance.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_are_the_frameworks_and_say_so() {
        let resolved = resolved("", &["model=gpt2"]).unwrap();
        let expected = [
            "model = \"openai-community/gpt2\" (flag model=gpt2)",
            "task = \"causal_lm\" (default: what a gpt2 model is trained on)",
            "framework = \"trainer\" (default: what most train such a task with)",
            "micro_batch_size = 8 (default: Hugging Face Trainer's per_device_train_batch_size)",
            "seq_len = 1024 (default: 1024, or the model's positions)",
            "max_new_tokens = 0 (default: transformers' default for generate, else none)",
            "gradient_accumulation_steps = 1 (default: Hugging Face Trainer's default)",
            "transformers = \"5.17\" (default: the version that is simulated when nothing else is said)",
            "precision = \"fp32\" (default: PyTorch's default dtype)",
            "attention = \"sdpa\" (default: transformers' default)",
            "gradient_checkpointing = false (default: transformers' default)",
            "optimizer = \"adamw_fused\" (default: Hugging Face Trainer's optim=\"adamw_torch_fused\")",
            "clip_grad_norm = 1.0 (default: Hugging Face Trainer's max_grad_norm)",
            "zero_grad_set_to_none = true (default: PyTorch's default)",
            "train_mode = true (default: training mode when the task trains)",
            "dropout = as in the config (config of openai-community/gpt2)",
            "tie_word_embeddings = as in the config (config of openai-community/gpt2)",
            "use_cache = false (default: Hugging Face Trainer's)",
            "keep_outputs = false (default: the usual loop keeps the loss only)",
            "logits_to_keep = 0 (default: transformers' default: all positions)",
            "loss = \"full\" (default: transformers' default)",
            "steps = 2 (default: optimizer state appears in step 1, the steady peak in step 2)",
            "device_map = false (default: the model is moved with .to())",
            "gpu = \"h100\" (default: none was named; sizes are as on this one)",
        ];
        assert_eq!(lines(&resolved), expected);
        assert!(!resolved.names_gpu() && resolved.notes.is_empty(), "{:?}", resolved.notes);
        assert_eq!(counted(&resolved), Some(124_439_808));
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = "model = \"gpt2\"\nmicro_batch_size = 2\nseq_len = 64\ngpu = \"a100-80\"\n\
            [lora]\nr = 4\n[allocator]\nexpandable_segments = true\n";
        let resolved = resolved(file, &["micro_batch_size=16", "precision=amp_bf16", "dropout=0"]).unwrap();
        let job = &resolved.job;
        assert_eq!((job.micro_batch_size, job.seq_len, job.precision), (16, 64, Precision::AmpBf16));
        assert_eq!(
            job.lora,
            Some(LoraSpec {
                r: 4,
                alpha: 8.0,
                dropout: 0.0,
                targets: vec!["c_attn".to_owned()],
                use_dora: false,
                modules_to_save: Vec::new()
            })
        );
        assert!(job.allocator.expandable_segments);
        assert_eq!(job.gpu.id, "a100-80");
        assert_eq!(job.model.config.probability("embd_pdrop", 0.1), Ok(0.0));
        assert_eq!(resolved.origin("micro_batch_size").unwrap().to_string(), "flag micro_batch_size=16");
        assert_eq!(resolved.origin("seq_len").unwrap().to_string(), "job.toml:3");
    }

    #[test]
    fn every_value_reaches_the_job() {
        let file = r#"
            model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64 }
            task = "causal-lm"
            gradient_accumulation_steps = 3
            attention = "eager"
            gradient_checkpointing = true
            optimizer = "sgd-momentum"
            clip_grad_norm = 1.0
            zero_grad_set_to_none = false
            train_mode = false
            tie_word_embeddings = true
            use_cache = true
            keep_outputs = true
            steps = 1
            gpu = "24GiB,sm_75"
            precision = "bf16"
            allocator = "max_split_size_mb:64"
        "#;
        let Resolved { job, notes, .. } = resolved(file, &[]).unwrap();
        assert_eq!(job.model.name, "custom llama");
        assert_eq!(job.model.config.layers("num_hidden_layers", 0), Ok(2));
        assert_eq!(job.model.config.flag("tie_word_embeddings", false), Ok(true));
        assert_eq!((job.attention, job.optimizer), (Attention::Eager, OptimizerKind::SgdMomentum));
        assert_eq!(job.gradient_checkpointing, CheckpointPolicy::EveryLayer);
        assert_eq!(job.clip_grad_norm, Some(ClipSpec { max_norm: 1.0 }));
        assert_eq!((job.gradient_accumulation_steps, job.steps), (3, 1));
        assert_eq!((job.zero_grad_set_to_none, job.train_mode, job.use_cache), (false, false, true));
        assert!(job.logits.keep_outputs);
        assert_eq!(job.allocator.max_split_size_mb, Some(64));
        assert_eq!(job.gpu.compute_capability, (7, 5));
        assert_eq!(notes, ["custom GPU of 24.00 GiB has no bf16 units: PyTorch emulates it there, slowly"]);
    }

    #[test]
    fn models_come_from_files_presets_and_fields() {
        let local = resolved("gpu = \"h200\"", &["model=local"]).unwrap();
        assert_eq!((local.job.model.name.as_str(), local.job.seq_len), ("local", 256));
        assert_eq!(counted(&local), None);
        let changed = resolved("[model]\nname = \"gpt2\"\nn_layer = 2\n", &["model.n_embd=64"]).unwrap();
        assert_eq!(changed.job.model.config.layers("n_layer", 12), Ok(2));
        assert_eq!(changed.job.model.config.size("n_embd", 768), Ok(64));
        assert_eq!(counted(&changed), None);
        assert_eq!(changed.origin("model.n_layer").unwrap().to_string(), "job.toml:3");
        let published = resolved("", &["model=qwen2.5-0.5b", "gpu=l4"]).unwrap();
        assert_eq!(published.job.precision, Precision::Bf16);
        let why = published.origin("precision").unwrap().to_string();
        assert!(why.contains("in the dtype of its weights"), "{why}");
    }

    #[test]
    fn errors_about_fields_say_where_they_stand() {
        let error = FieldError::new("max_position_embeddings", "is wrong");
        let said = |job_file: &str, assignments: &[&str]| {
            let located = resolved(job_file, assignments).unwrap().locate(&error);
            (located.to_string(), located.hint)
        };
        let problem = "config key `max_position_embeddings`: is wrong";
        assert_eq!(said("", &["model=local"]), (format!("local:1:25: {problem}"), None));
        let file = "[model]\nname = \"local\"\nmax_position_embeddings = 4\n";
        assert_eq!(said(file, &["seq_len=4"]), (format!("job.toml:3:1: {problem}"), None));
        let flag = said("", &["model=local", "model.max_position_embeddings=4", "seq_len=4"]);
        let hint = "it was set by flag model.max_position_embeddings=4";
        assert_eq!(flag, (problem.to_owned(), Some(hint.to_owned())));
    }

    #[test]
    fn tasks_change_their_defaults() {
        let bert = resolved("", &["model=bert-base-uncased"]).unwrap().job;
        assert_eq!((bert.task, bert.seq_len), (Task::MaskedLm, 512));
        let generate = resolved("", &["model=gpt2", "task=generate", "seq_len=100"]).unwrap().job;
        assert_eq!((generate.max_new_tokens, generate.use_cache, generate.train_mode), (20, true, false));
        let by_default = resolved("", &["model=gpt2", "task=generate", "max_new_tokens=100"]).unwrap().job;
        assert_eq!(by_default.seq_len, 924);
        let error = resolved("", &["model=gpt2", "task=generate", "seq_len=1024"]).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("set `seq_len` to 1004 or less"));
    }

    /// Jobs, and what is said of them with the hint.
    const WRONG: &[(&str, &str)] = &[
        ("", "no model is given | name one, for example: model = \"Qwen/Qwen2.5-0.5B\""),
        (
            "model = \"gtp2\"",
            "job.toml:1:1: model `gtp2` is no config file and no built-in model | did you mean \
             `openai-community/gpt2`? Otherwise name it as on the hub (publisher/name), which is looked for in the hub \
             cache, or give the path of its config.json",
        ),
        ("model = \"secret\"", "job.toml:1:1: cannot read the config of `secret`: permission denied | "),
        (
            "[model]\nn_layer = 2",
            "the model's fields are given, but not the model they belong to | add its `name`, or its `model_type` \
             (llama, gpt2, ...)",
        ),
        (
            "[model]\nname = \"gpt2\"\nn_layers = 2",
            "job.toml:3:1: no model config has a field `n_layers` | did you mean `n_layer`?",
        ),
        (
            "[model]\nname = \"gpt2\"\nnum_hidden_layers = 2",
            "job.toml:3:1: the config of a `gpt2` has no field `num_hidden_layers` | did you mean `n_layer`?",
        ),
        (
            "[model]\nname = \"local\"\nH_cycles = 2",
            "job.toml:3:1: the config of a `llama` has no field `H_cycles` | its name must be as in config.json",
        ),
        (
            "[model]\nname = \"gpt2\"\nmodel_type = \"llama\"",
            "job.toml:3:1: `model_type` cannot be changed: `gpt2` has its own | leave out `model_type`, or leave out \
             the name and give every field",
        ),
        (
            "[model]\nmodel_type = \"lama\"",
            "job.toml:2:1: model type `lama` is not known: transformers 5.17 has none of this name | did you mean `llama`? \
             known model types: MIRRORED, and others by a generic decoder; for the rest \
             `tonnage rehearse --gpu h100 -- python your_script.py` runs your own script without a GPU and says what it takes",
        ),
        (
            "model = \"gpt2\"\ngpu = \"a100\"",
            "job.toml:2:1: `gpu`: `a100` may be a100-40-pcie or a100-40 or a100-80-pcie or a100-80 | say which",
        ),
        (
            "model = \"gpt2\"\nseq_len = 2048",
            "job.toml:2:1: 2048 tokens are more than the 1024 positions of openai-community/gpt2 | set `seq_len` to \
             1024 or less",
        ),
        (
            "model = \"gpt2\"\ntask = \"masked_lm\"",
            "job.toml:2:1: `gpt2` has no masked-LM head | set task = \"causal_lm\"",
        ),
        (
            "model = \"qwen3-30b-a3b\"\n[lora]\nr = 8",
            "`lora.targets`: peft knows no target modules for `qwen3_moe` | name the attention's: \
             lora.targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]",
        ),
        (
            "model = \"gpt2\"\nlogits_to_keep = 1",
            "job.toml:2:1: `logits_to_keep` leaves training without logits for its labels | leave it out",
        ),
        (
            "model = \"gpt2\"\nallocator = \"max_split_size_mb:x\"",
            "job.toml:2:1: `allocator`: `max_split_size_mb`: expected a whole number, found `x` | ",
        ),
        (
            "model = \"local\"\nmicro_batch_size = 1000000\nseq_len = 10000000",
            "job.toml:2:1: `micro_batch_size` 1000000 times 10000000 tokens of `seq_len` and `max_new_tokens` is more than a GPU can \
             hold | lower `micro_batch_size` or `seq_len`",
        ),
    ];

    #[test]
    fn says_what_is_wrong_where_and_what_to_do() {
        let mirrored = crate::model_type::known_model_types().join(", ");
        for (file, expected) in WRONG {
            let error = resolved(file, &[]).unwrap_err();
            let said = format!("{error} | {}", error.hint.clone().unwrap_or_default());
            assert_eq!(said, expected.replace("MIRRORED", &mirrored));
        }
    }

    #[test]
    fn trainers_bring_their_defaults() {
        let grpo = resolved("model = \"gpt2\"\ntask = \"grpo\"", &[]).unwrap();
        let Task::Grpo(spec) = &grpo.job.task else { panic!("{:?}", grpo.job.task) };
        assert_eq!((spec.prompt_len, spec.completion_len, spec.beta), (512, 512, 0.0));
        assert_eq!((grpo.job.precision, grpo.job.optimizer), (Precision::AmpBf16, OptimizerKind::AdamwFused));
        assert_eq!(grpo.origin("completion_len").unwrap().to_string(), "default: TRL 1.16's GRPOConfig");
        assert!(grpo.notes.contains(&"behaviour and defaults are those of TRL 1.16".to_owned()), "{:?}", grpo.notes);
        let old = resolved("model = \"gpt2\"\ntask = \"grpo\"\ntrl = \"0.17\"", &[]).unwrap();
        let Task::Grpo(spec) = &old.job.task else { panic!("{:?}", old.job.task) };
        assert_eq!((spec.completion_len, spec.beta, old.job.precision), (256, 0.04, Precision::Fp32));
        let swarm = resolved("model = \"gpt2\"\ntask = \"swarm\"\n[swarm]\nlocal_questions = 6", &[]).unwrap();
        let Task::Swarm(spec) = &swarm.job.task else { panic!("{:?}", swarm.job.task) };
        assert_eq!((spec.train_rows, spec.generate_rows, swarm.job.micro_batch_size), (48, 6, 48));
    }

    #[test]
    fn batches_are_divided_over_ranks() {
        let job = "model = \"gpt2\"\nmicro_batch_size = 4\nglobal_batch_size = 64\nworld_size = 8\n";
        let divided = resolved(job, &[]).unwrap().job;
        assert_eq!((divided.gradient_accumulation_steps, divided.parallel.world_size), (2, 8));
        let ddp = Ddp { find_unused_parameters: true, ..Ddp::default() };
        assert_eq!(divided.parallel.strategy, Strategy::Ddp(ddp), "as the Trainer asks for");
        let wrong = [
            (
                "global_batch_size=60",
                "`global_batch_size` 60 does not divide by `micro_batch_size` 4 x `world_size` 8 = 32 rows | set \
                 `global_batch_size` to 32 or 64",
            ),
            (
                "gradient_accumulation_steps=3",
                "`global_batch_size` 64 is not `micro_batch_size` 4 x `world_size` 8 = 32 rows x 3 micro-batches = 96 | \
                 leave out `gradient_accumulation_steps` to have it computed",
            ),
            (
                "parallel=none",
                "`world_size` is 8, but parallel = \"none\" spreads nothing | set parallel = \"ddp\" or another strategy",
            ),
        ];
        for (change, expected) in wrong {
            let error = resolved(job, &[change]).unwrap_err();
            assert_eq!(format!("{} | {}", error.problem, error.hint.unwrap_or_default()), expected);
        }
    }

    #[test]
    fn keys_that_nothing_reads_are_refused() {
        let cases = [
            (
                "model = \"gpt2\"\n[grpo]\nbeta = 0.1",
                "job.toml:3:1: `grpo.beta` has no meaning for this job (task = \"causal_lm\") | leave it out, or choose what \
                 reads it (`tonnage keys` says)",
            ),
            (
                "model = \"gpt2\"\ntask = \"grpo\"\nseq_len = 8",
                "job.toml:3:1: `seq_len` has no meaning for this job (task = \"grpo\") | its lengths are `prompt_len` and \
                 `completion_len`",
            ),
            (
                "model = \"gpt2\"\ntask = \"grpo\"\n[judge]\nphase = \"forward\"",
                "job.toml:4:1: `judge.phase` is set, but the judge has no model: its phase has nothing to run | name one, for \
                 example: judge.model = \"Qwen/Qwen2.5-14B\"",
            ),
        ];
        for (file, expected) in cases {
            let error = resolved(file, &[]).unwrap_err();
            assert_eq!(format!("{error} | {}", error.hint.clone().unwrap_or_default()), expected);
        }
    }
}
