//! What is trained: the job as it was typed, as a plain loop, and the command that trains it.

use std::path::{Path, PathBuf};

use tonnage_core::gpu::Gpu;
use tonnage_core::job::keys::{
    FRAMEWORK, GRADIENT_ACCUMULATION_STEPS, MICRO_BATCH_SIZE, MODEL, OUTPUT_DIR, SWARM_FOLDER, WORLD_SIZE,
};
use tonnage_core::job::{JobSource, JobSpec, Key, Origin, Override, Preset, Resolved, Task};
use tonnage_torch::{Device, Found};
use tonnage_train::grpo::swarm::Place;
use tonnage_train::program::Program;

use crate::failure::Failure;
use crate::hub_cache;
use crate::job_args::JobArgs;
use crate::job_input::read_source;
use crate::model_folder::{judge_folder, model_file, model_folder};

/// Where trainings go that name no folder.
const RUNS: &str = "runs";

/// GPT-2's name on the hub.
const GPT2: &str = "openai-community/gpt2";

/// A job that is to be trained.
pub struct TrainJob {
    /// What it is made of.
    pub source: JobSource,
    /// What it comes to.
    pub resolved: Resolved,
    model: Option<String>,
}

impl TrainJob {
    /// The job that was typed, on so many ranks; where nobody says otherwise it is a plain loop, which is what runs it.
    ///
    /// # Errors
    /// When it cannot be read or resolved, or it is of another number of ranks.
    pub fn read_job(args: &JobArgs, ranks: Option<u64>) -> Result<Self, Failure> {
        // No transformers runs here, whichever the active environment has.
        let source = on_ranks(read_source(args)?.installed(None), ranks)?;
        let is_said = |resolved: &Resolved| !matches!(resolved.origin(FRAMEWORK), Some(Origin::Default(_)) | None);
        let resolved = source.resolve(&[])?;
        let source = if is_said(&resolved) {
            source
        } else {
            source.with(&[Override::new(FRAMEWORK, "loop", Origin::Flag("tonnage train".to_owned()))])
        };
        let resolved = source.resolve(&[])?;
        Ok(Self { source, resolved, model: args.model.clone() })
    }

    /// All that decides what is computed: ranks whose words differ train something else. The GPU may be another on another machine.
    pub fn in_words(&self) -> String {
        let job = JobSpec { gpu: Gpu::default(), ..self.resolved.job.clone() };
        format!("{} {job:?} {:?}", env!("CARGO_PKG_VERSION"), self.resolved.training)
    }

    /// The folder of its checkpoints.
    pub fn output_folder(&self) -> PathBuf {
        if let Some(said) = &self.resolved.training.output_dir {
            return PathBuf::from(said);
        }
        Path::new(RUNS).join(self.job_name())
    }

    /// What to call it: the job file's name, else the model's.
    pub fn job_name(&self) -> String {
        let of_file = self.source.file.as_ref().and_then(|file| Path::new(&file.name).file_stem());
        let named = of_file.map(|stem| stem.to_string_lossy().into_owned());
        let model = || self.resolved.job.model.name.rsplit('/').next().unwrap_or("model").to_owned();
        let name = named.unwrap_or_else(model);
        name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' }).collect()
    }

    /// The training, writing to `output`, from its newest checkpoint there if it `resumes`.
    pub fn make_program(&self, output: Option<PathBuf>, resumes: bool) -> Program<'_> {
        let data = &self.resolved.training.data;
        let found = |names: &[String]| names.iter().map(|name| model_file(&self.source, name)).collect();
        Program {
            job: &self.resolved.job,
            names_published: names_published(&self.resolved),
            training: &self.resolved.training,
            model_folder: model_folder(&self.source, &self.resolved),
            judge_folder: judge_folder(&self.source, &self.resolved),
            gpt2_folder: hub_cache::find_snapshot(GPT2).map(|snapshot| snapshot.folder),
            train_files: found(&data.train_files),
            eval_files: found(&data.eval_files),
            swarm: Place::default(),
            output,
            resumes,
        }
    }

    /// The command that trains it; on a GPU the guard fills in the batch.
    ///
    /// # Errors
    /// When this program's own place is not known.
    pub fn trainer_command(
        &self,
        found: &Found,
        device: Device,
        output: &Path,
        guarded: bool,
    ) -> Result<Vec<String>, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::about_file("tonnage", &error))?;
        let mut words = vec![program.display().to_string(), "trainer".to_owned()];
        words.extend(
            self.model
                .clone()
                .filter(|_| self.source.file.as_ref().is_none_or(|file| Some(&file.name) == self.model.as_ref())),
        );
        if self.model.is_none()
            && let Some(file) = &self.source.file
        {
            words.extend(["--job-text".to_owned(), file.text.clone()]);
        }
        words.extend(["--torch".to_owned(), found.root.display().to_string()]);
        words.extend(["--device".to_owned(), device.to_string()]);
        let ours = [OUTPUT_DIR, MICRO_BATCH_SIZE, GRADIENT_ACCUMULATION_STEPS];
        let is_ours = |given: &Override| {
            let key = Key::called(&given.key).map_or(given.key.as_str(), |key| key.name);
            // Said below by whole paths: the output folder, and the folder that a swarm's nodes share.
            let is_path =
                key == OUTPUT_DIR || (key == SWARM_FOLDER && matches!(self.resolved.job.task, Task::Swarm(_)));
            is_path || key == MODEL || (guarded && ours.contains(&key))
        };
        for given in self.source.overrides.iter().filter(|given| !is_ours(given)) {
            words.extend(["--set".to_owned(), format!("{}={}", given.key, given.value)]);
        }
        words.extend(["--set".to_owned(), format!("{OUTPUT_DIR}={}", output.display())]);
        if guarded {
            for key in [MICRO_BATCH_SIZE, GRADIENT_ACCUMULATION_STEPS] {
                words.extend(["--set".to_owned(), format!("{key}={{{key}}}")]);
            }
        }
        Ok(words)
    }
}

/// Whether `model` is a text that the built-in table has, not fields of its own.
fn names_published(resolved: &Resolved) -> bool {
    let said = resolved.provenance.iter().find(|value| value.key == MODEL);
    let name = said.and_then(|value| serde_json::from_str::<String>(&value.value).ok());
    name.is_some_and(|name| Preset::find(&name).is_some())
}

/// The job with `ranks` in place of what it says of them; what it says itself must be the same.
fn on_ranks(source: JobSource, ranks: Option<u64>) -> Result<JobSource, Failure> {
    let Some(ranks) = ranks else { return Ok(source) };
    let resolved = source.resolve(&[])?;
    let said = !matches!(resolved.origin(WORLD_SIZE), Some(Origin::Default(_)) | None);
    let of_job = resolved.job.parallel.world_size;
    if said && of_job != ranks {
        return Err(Failure::bad_input(format!(
            "the job is of {of_job} ranks (world_size), and {ranks} are to train it"
        ))
        .with_hint("start as many as it says, or leave world_size out of it"));
    }
    Ok(source.with(&[Override::new(WORLD_SIZE, ranks.to_string(), Origin::Flag("ranks".to_owned()))]))
}
