//! [`JobSource`]: all that a job is made of, as plain data. Whoever has files and devices gathers it once; it then
//! resolves as often as one likes, with other values, and asks nobody.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::{DATA_TRAIN_FILES, GKD_TEACHER_MODEL, GPU, JUDGE_MODEL, MODEL, PPO_REWARD_MODEL, PPO_VALUE_MODEL};
use super::settings::{Origin, Override, Settings};
use super::{JobError, LeftOpen, Resolved, is_json_lines, job_file, resolve};
use crate::gpu::Gpu;

/// What a job is made of. Later layers win: the job file, then what was set, then the changes of a question, then what
/// was pinned.
///
/// ```
/// use tonnage_core::job::{JobSource, Override};
///
/// let source = JobSource::model("gpt2").set("micro_batch_size", 8).set("gpu", "l4");
/// let longer = [Override::caller("seq_len", 512)];
/// assert_eq!(source.resolve(&longer)?.job.seq_len, 512);
/// assert_eq!(source.resolve(&[])?.job.seq_len, 1024);
/// # Ok::<(), tonnage_core::job::JobError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct JobSource {
    /// The job file.
    pub file: Option<JobText>,
    /// What was set beside the file, the last one winning.
    pub overrides: Vec<Override>,
    /// What holds whatever a change says.
    pub pinned: Vec<Override>,
    /// The configs that exist, by the name or path that a job may give.
    pub configs: BTreeMap<String, ConfigSource>,
    /// The first lines of files of data, by the name that a job gives.
    pub first_lines: BTreeMap<String, String>,
    /// GPUs that are not the catalog's, by the word that `gpu` says for them.
    pub gpus: BTreeMap<String, NamedGpu>,
    /// The transformers that the job will run with, where that is known.
    pub installed: Option<InstalledTransformers>,
    /// What holds where nobody names a GPU.
    pub unnamed_gpu: UnnamedGpu,
    /// What answers must say of how all this was gathered.
    pub notes: Vec<String>,
    /// What no key can say of it.
    pub left_open: Vec<LeftOpen>,
}

/// A text with the name that errors give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobText {
    /// As the caller calls it, usually a path.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A config.json that a model can be named by, and what lies beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigSource {
    /// Its text, or in words why it cannot be read.
    pub text: Result<String, String>,
    /// The weights in its folder.
    pub weights: WeightsBeside,
    /// What an answer must say of where it was found.
    pub note: Option<String>,
}

/// The weights in the folder of a config, by their safetensors headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightsBeside {
    /// There are none, or nobody looked.
    #[default]
    Absent,
    /// They hold so many parameters.
    Counted(u64),
    /// The index names a file that is not there: this one.
    Incomplete(String),
    /// A file is there and cannot be read.
    Unreadable {
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: Option<String>,
    },
}

/// A GPU that is not the catalog's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedGpu {
    /// Its memory, kernels and rates.
    pub gpu: Gpu,
    /// What an answer must say of it.
    pub caveat: Option<String>,
}

impl NamedGpu {
    /// The GPU by its memory and kernels, as a job file can say it.
    pub fn written(&self) -> String {
        let (major, minor) = self.gpu.compute_capability;
        let (mebibytes, multiprocessors) = (self.gpu.usable_bytes >> 20, self.gpu.multiprocessors);
        format!("{mebibytes}MiB,sm_{major}{minor},multiprocessors={multiprocessors}")
    }
}

/// A transformers that lies in an environment of Python's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledTransformers {
    /// `4.48.1`
    pub version: String,
    /// The folder of the environment.
    pub environment: String,
}

/// What holds where nobody names a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnnamedGpu {
    /// The job is simulated with the kernels of [`crate::gpu::DEFAULT_GPU`], and the answer is about none.
    #[default]
    Assumed,
    /// One that was found, for example in this machine.
    Found {
        /// The one that was found.
        gpu: Box<NamedGpu>,
        /// Who found it.
        origin: Origin,
    },
    /// The question needs one.
    Refused {
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
}

/// What a job names that only files or a driver can tell of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// A model: the name or path of a config.
    Model(String),
    /// A GPU: a word that may not be the catalog's.
    Gpu(String),
    /// A file of data, whose first line tells what its rows are.
    Data(String),
}

impl JobSource {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A job of the model called `name`.
    pub fn model(name: impl ToString) -> Self {
        Self::new().set(MODEL, name)
    }

    /// The job that the job file `text` says; errors call it `name`.
    pub fn from_file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: Some(JobText { name: name.into(), text: text.into() }), ..Self::default() }
    }

    /// The same with `key` set to `value`.
    #[must_use]
    pub fn set(self, key: &str, value: impl ToString) -> Self {
        self.with(&[Override::caller(key, value)])
    }

    /// The same with `overrides` on top.
    #[must_use]
    pub fn with(mut self, overrides: &[Override]) -> Self {
        self.overrides.extend_from_slice(overrides);
        self
    }

    /// The same in which what was set wins over every change. The model stays below them: naming one sets its fields anew.
    #[must_use]
    pub fn pin(mut self) -> Self {
        let (models, others): (Vec<_>, Vec<_>) = self.overrides.into_iter().partition(|given| given.key == MODEL);
        self.overrides = models;
        self.pinned.extend(others);
        self
    }

    /// The same with the config that a model called `name` has.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, config: impl Into<ConfigSource>) -> Self {
        self.configs.insert(name.into(), config.into());
        self
    }

    /// The same with the first line of the data called `name`.
    #[must_use]
    pub fn first_line(mut self, name: impl Into<String>, line: impl Into<String>) -> Self {
        self.first_lines.insert(name.into(), line.into());
        self
    }

    /// The same with the GPU that the word `name` means.
    #[must_use]
    pub fn gpu(mut self, name: impl Into<String>, gpu: NamedGpu) -> Self {
        self.gpus.insert(name.into(), gpu);
        self
    }

    /// The same in an environment; `None` leaves the version of transformers to the default.
    #[must_use]
    pub fn installed(mut self, installed: Option<InstalledTransformers>) -> Self {
        self.installed = installed;
        self
    }

    /// The same with what holds where nobody names a GPU.
    #[must_use]
    pub fn unnamed_gpu(mut self, unnamed: UnnamedGpu) -> Self {
        self.unnamed_gpu = unnamed;
        self
    }

    /// The same with what answers must say of how it was gathered.
    #[must_use]
    pub fn noted(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// The same with what no key can say of it.
    #[must_use]
    pub fn left_open(mut self, left_open: impl IntoIterator<Item = LeftOpen>) -> Self {
        self.left_open.extend(left_open);
        self
    }

    /// The job with `changes` on top.
    ///
    /// # Errors
    /// When a layer cannot be read, names no model, or says what cannot be; with the key, and its place in the job file.
    pub fn resolve(&self, changes: &[Override]) -> Result<Resolved, JobError> {
        resolve::resolve(self, changes)
    }

    /// What the job with `changes` names that was not gathered yet: configs, and GPUs that were set beside the file.
    /// Names of published models and of the catalog's GPUs are among them; who gathers leaves those out.
    pub fn lookups(&self, changes: &[Override]) -> Vec<Lookup> {
        let file = self.file.as_ref().and_then(|file| job_file::read_job_file(&file.name, &file.text).ok());
        let mut settings = file.unwrap_or_default();
        for given in self.layers(changes) {
            // What is wrong is said when the job is resolved.
            let _ = settings.set_override(given);
        }
        let said = |key: &str| settings.get(key).and_then(|setting| Some((setting.value.as_str()?, &setting.origin)));
        let models = [MODEL, JUDGE_MODEL, GKD_TEACHER_MODEL, PPO_REWARD_MODEL, PPO_VALUE_MODEL]
            .into_iter()
            .filter_map(said)
            .map(|(name, _)| name);
        let models = models.filter(|name| !self.configs.contains_key(*name)).map(|name| Lookup::Model(name.to_owned()));
        let gpu = said(GPU).filter(|(name, origin)| origin.is_above_file() && !self.gpus.contains_key(*name));
        let files = settings.get(DATA_TRAIN_FILES).and_then(|setting| setting.value.as_array());
        let data = files.into_iter().flatten().take(1).filter_map(Value::as_str);
        let data = data.filter(|name| is_json_lines(name) && !self.first_lines.contains_key(*name));
        let data = data.map(|name| Lookup::Data(name.to_owned()));
        models.chain(gpu.map(|(name, _)| Lookup::Gpu(name.to_owned()))).chain(data).collect()
    }

    /// What was set beside the file, GPUs written out by their memory and kernels, so that it means the same elsewhere.
    pub fn written_overrides(&self) -> Vec<Override> {
        let written = |given: &Override| match self.gpus.get(&given.value).filter(|_| given.key == GPU) {
            Some(gpu) => Override { value: gpu.written(), ..given.clone() },
            None => given.clone(),
        };
        self.overrides.iter().chain(&self.pinned).map(written).collect()
    }

    /// Everything beside the file, in the order in which it is set.
    fn layers<'a>(&'a self, changes: &'a [Override]) -> impl Iterator<Item = &'a Override> {
        self.overrides.iter().chain(changes).chain(&self.pinned)
    }

    /// All layers, checked value by value.
    pub(super) fn settings(&self, changes: &[Override]) -> Result<Settings, JobError> {
        let mut settings = match &self.file {
            Some(file) => job_file::read_job_file(&file.name, &file.text)?,
            None => Settings::default(),
        };
        self.layers(changes).try_for_each(|given| settings.set_override(given))?;
        Ok(settings)
    }

    /// The GPU that is not the catalog's, if `settings` name one or nobody names any, with who named it.
    pub(super) fn named_gpu<'a>(&'a self, settings: &'a Settings) -> Option<(&'a NamedGpu, &'a Origin)> {
        match (settings.get(GPU), &self.unnamed_gpu) {
            (Some(said), _) => Some((self.gpus.get(said.value.as_str()?)?, &said.origin)),
            (None, UnnamedGpu::Found { gpu, origin }) => Some((gpu.as_ref(), origin)),
            (None, _) => None,
        }
    }
}

impl From<&str> for ConfigSource {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for ConfigSource {
    fn from(text: String) -> Self {
        Self { text: Ok(text), weights: WeightsBeside::Absent, note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA: &str = r#"{"model_type": "llama", "max_position_embeddings": 256}"#;

    fn mine() -> NamedGpu {
        NamedGpu {
            gpu: Gpu { id: "mine".to_owned(), ..Gpu::parse("24GiB,sm_86").unwrap() },
            caveat: Some("nobody measured it".to_owned()),
        }
    }

    #[test]
    fn changes_win_over_what_was_set_unless_it_is_pinned() {
        let source = JobSource::from_file("job.toml", "model = \"gpt2\"\nseq_len = 8").set("seq_len", 16);
        let change = [Override::caller("seq_len", 32)];
        let length = |source: &JobSource| source.resolve(&change).unwrap().job.seq_len;
        assert_eq!((length(&source), length(&source.clone().pin())), (32, 16));
        let other = [Override::caller("model", "gpt2-medium")];
        let pinned = JobSource::model("gpt2").set("model.n_layer", 2).pin().resolve(&other).unwrap().job.model;
        assert_eq!((pinned.name.as_str(), pinned.config.size("n_layer", 0)), ("openai-community/gpt2-medium", Ok(2)));
    }

    #[test]
    fn what_is_not_gathered_is_named_and_then_found() {
        let source = JobSource::from_file("job.toml", "model = \"here\"\ngpu = \"l4\"").set("judge.model", "there");
        let model = |name: &str| Lookup::Model(name.to_owned());
        assert_eq!(source.lookups(&[]), [model("here"), model("there")]);
        let source = source.config("here", LLAMA).set("gpu", "mine.toml");
        assert_eq!(source.lookups(&[]), [model("there"), Lookup::Gpu("mine.toml".to_owned())]);
        assert_eq!(source.lookups(&[Override::caller("model", "third")])[0], model("third"));
        assert!(JobSource::from_file("job.toml", "model = ").lookups(&[]).is_empty(), "its error comes later");
    }

    #[test]
    fn a_gpu_of_ones_own_is_the_jobs_and_is_written_out_for_others() {
        let source = JobSource::model("gpt2").set("gpu", "mine.toml").gpu("mine.toml", mine());
        let resolved = source.resolve(&[]).unwrap();
        assert_eq!(resolved.job.gpu.id, "mine");
        assert!(resolved.notes.contains(&"nobody measured it".to_owned()));
        assert_eq!(source.written_overrides()[1].value, mine().written());
        let other = source.resolve(&[Override::caller("gpu", "l4")]).unwrap();
        assert!(other.job.gpu.id == "l4" && !other.notes.contains(&"nobody measured it".to_owned()));
        let found = UnnamedGpu::Found { gpu: Box::new(mine()), origin: Origin::Flag("--gpu live".to_owned()) };
        let found = JobSource::model("gpt2").unnamed_gpu(found).resolve(&[]).unwrap();
        assert!(found.job.gpu.id == "mine" && found.names_gpu());
        let (problem, hint) = ("a price is that of a GPU".to_owned(), "name it".to_owned());
        let refused = JobSource::model("gpt2").unnamed_gpu(UnnamedGpu::Refused { problem, hint });
        assert_eq!(refused.resolve(&[]).unwrap_err().problem, "a price is that of a GPU");
        assert!(refused.resolve(&[Override::caller("gpu", "l4")]).is_ok());
    }

    #[test]
    fn the_installed_transformers_decides_where_nobody_says() {
        let with = |version: &str| {
            let (version, environment) = (version.to_owned(), "/venv".to_owned());
            JobSource::model("gpt2").installed(Some(InstalledTransformers { version, environment }))
        };
        let resolved = with("4.48.1").resolve(&[]).unwrap();
        assert_eq!(resolved.origin("transformers"), Some(&Origin::Installed("/venv".to_owned())));
        assert_eq!(resolved.job.transformers.to_string(), "4.48");
        let said = with("4.48.1").resolve(&[Override::caller("transformers", "5.17")]).unwrap();
        assert_eq!(said.job.transformers.to_string(), "5.17");
        let unknown = with("1.0").resolve(&[]).unwrap();
        assert!(unknown.notes.iter().any(|note| note.contains("transformers 1.0 in /venv is not simulated")));
    }

    #[test]
    fn weights_beside_a_config_are_counted_or_said_to_be_missing() {
        let with = |weights| {
            let config = ConfigSource { weights, note: Some("found there".to_owned()), ..LLAMA.into() };
            JobSource::model("local").config("local", config)
        };
        let counted = |resolved: Resolved| resolved.job.model.beside.counted.map(|counted| counted.parameters);
        assert_eq!(counted(with(WeightsBeside::Counted(7)).resolve(&[]).unwrap()), Some(7));
        let changed = [Override::caller("model.num_hidden_layers", 2)];
        assert_eq!(counted(with(WeightsBeside::Counted(7)).resolve(&changed).unwrap()), None);
        let incomplete = with(WeightsBeside::Incomplete("a.safetensors".to_owned())).resolve(&[]).unwrap();
        let end = &incomplete.notes[incomplete.notes.len() - 2..];
        assert_eq!(end, ["found there", "the parameter count could not be checked: a.safetensors is not there"]);
        let broken = WeightsBeside::Unreadable { problem: "no header".to_owned(), hint: Some("again".to_owned()) };
        let error = with(broken).resolve(&[]).unwrap_err();
        assert_eq!((error.problem.as_str(), error.hint.as_deref()), ("no header", Some("again")));
    }

    #[test]
    fn what_was_noted_is_said_of_every_job() {
        let source = JobSource::model("gpt2").noted(["`group_by_length` is not read".to_owned()]);
        for changes in [vec![], vec![Override::caller("seq_len", 8)]] {
            assert_eq!(source.resolve(&changes).unwrap().notes[0], "`group_by_length` is not read");
        }
    }

    #[test]
    fn it_is_plain_data() {
        let source = JobSource::from_file("job.toml", "model = \"here\"").config("here", LLAMA).gpu("mine", mine());
        let text = serde_json::to_string(&source.set("seq_len", 8)).unwrap();
        let read: JobSource = serde_json::from_str(&text).unwrap();
        assert_eq!(read.resolve(&[]).unwrap().job.seq_len, 8);
    }
}
