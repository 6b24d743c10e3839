//! [`Chooser`]: hands out the value of each key, from what was said or from a default, and writes down which.

use crate::job::JobErrorKind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::alloc::AllocatorConfig;
use crate::gpu::{DEFAULT_GPU, Gpu};
use crate::job::error::REHEARSE;
use crate::job::keys::{self, Key};
use crate::job::settings::{Origin, Provenance, Settings};
use crate::job::{
    JobError, JobSource, LoraSpec, LowRankSpec, ModelSpec, OptimizerKind, PreconditionerSpec, RunLength, RunSpec,
    TransformersError, TransformersVersion, allocator,
};
use crate::model_type;

/// Hands out the value of each key and writes down where it came from. The settings were checked against the table
/// when they were set, so a value always has its key's type.
pub(super) struct Chooser<'a> {
    pub settings: &'a Settings,
    source: &'a JobSource,
    pub provenance: Vec<Provenance>,
    /// Defaults of what trains, which go before those of the table: key, JSON, and why.
    pub trainer: Vec<(&'static str, String, String)>,
    /// What the answer must say about the choices.
    pub notes: Vec<String>,
}

impl<'a> Chooser<'a> {
    pub fn new(settings: &'a Settings, source: &'a JobSource, provenance: Vec<Provenance>) -> Self {
        Self { settings, source, provenance, trainer: Vec::new(), notes: Vec::new() }
    }

    pub fn take_value(&mut self, name: &str, default: Value, why: &str) -> Value {
        let (value, origin) = match self.settings.get(name) {
            Some(setting) => (setting.value.clone(), setting.origin.clone()),
            None => (default, Origin::Default(why.to_owned())),
        };
        self.provenance.push(Provenance { key: name.to_owned(), value: value.to_string(), origin });
        value
    }

    /// The value of a key whose default is the trainer's or stands in the table.
    pub fn fixed_value(&mut self, name: &str) -> Value {
        if let Some((_, json, why)) = self.trainer.iter().find(|(key, ..)| *key == name) {
            let why = why.clone();
            return self.take_value(name, serde_json::from_str(json).unwrap_or_default(), &why);
        }
        let (json, why) = match Key::find(name).map(|key| key.default) {
            Some(keys::Default::Fixed(json, why)) => (json, why),
            _ => ("null", "not set"),
        };
        self.take_value(name, serde_json::from_str(json).unwrap_or_default(), why)
    }

    /// The size that was said for `name`, before its turn comes.
    pub fn said_size(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.value.as_u64()
    }

    /// Whether anything was said about `name`.
    pub fn is_said(&self, name: &str) -> bool {
        self.settings.get(name).is_some()
    }

    /// Whether it was said by nobody but a trainer's config, as what holds there.
    pub fn is_implied(&self, name: &str) -> bool {
        self.settings.get(name).is_some_and(|setting| matches!(setting.origin, Origin::Default(_)))
    }

    pub fn take_size(&mut self, name: &str) -> u64 {
        self.fixed_value(name).as_u64().unwrap_or_default()
    }

    /// A size, if it was said; `rule` is what happens where it was not.
    pub fn size_if_said(&mut self, name: &str, rule: &str) -> Option<u64> {
        self.take_value(name, Value::Null, rule).as_u64()
    }

    pub fn size_or(&mut self, name: &str, default: u64, why: &str) -> u64 {
        self.take_value(name, default.into(), why).as_u64().unwrap_or(default)
    }

    pub fn take_number(&mut self, name: &str) -> f64 {
        self.fixed_value(name).as_f64().unwrap_or_default()
    }

    pub fn take_switch(&mut self, name: &str) -> bool {
        self.fixed_value(name).as_bool().unwrap_or_default()
    }

    pub fn switch_or(&mut self, name: &str, default: bool, why: &str) -> bool {
        self.take_value(name, default.into(), why).as_bool().unwrap_or(default)
    }

    pub fn take_word<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, JobError> {
        let word = self.fixed_value(name);
        parse_variant(name, word)
    }

    pub fn word_or<T: DeserializeOwned>(&mut self, name: &str, default: &str, why: &str) -> Result<T, JobError> {
        let word = self.take_value(name, default.into(), why);
        parse_variant(name, word)
    }

    /// A number that somebody said, which is noted where all of its kind are.
    pub fn said_number(&self, name: &str) -> Option<f64> {
        self.settings.get(name)?.value.as_f64()
    }

    /// A switch that is off, and no choice, where nobody says it.
    pub fn switch_if_said(&mut self, name: &str) -> bool {
        self.is_said(name) && self.take_switch(name)
    }

    /// A word, if one was said.
    pub fn word_if_said<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, JobError> {
        if self.is_said(name) { self.take_word(name).map(Some) } else { Ok(None) }
    }

    /// What was said, else the installed version, else the default.
    pub fn take_transformers(&mut self) -> Result<TransformersVersion, JobError> {
        let name = keys::TRANSFORMERS;
        let installed = self.source.installed.as_ref().filter(|_| !self.is_said(name));
        let simulated = installed.and_then(|found| Some((found.version.parse::<TransformersVersion>().ok()?, found)));
        if let Some((version, installed)) = simulated {
            let value = Value::from(version.to_string()).to_string();
            let origin = Origin::Installed(installed.environment.clone());
            self.provenance.push(Provenance { key: name.to_owned(), value, origin });
            return Ok(version);
        }
        let version = self.fixed_value(name).as_str().unwrap_or_default().parse();
        version.map_err(|error: TransformersError| {
            let hint = format!(
                "the version is the one that `pip show transformers` prints, in quotes; {REHEARSE}, with the transformers that is \
                 installed"
            );
            let refused = JobError::of_kind(JobErrorKind::Value, format!("`{name}`: {error}")).about(&[name]);
            self.about_key(name, refused.hint(hint).caused_by(error))
        })
    }

    /// What was said, of the catalog or gathered, else what holds where nobody names one.
    pub fn take_gpu(&mut self) -> Result<Gpu, JobError> {
        if let Some((named, origin)) = self.source.named_gpu(self.settings) {
            let value = Value::from(named.written()).to_string();
            self.provenance.push(Provenance { key: keys::GPU.to_owned(), value, origin: origin.clone() });
            return Ok(named.gpu.clone());
        }
        let value = self.take_value(keys::GPU, DEFAULT_GPU.into(), "none was named; sizes are as on this one");
        let gpu = Gpu::parse(value.as_str().unwrap_or_default());
        gpu.map_err(|error| {
            self.about_key(
                keys::GPU,
                JobError::of_kind(JobErrorKind::Value, format!("`gpu`: {error}"))
                    .about(&[keys::GPU])
                    .hint(error.hint())
                    .caused_by(error),
            )
        })
    }

    /// `dropout` and `tie_word_embeddings` override fields of the model's config.
    pub fn model_overrides(&mut self, model: &mut ModelSpec) {
        let dropouts = model.facts().dropout_keys;
        for (name, fields) in [(keys::DROPOUT, dropouts), (keys::TIE_WORD_EMBEDDINGS, &["tie_word_embeddings"])] {
            if self.settings.get(name).is_some() {
                let value = self.take_value(name, Value::Null, "");
                fields.iter().for_each(|field| drop(model.config.0.insert((*field).to_owned(), value.clone())));
            } else {
                self.provenance.push(Provenance {
                    key: name.to_owned(),
                    value: "as in the config".to_owned(),
                    origin: Origin::ModelConfig(model.name.clone()),
                });
            }
        }
    }

    /// Adapters exist as soon as any key of `[lora]` is set.
    pub fn take_lora(&mut self, model_type: &str) -> Result<Option<LoraSpec>, JobError> {
        if !self.settings.has_table("lora") {
            return Ok(None);
        }
        let r = self.take_size(keys::LORA_R);
        let alpha = self.take_number(keys::LORA_ALPHA);
        let dropout = self.take_number(keys::LORA_DROPOUT);
        let default = model_type::facts(model_type).lora_targets;
        if default.is_empty() && self.settings.get(keys::LORA_TARGETS).is_none() {
            return Err(JobError::new(format!("`lora.targets`: peft knows no target modules for `{model_type}`"))
                .about(&[keys::LORA_TARGETS])
                .hint(match model_type::facts(model_type).has_experts {
                    // Of all linear layers experts are too, and those are refused.
                    true => "name the attention's: lora.targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]",
                    false => "name them, or set lora.targets = \"all-linear\"",
                }));
        }
        let targets =
            self.take_value(keys::LORA_TARGETS, default.to_vec().into(), "peft's target modules for the model type");
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let modules_to_save = self.take_value(keys::LORA_MODULES_TO_SAVE, json!([]), "peft's default");
        let use_dora = self.take_switch(keys::LORA_USE_DORA);
        Ok(Some(LoraSpec {
            r,
            alpha,
            dropout,
            targets: texts(&targets),
            use_dora,
            modules_to_save: texts(&modules_to_save),
        }))
    }

    /// What an optimizer in a low rank is told. A run goes on beyond the steps that are simulated: its projections are made anew in the
    /// third of them, beside all moments and the old projections.
    pub fn take_low_rank(&mut self) -> Result<LowRankSpec, JobError> {
        let mut spec = LowRankSpec::default();
        let kind = self.said_optimizer();
        if !kind.is_some_and(OptimizerKind::is_low_rank) {
            self.refuse_momentum()?;
            let of_soap = kind.is_some_and(OptimizerKind::preconditions);
            let unread =
                [(keys::OPTIM_ARGS, "GaLore, APOLLO and SOAP"), (keys::OPTIM_TARGET_MODULES, "GaLore and APOLLO")];
            let unread = unread.into_iter().skip(usize::from(of_soap)).filter(|(key, _)| self.is_said(key));
            let notes: Vec<String> = unread.map(|(key, who)| format!("`{key}` is read by {who} alone")).collect();
            self.notes.extend(notes);
            return Ok(spec);
        }
        let targets = self.take_value(keys::OPTIM_TARGET_MODULES, json!(spec.targets), "all linear layers");
        spec.targets = targets.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        if self.is_said(keys::OPTIM_ARGS) {
            let arguments = self.take_value(keys::OPTIM_ARGS, Value::Null, "");
            let read = spec.with_arguments(arguments.as_str().unwrap_or_default());
            spec = read.map_err(|error| self.about_key(keys::OPTIM_ARGS, error))?;
        }
        if self.said_size(keys::STEPS).is_none_or(|steps| steps > spec.update_proj_gap) {
            spec.update_proj_gap = spec.update_proj_gap.min(2);
            self.trainer.push((keys::STEPS, "3".to_owned(), "projections are made anew in step 3".to_owned()));
        }
        Ok(spec)
    }

    /// What an optimizer that preconditions is told. A run goes on beyond the steps that are simulated: the eigenvectors are made anew in the
    /// third of them, beside all that is kept, and the steps after it may reserve more.
    pub fn take_preconditioner(&mut self) -> Result<PreconditionerSpec, JobError> {
        let mut spec = PreconditionerSpec::default();
        let Some(kind) = self.said_optimizer().filter(|kind| kind.preconditions()) else { return Ok(spec) };
        if self.is_said(keys::OPTIM_ARGS) {
            let arguments = self.take_value(keys::OPTIM_ARGS, Value::Null, "");
            let read = spec.with_arguments(kind, arguments.as_str().unwrap_or_default());
            spec = read.map_err(|error| self.about_key(keys::OPTIM_ARGS, error))?;
        }
        if self.said_size(keys::STEPS).is_none_or(|steps| steps > spec.frequency) {
            spec.frequency = spec.frequency.min(2);
            self.trainer.push((
                keys::STEPS,
                "5".to_owned(),
                "preconditioners are made anew in step 3, and steps after it may reserve more".to_owned(),
            ));
        }
        Ok(spec)
    }

    /// The optimizer that is named, if one is.
    fn said_optimizer(&self) -> Option<OptimizerKind> {
        let word = self.settings.get(keys::OPTIMIZER)?.value.clone();
        serde_json::from_value(word).ok()
    }

    /// Refuses `optim_args` that give SGD or RMSprop more state.
    fn refuse_momentum(&self) -> Result<(), JobError> {
        let said = self.settings.get(keys::OPTIM_ARGS).map(|setting| setting.value.to_string()).unwrap_or_default();
        if !["momentum", "centered"].iter().any(|argument| said.contains(argument)) {
            return Ok(());
        }
        let problem = "`optim_args`: what momentum or centered keeps is not simulated by it";
        Err(JobError::of_kind(JobErrorKind::Unsimulated, problem.to_owned())
            .about(&[keys::OPTIM_ARGS])
            .hint("SGD's momentum is optimizer = \"sgd_momentum\"")
            .or_rehearse())
    }

    /// What was said about length, time and price; of several lengths only one can hold.
    pub fn take_run(&mut self) -> Result<RunSpec, JobError> {
        let lengths: Vec<_> = [keys::MAX_STEPS, keys::TRAIN_TOKENS, keys::TRAIN_ROWS]
            .into_iter()
            .filter(|key| self.is_said(key))
            .collect();
        if let [first, second, ..] = lengths[..] {
            let error = JobError::new(format!("`{second}`: the length of the training is said by `{first}` already"))
                .about(&[second]);
            return Err(self.about_key(second, error.hint("give one of them")));
        }
        let length = lengths.first().map(|key| {
            let size = self.take_size(key);
            match *key {
                keys::MAX_STEPS => RunLength::Steps(size),
                keys::TRAIN_TOKENS => RunLength::Tokens(size),
                _ => RunLength::Epochs { epochs: self.take_number(keys::NUM_TRAIN_EPOCHS), rows: size },
            }
        });
        let step_seconds = self.is_said(keys::STEP_TIME).then(|| self.take_number(keys::STEP_TIME));
        let dollars_per_gpu_hour = self.is_said(keys::PRICE).then(|| self.take_number(keys::PRICE));
        let allow_tf32 = self.is_said(keys::ALLOW_TF32) && self.take_switch(keys::ALLOW_TF32);
        Ok(RunSpec { length, step_seconds, dollars_per_gpu_hour, allow_tf32 })
    }

    pub fn take_allocator(&mut self) -> Result<AllocatorConfig, JobError> {
        let mut set = Vec::new();
        for key in keys::KEYS.iter().filter(|key| key.name.starts_with(keys::ALLOCATOR)) {
            if self.settings.get(key.name).is_some() {
                set.push((key.name, self.take_value(key.name, Value::Null, "")));
            }
        }
        let last = set.last().map_or(keys::ALLOCATOR, |(name, _)| *name);
        allocator::allocator_config(&set).map_err(|problem| {
            self.about_key(
                last,
                JobError::of_kind(JobErrorKind::Value, format!("`allocator`: {problem}")).about(&[keys::ALLOCATOR]),
            )
        })
    }

    /// The error with the place where `name` was set.
    pub fn about_key(&self, name: &str, error: JobError) -> JobError {
        match self.settings.get(name).map(|setting| &setting.origin) {
            Some(Origin::JobFile(place)) => error.at_place(Some(place.clone())),
            _ => error,
        }
    }
}

fn parse_variant<T: DeserializeOwned>(name: &str, word: Value) -> Result<T, JobError> {
    serde_json::from_value(word)
        .map_err(|error| JobError::of_kind(JobErrorKind::Value, format!("`{name}`: {error}")).about(&[name]))
}
