//! What another program asks in its own process, as the Python module does: the same commands, and answers that are kept instead of
//! printed.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use serde_json::Value;
use tonnage_config::Reading;
use tonnage_core::job::{KEYS, Key, Override};
use tonnage_report::{Answer, EstimateView, Look, plot, svg, text};

use crate::command::estimate::WithConfig;
use crate::command::{cost, doctor, estimate, fit, gpus, json, models, plan, trace};
use crate::job_args::JobArgs;
use crate::job_input::simulate_resolved;
use crate::terminal::Terminal;

pub use crate::failure::{Failure, OfJob};
pub use crate::job_args::Handed;
pub use crate::terminal::Kept;

/// Columns of a screen that no terminal shows.
const WIDTH: usize = 100;

/// A job as it is asked about.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// A model's name or path, or a job file.
    pub model: Option<String>,
    /// Keys with their values as text; `lora_r` is `lora.r`, and other programs' names are taken as everywhere.
    pub settings: Vec<(String, String)>,
    /// What the asking program has at hand.
    pub handed: Handed,
}

impl Asked {
    fn into_job_args(self) -> JobArgs {
        let overrides = self.settings.iter().map(|(key, value)| Override::caller(key_called(key), value)).collect();
        JobArgs { model: self.model, overrides, handed: self.handed, ..JobArgs::default() }
    }
}

/// Logs as they are asked about.
#[derive(Clone, Debug, Default)]
pub struct AskedLogs {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Texts, each with a name.
    pub texts: Vec<(String, Vec<u8>)>,
    /// The exit status of the job, as a shell or Python states it.
    pub exit_status: Option<i64>,
    /// The job that ran.
    pub job: Option<Asked>,
}

/// The answer about one job.
pub struct Estimated {
    answer: Answer,
    /// What became of the attributes of objects.
    config: Option<Value>,
}

impl Estimated {
    /// JSON, as `--json` prints it.
    ///
    /// # Errors
    /// When a value cannot be written as JSON.
    pub fn document(&self) -> Result<String, Failure> {
        json(&self.with_config())
    }

    /// The same as a value.
    ///
    /// # Errors
    /// When a value cannot be written as JSON.
    pub fn value(&self) -> Result<Value, Failure> {
        serde_json::to_value(self.with_config()).map_err(|error| Failure::bad_input(error.to_string()))
    }

    fn with_config(&self) -> WithConfig<'_> {
        WithConfig { view: EstimateView::new(&self.answer, estimate::TOP), config: self.config.clone() }
    }

    /// The screen, without colours.
    pub fn screen(&self) -> String {
        without_colour(&text::estimate_screen(&self.answer, &plain_look()))
    }

    /// The step as a plot of text.
    ///
    /// # Errors
    /// When the job cannot be simulated.
    pub fn plot(&self) -> Result<String, Failure> {
        let simulated = simulate_resolved(&self.answer.resolved)?;
        let timeline = simulated.timeline(estimate::PICTURE_POINTS)?;
        Ok(without_colour(&plot::plot_timeline(&timeline, self.usable_bytes(), estimate::PLOT_HEIGHT, &plain_look())))
    }

    /// The step as a picture.
    ///
    /// # Errors
    /// When the job cannot be simulated.
    pub fn svg(&self) -> Result<String, Failure> {
        let simulated = simulate_resolved(&self.answer.resolved)?;
        let timeline = simulated.timeline(estimate::PICTURE_POINTS)?;
        Ok(svg::timeline_svg(&timeline, &self.answer.resolved.job, &self.answer.estimate, self.usable_bytes()))
    }

    fn usable_bytes(&self) -> Option<u64> {
        estimate::usable_bytes(&self.answer)
    }
}

/// What a job needs, and whether it fits.
///
/// # Errors
/// When the job cannot be resolved or simulated.
pub fn estimate(asked: Asked) -> Result<Estimated, Failure> {
    let (answer, reading) = estimate::EstimateArgs::of_job(asked.into_job_args()).alone()?;
    Ok(Estimated { answer, config: reading.as_ref().map(Reading::to_json) })
}

/// The answer of a command to its own options, `words`, about a job.
///
/// # Errors
/// When the words are wrong, or the command cannot answer.
pub fn ask(words: &[String], asked: Asked) -> Result<Kept, Failure> {
    let line = std::iter::once("tonnage").chain(words.iter().map(String::as_str));
    let question = Question::try_parse_from(line).map_err(|error| refused_words(&error))?;
    keep_output(|terminal| match question.asks {
        Asks::Estimate(mut args) => {
            args.job = asked.into_job_args();
            args.run(terminal)
        }
        Asks::Fit(mut args) => {
            args.job = asked.into_job_args();
            args.run(terminal)
        }
        Asks::Plan(mut args) => {
            args.job = asked.into_job_args();
            args.run(terminal)
        }
        Asks::Cost(mut args) => {
            args.job = asked.into_job_args();
            args.run(terminal)
        }
        Asks::Trace(command) => command.run(terminal),
        Asks::Gpus(args) => args.run(terminal),
        Asks::Models(args) => args.run(terminal),
    })
}

/// What killed a job, by its logs.
///
/// # Errors
/// When a log or the job cannot be read.
pub fn ask_doctor(asked: AskedLogs) -> Result<Kept, Failure> {
    let args =
        doctor::DoctorArgs::of_logs(asked.paths, asked.texts, asked.exit_status, asked.job.map(Asked::into_job_args));
    keep_output(|terminal| args.run(terminal))
}

fn keep_output<T>(answer: impl FnOnce(&Terminal) -> Result<T, Failure>) -> Result<Kept, Failure> {
    let terminal = Terminal::keeping(plain_look());
    answer(&terminal)?;
    let kept = terminal.into_kept();
    Ok(Kept { screen: without_colour(&kept.screen), ..kept })
}

/// The commands that answer.
#[derive(Parser)]
struct Question {
    #[command(subcommand)]
    asks: Asks,
}

#[derive(Subcommand)]
enum Asks {
    Estimate(Box<estimate::EstimateArgs>),
    Fit(Box<fit::FitArgs>),
    Plan(Box<plan::PlanArgs>),
    Cost(Box<cost::CostArgs>),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Gpus(gpus::GpusArgs),
    Models(models::ModelsArgs),
}

/// What clap says of wrong words, without its usage.
fn refused_words(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ").trim_end();
    match said.split_once("\nhint: ") {
        Some((problem, hint)) => Failure::bad_input(problem).with_hint(hint),
        None => Failure::bad_input(said),
    }
}

/// The key's own name where `name` has `_` for its `.`, as a keyword argument must.
fn key_called(name: &str) -> &str {
    let written = |key: &&Key| key.name.contains('.') && key.name.replace('.', "_") == name;
    let known = Key::called(name).is_some() || name.contains('.');
    KEYS.iter().find(written).filter(|_| !known).map_or(name, |key| key.name)
}

fn plain_look() -> Look {
    Look { width: WIDTH, unicode: true }
}

fn without_colour(screen: &str) -> String {
    anstream::adapter::strip_str(screen).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(settings: &[(&str, &str)]) -> Asked {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Asked { model: Some("gpt2".to_owned()), settings, handed: Handed::default() }
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn answers_are_kept_as_document_and_screen() {
        let kept = ask(&words("fit --gpus l4 --rows 1 --no-largest"), asked(&[("seq_len", "64")])).unwrap();
        assert!(kept.document.contains("\"micro_batch_size\": 1"), "{}", kept.document);
        assert!(kept.screen.contains("gpt2") && !kept.screen.contains('\u{1b}'), "{}", kept.screen);
    }

    #[test]
    fn an_estimate_says_the_same_in_every_form() {
        let estimated =
            estimate(asked(&[("lora_r", "8"), ("per_device_train_batch_size", "2"), ("gpu", "l4")])).unwrap();
        let value = estimated.value().unwrap();
        let read: Value = serde_json::from_str(&estimated.document().unwrap()).unwrap();
        assert_eq!(value, read);
        let said = value["job"].as_array().unwrap().iter().find(|value| value["key"] == "lora.r").unwrap();
        assert_eq!((&said["value"], &said["origin"]), (&8.into(), &"set by the caller".into()));
        assert!(estimated.svg().unwrap().starts_with("<svg") && estimated.plot().unwrap().contains("usable"));
    }

    #[test]
    fn errors_say_what_they_are_about() {
        let failure = estimate(asked(&[("seq_len", "many")])).err().unwrap();
        assert_eq!(failure.of_job.unwrap().keys, ["seq_len"]);
        let failure = ask(&words("fit --rows none"), asked(&[])).err().unwrap();
        assert!(failure.problem.contains("none"), "{}", failure.problem);
    }
}
