//! A training from its job: data, tokenizer and weights are found, the model is built, and the loop runs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tonnage_core::job::{GenerationSpec, Init, JobSpec, TrainingSpec, is_full_name, keys};
use tonnage_core::model_type::AGI2;
use tonnage_torch::{Device, Torch};

use crate::data::batches::{Made, Making};
use crate::data::chat::ChatTemplate;
use crate::data::corpus::{Content, read};
use crate::data::tokenizer::Tokenizer;
use crate::data::vocabulary::Vocabulary;
use crate::error::TrainError;
use crate::grpo::swarm::Place;
use crate::language_model::{LanguageModel, Weights};
use crate::store::adapter::{Adapted, AdapterConfig};
use crate::store::checkpoints::Checkpoints;
use crate::store::pretrained::Pretrained;
use crate::store::weights;
use crate::training::{Event, Outcome, Parts, Ranks, STATE, Saved, Settings, Trainer};

/// The file of a model's weights.
pub(crate) const WEIGHTS: &str = "model.safetensors";

/// A training before anything of it is loaded.
pub struct Program<'a> {
    /// What changes memory.
    pub job: &'a JobSpec,
    /// What does not.
    pub training: &'a TrainingSpec,
    /// Whether the job names its model by a name that the built-in table has, as `gpt2`: whoever says it means the published one.
    pub names_published: bool,
    /// The folder of the model's config, where it has one.
    pub model_folder: Option<PathBuf>,
    /// The folder of GPT-2 in the hub cache, whose tokenizer `tiktoken` means.
    pub gpt2_folder: Option<PathBuf>,
    /// Paths of the files of `training.train_files` that exist.
    pub train_files: Vec<PathBuf>,
    /// Paths of the files of `training.eval_files` that exist.
    pub eval_files: Vec<PathBuf>,
    /// The folder of the judge of a training by GRPO, where it has one.
    pub judge_folder: Option<PathBuf>,
    /// Where checkpoints go; `None` in a rehearsal.
    pub output: Option<PathBuf>,
    /// Which node of a swarm it is.
    pub swarm: Place,
    /// Whether it goes on with the newest checkpoint there.
    pub resumes: bool,
}

/// A training that can begin.
pub struct Ready<'a> {
    program: &'a Program<'a>,
    settings: Settings,
    tokenizer: Tokenizer,
    data: Made,
}

impl<'a> Program<'a> {
    /// Reads the data; nothing of PyTorch is needed for it. `rank` of `ranks` processes gets its share.
    ///
    /// # Errors
    /// When the job is none that is trained here, data or tokenizer cannot be read, or they are of another model.
    pub fn prepare_rank(&'a self, ranks: u64, rank: u64) -> Result<Ready<'a>, TrainError> {
        let settings = Settings::of_job(self.job, self.training)?;
        LanguageModel::check_job(self.job)?;
        if let Some(longest) = LanguageModel::longest_row(self.job).filter(|longest| self.job.seq_len > *longest) {
            return Err(TrainError::refused_with(
                format!(
                    "rows of {} tokens are longer than the {longest} that this rope_type has one set of frequencies for: those of longer \
                     rows are not computed here",
                    self.job.seq_len
                ),
                format!("set `{}` to {longest} or less", keys::SEQ_LEN),
            ));
        }
        let tokenizer = self.checked_tokenizer()?;
        let data = &self.training.data;
        let chat = tokenizer.folder().map(ChatTemplate::beside).transpose()?.flatten();
        let making = Making {
            tokenizer: &tokenizer,
            chat: chat.as_ref(),
            assistant_only: data.assistant_only_loss,
            end: self.end_of_text(&tokenizer)?,
            field: &data.text_field,
            tokens: settings.seq_len,
            growth: settings.growth,
            seed: self.training.seed,
            ranks,
            rank,
        };
        let made = making.read(&self.train_files, &self.eval_files, data.eval_share)?;
        if made.train.has_own_labels() && !self.job.own_labels {
            return Err(TrainError::refused_with(
                "`own_labels` = false: the labels of prompts, completions and messages lie beside their tokens"
                    .to_owned(),
                "leave it out, or set it to true: 8 bytes a token of a micro-batch",
            ));
        }
        Ok(Ready { program: self, settings, tokenizer, data: made })
    }

    /// The tokenizer, whose tokens the model has rows for.
    pub(crate) fn checked_tokenizer(&self) -> Result<Tokenizer, TrainError> {
        let tokenizer = self.read_tokenizer()?;
        let vocabulary = vocabulary_of(self.job);
        if let Some(vocabulary) = vocabulary.filter(|vocabulary| tokenizer.size() > *vocabulary) {
            return Err(TrainError::Vocabulary(format!(
                "the tokenizer {} has {} tokens, and the model rows for {vocabulary}: it is of another model (vocab_size)",
                tokenizer.name(),
                tokenizer.size()
            )));
        }
        Ok(tokenizer)
    }

    fn read_tokenizer(&self) -> Result<Tokenizer, TrainError> {
        match self.training.data.tokenizer.as_deref() {
            Some("bytes") => Ok(Tokenizer::Vocabulary(Vocabulary::Bytes)),
            Some("characters") => self.character_tokenizer(),
            Some(named @ "tiktoken") if !Path::new(named).exists() => match &self.gpt2_folder {
                Some(folder) => Tokenizer::of_file(folder),
                None => Err(TrainError::refused_with(
                    format!("the tokenizer `{named}` is GPT-2's, which the hub cache of this machine does not hold"),
                    "`hf download openai-community/gpt2 config.json tokenizer.json` fetches it; or name a tokenizer.json or its \
                     folder, or take `bytes` or `characters`: --data-tokenizer bytes",
                )),
            },
            Some(path) => Tokenizer::of_file(Path::new(path)),
            None => {
                let beside = self.model_folder.as_deref().map(Tokenizer::beside).transpose()?.flatten();
                Ok(beside.unwrap_or(Tokenizer::Vocabulary(Vocabulary::Bytes)))
            }
        }
    }

    /// A training that goes on keeps its characters, whose rows the weights are.
    fn character_tokenizer(&self) -> Result<Tokenizer, TrainError> {
        if let Some(checkpoint) = self.find_checkpoint()?
            && let Some(kept) = Tokenizer::beside(&checkpoint)?
        {
            return Ok(kept);
        }
        let mut texts = Vec::new();
        for file in self.train_files.iter().chain(&self.eval_files) {
            match read(file, &self.training.data.text_field)? {
                Content::Texts(found) => texts.extend(found),
                Content::Pairs(pairs) => {
                    texts.extend(pairs.into_iter().flat_map(|pair| [pair.prompt, pair.completion]))
                }
                Content::Conversations(all) => {
                    let said = all.iter().flatten().filter_map(|message| message.get("content")?.as_str());
                    texts.extend(said.map(str::to_owned));
                }
            }
        }
        Ok(Tokenizer::Vocabulary(Vocabulary::of_characters(texts.iter().map(String::as_str))))
    }

    /// What was said, else the model's own end of text where the tokenizer is the model's.
    pub(crate) fn end_of_text(&self, tokenizer: &Tokenizer) -> Result<Option<u32>, TrainError> {
        if let Some(said) = &self.training.data.end_of_text {
            let number = said.parse().ok().filter(|number| u64::from(*number) < tokenizer.size());
            return tokenizer.token(said).or(number).map(Some).ok_or_else(|| {
                TrainError::refused_with(
                    format!("`end_of_text`: the tokenizer {} has no token `{said}`", tokenizer.name()),
                    "name a token of its, or a number below its size",
                )
            });
        }
        Ok(match tokenizer {
            Tokenizer::Vocabulary(_) => None,
            Tokenizer::File { .. } => ends_of(self.job).first().copied(),
        })
    }

    /// The checkpoint that it goes on with.
    pub(crate) fn find_checkpoint(&self) -> Result<Option<PathBuf>, TrainError> {
        let Some(output) = self.output.as_deref().filter(|_| self.resumes) else { return Ok(None) };
        let named = || self.training.resume_from_checkpoint.as_deref().map(named_checkpoint).transpose();
        match Checkpoints::new(output, 1).newest()? {
            Some((_, path)) => Ok(Some(path)),
            None => named(),
        }
    }
}

/// The checkpoint that a job names: a folder of one, or of several.
fn named_checkpoint(name: &str) -> Result<PathBuf, TrainError> {
    let path = PathBuf::from(name);
    if path.join(STATE).is_file() {
        return Ok(path);
    }
    if let Some((_, newest)) = Checkpoints::new(&path, 1).newest()? {
        return Ok(newest);
    }
    Err(TrainError::refused_with(
        format!(
            "`{}` = {name:?} is no checkpoint of `tonnage train`: it holds no {STATE}",
            keys::RESUME_FROM_CHECKPOINT
        ),
        "name a folder checkpoint-N, or the output folder that holds some; a file of torch.save (.pt) is not read",
    ))
}

/// Rows of the model's embedding.
pub fn vocabulary_of(job: &JobSpec) -> Option<u64> {
    job.model.config.get("vocab_size").and_then(Value::as_u64)
}

/// Tokens that end a text, as the config says.
pub fn ends_of(job: &JobSpec) -> Vec<u32> {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    match job.model.config.get("eos_token_id") {
        Some(Value::Array(all)) => all.iter().filter_map(number).collect(),
        Some(one) => number(one).into_iter().collect(),
        None => Vec::new(),
    }
}

impl Ready<'_> {
    /// What the user must know of the data.
    pub fn notes(&self) -> &[String] {
        &self.data.notes
    }

    /// A line on what it learns from.
    pub fn about_data(&self) -> String {
        let held_out = self.data.eval.as_ref().map_or(0, super::data::batches::Examples::rows);
        let steps = self.settings.steps(&self.data.train);
        format!(
            "{} rows of {} tokens ({}), {held_out} held out; {steps} steps of {} rows",
            self.data.train.rows(),
            self.settings.seq_len,
            self.tokenizer.name(),
            self.settings.rows_per_step()
        )
    }

    /// Builds the model and trains it.
    ///
    /// # Errors
    /// Those of loading, training and saving; whatever was saved is whole.
    pub fn train(
        &self,
        torch: &'static Torch,
        device: Device,
        ranks: &dyn Ranks,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let program = self.program;
        let checkpoint = agree_on(program.find_checkpoint()?, ranks)?;
        // As `transformers.set_seed` before the model is made.
        torch.seed(program.training.seed)?;
        let model = program.build_model(torch, device, checkpoint.as_deref())?;
        // Each rank draws its own dropout, as ranks of torchrun that seed with their rank do.
        torch.seed(program.training.seed.wrapping_add(ranks.rank()))?;
        let write_model = |folder: &Path| {
            self.tokenizer.save(folder)?;
            program.write_model(folder, &model)
        };
        let mut trainer = Trainer::new(Parts {
            torch,
            device,
            model: &model,
            settings: &self.settings,
            train: &self.data.train,
            eval: self.data.eval.as_ref(),
            ranks,
            output: program.output.as_deref(),
            write_model: &write_model,
        })?;
        if let Some(folder) = checkpoint {
            trainer.resume(Saved::read(torch, &folder)?, &folder, observe)?;
        }
        trainer.run(stops, observe)
    }
}

/// The checkpoint that rank 0 goes on with, which all must see.
pub(crate) fn agree_on(own: Option<PathBuf>, ranks: &dyn Ranks) -> Result<Option<PathBuf>, TrainError> {
    let said = own.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let all = ranks.gather(said.as_bytes())?;
    match all.iter().position(|other| *other != all[0]) {
        None => Ok(own),
        Some(other) => Err(TrainError::refused_with(
            format!("rank {other} does not see the checkpoint that rank 0 goes on with"),
            "output_dir must be on a disk that all machines share",
        )),
    }
}

impl Program<'_> {
    pub(crate) fn build_model(
        &self,
        torch: &'static Torch,
        device: Device,
        checkpoint: Option<&Path>,
    ) -> Result<LanguageModel, TrainError> {
        let build = |weights: Weights<'_>| LanguageModel::build_model(torch, device, self.job, weights);
        if self.output.is_none() {
            return build(Weights::Unset);
        }
        if self.job.lora.is_some() {
            let mut adapted = Adapted::open(self.model_folder.as_deref(), checkpoint)?;
            return build(Weights::Named(&mut |name: &str| adapted.tensor(torch, name)));
        }
        let first = self.model_folder.as_deref().filter(|_| self.training.init != Init::FromConfig);
        let found = checkpoint.or(first).map(Pretrained::open).transpose()?.flatten();
        if let Some(mut weights) = found {
            return build(Weights::Named(&mut |name: &str| weights.tensor(torch, name)));
        }
        if self.training.init == Init::FromPretrained {
            return Err(TrainError::refused_with(
                format!("init = \"from_pretrained\": no weights of {} lie on this machine", self.job.model.name),
                "download them (`hf download` fills the hub cache), name their folder as `model`, or write init = \"from_config\"",
            ));
        }
        build(Weights::Initial)
    }

    /// Writes weights and what makes them a model of transformers, or an adapter of peft.
    pub(crate) fn write_model(&self, folder: &Path, model: &LanguageModel) -> Result<(), TrainError> {
        match &self.job.lora {
            Some(lora) => {
                let base = self.model_folder.clone().unwrap_or_default();
                let base = base.canonicalize().unwrap_or(base);
                AdapterConfig::new(lora, self.training, &base).write(folder, &model.named())?;
            }
            None => {
                weights::write(&folder.join(WEIGHTS), &model.named())?;
                write_config(folder, self.job)?;
            }
        }
        write_json(&folder.join("generation_config.json"), &generation_config(&self.training.generation, self.job))
    }

    /// Refuses to begin a published model anew where nobody asked for that.
    ///
    /// # Errors
    /// When the job names one, and neither its weights nor a checkpoint are on this machine.
    pub fn check_weights(&self) -> Result<(), TrainError> {
        let name = &self.job.model.name;
        let is_published = is_full_name(name) || self.names_published;
        let asks = self.training.init == Init::Auto && is_published && self.job.model.model_type != AGI2;
        if !asks || self.first_weights()?.is_some() || self.find_checkpoint()?.is_some() {
            return Ok(());
        }
        Err(TrainError::refused_with(
            format!("no weights of {name} lie on this machine"),
            format!(
                "`hf download {name}` puts them into the hub cache; or name their folder as `model`; or begin with new ones: --init from_config"
            ),
        ))
    }

    /// Whether the first weights are read or made, for who is told of it.
    ///
    /// # Errors
    /// When those that are there are damaged.
    pub fn first_weights(&self) -> Result<Option<PathBuf>, TrainError> {
        if self.training.init == Init::FromConfig {
            return Ok(None);
        }
        let found = self.model_folder.as_deref().map(Pretrained::open).transpose()?.flatten();
        Ok(found.map(|weights| weights.folder().to_owned()))
    }
}

/// The config by which transformers loads the weights.
pub(crate) fn write_config(folder: &Path, job: &JobSpec) -> Result<(), TrainError> {
    let mut config: Map<String, Value> = job.model.config.0.clone();
    config.insert("model_type".to_owned(), job.model.model_type.clone().into());
    write_json(&folder.join("config.json"), &Value::Object(config))
}

fn generation_config(how: &GenerationSpec, job: &JobSpec) -> Value {
    let mut config = serde_json::to_value(how).unwrap_or_default();
    // transformers warns of what greedy generation does not read.
    if let Some(fields) = config.as_object_mut().filter(|_| !how.do_sample) {
        fields.retain(|name, _| !["temperature", "top_k", "top_p"].contains(&name.as_str()));
    }
    if let Some(end) = job.model.config.get("eos_token_id") {
        config["eos_token_id"] = end.clone();
    }
    config
}

fn write_json(path: &Path, value: &Value) -> Result<(), TrainError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| TrainError::about_weights(path, error.to_string()))?;
    fs::write(path, text).map_err(|error| TrainError::about_file(path, error))
}
