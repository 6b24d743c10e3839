//! `tonnage generate`: text from a model that was trained here, or from any folder of Hugging Face's.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tonnage_core::job::keys::{FRAMEWORK, LORA_ALPHA, LORA_R, LORA_TARGETS};
use tonnage_core::job::{GenerationSpec, Override};
use tonnage_run::store::Store;
use tonnage_torch::Device;
use tonnage_train::store::adapter::{AdapterConfig, base_folder};
use tonnage_train::writing::{Author, Written, generation_in, model_in};

use super::train::EngineArgs;
use super::train::engine::{self, train_failure};
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::{Handed, JobArgs};
use crate::job_input::read_source;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage generate runs/lilwill-cpu \"Once\"
  tonnage generate runs/lilwill-cpu \"Once\" --temperature 0.8 --top-k 40 --seed 7
  tonnage generate runs/lilwill-cpu \"Once\" --beam 4 --max-new-tokens 40
  tonnage generate ./my-model < prompt.txt
  tonnage generate runs/lilwill-cpu                # asks for prompts, a line each, until the end of the input";

/// The longest prompt that is read from the input.
const PROMPT_BYTES: u64 = 16 << 20;

/// Continues a text with a trained model
#[derive(Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", exit::GENERATE))]
pub struct GenerateArgs {
    /// The output folder of a training, a checkpoint, a folder with config.json and safetensors, or a run
    from: PathBuf,

    /// What is continued [default: the input; at a terminal it is asked for]
    prompt: Option<String>,

    /// Tokens at most [default: as the model's generation_config.json says, else 100]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 17))]
    max_new_tokens: Option<u64>,

    /// Draws by chance; implied by --temperature, --top-k and --top-p
    #[arg(long)]
    do_sample: bool,

    /// Takes the likeliest token each time, whatever the model's config says
    #[arg(long, conflicts_with_all = ["do_sample", "temperature", "top_k", "top_p"])]
    greedy: bool,

    /// Flattens (above 1) or sharpens what is drawn from
    #[arg(short, long, value_name = "X")]
    temperature: Option<f64>,

    /// Draws from the K likeliest tokens; 0 from all
    #[arg(long, value_name = "K")]
    top_k: Option<u64>,

    /// Draws from the likeliest tokens that have this probability together
    #[arg(long, value_name = "X")]
    top_p: Option<f64>,

    /// Follows N texts at once and gives the likeliest
    #[arg(long, alias = "num-beams", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    beam: Option<u64>,

    /// Decides what is drawn
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,

    #[command(flatten)]
    engine: EngineArgs,

    /// Prints JSON: the text, its tokens, their score, why it ends
    #[arg(long)]
    json: bool,
}

impl GenerateArgs {
    /// Generates.
    ///
    /// # Errors
    /// When there is no such model, no PyTorch, or the prompt cannot be continued.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = model_in(&self.model_folder()?).map_err(|error| train_failure(&error))?;
        let how = self.generation_settings(generation_in(&folder).map_err(|error| train_failure(&error))?)?;
        let adapter = AdapterConfig::read(&folder).map_err(|error| train_failure(&error))?;
        let base = adapter.as_ref().map(base_folder);
        let source = read_source(&JobArgs {
            model: Some(shown_path(base.as_deref().unwrap_or(&folder))),
            overrides: adapter_overrides(adapter.as_ref()),
            small_gpt: None,
            handed: Handed::default(),
            from: Vec::new(),
        })?;
        let job = source.resolve(&[])?.job;
        let (found, chosen) = self.engine.choose(false)?;
        let shim = engine::build_shim(&found, terminal)?;
        let torch = engine::load_torch(&found, &shim, chosen.device)?;
        let author = Author::open(torch, chosen.device, &job, &folder, base.as_deref());
        let author = author.map_err(|error| train_failure(&error))?;
        if chosen.device == Device::Cpu && std::env::var_os("TONNAGE_QUIET").is_none() {
            terminal.note(&format!("{} {}", shown_path(&folder), chosen.why));
        }
        match &self.prompt {
            Some(prompt) => self.write_one(&author, prompt, &how, terminal)?,
            None if std::io::stdin().is_terminal() && !self.json => self.ask_prompts(&author, &how, terminal)?,
            None => self.write_one(&author, &read_prompt()?, &how, terminal)?,
        }
        Ok(Exit::Done)
    }

    /// A folder, or where a run of that name keeps its checkpoints.
    fn model_folder(&self) -> Result<PathBuf, Failure> {
        if self.from.exists() {
            return Ok(self.from.clone());
        }
        let name = self.from.to_string_lossy();
        let run = Store::of_user().find(&name).map_err(|_| {
            Failure::bad_input(format!("{name}: no such folder, and no run is called so"))
                .with_hint("`tonnage train` says where its checkpoints go; `tonnage list` names runs")
        })?;
        let folder = run
            .run()
            .policy
            .checkpoints
            .clone()
            .ok_or_else(|| Failure::bad_input(format!("run {name} keeps no checkpoints")))?;
        Ok(Path::new(&run.run().folder).join(folder))
    }

    fn generation_settings(&self, model: GenerationSpec) -> Result<GenerationSpec, Failure> {
        let draws = self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some() || self.do_sample;
        let in_range = |name: &str, value: Option<f64>, most: f64| match value {
            Some(value) if !(0.0..=most).contains(&value) => {
                Err(Failure::bad_input(format!("--{name} must be a number from 0 to {most}, found {value}")))
            }
            value => Ok(value),
        };
        let temperature = in_range("temperature", self.temperature, 100.0)?;
        let top_p = in_range("top-p", self.top_p, 1.0)?;
        let num_beams = self.beam.unwrap_or(if draws || self.greedy { 1 } else { model.num_beams });
        if num_beams > 1 && draws {
            return Err(Failure::bad_input("beams are followed by likelihood: they are not drawn")
                .with_hint("leave out --beam, or --temperature, --top-k, --top-p and --do-sample"));
        }
        Ok(GenerationSpec {
            max_new_tokens: self.max_new_tokens.unwrap_or(model.max_new_tokens),
            do_sample: (draws || model.do_sample) && !self.greedy && num_beams == 1,
            temperature: temperature.unwrap_or(model.temperature),
            top_k: self.top_k.unwrap_or(model.top_k),
            top_p: top_p.unwrap_or(model.top_p),
            num_beams,
            prompt: model.prompt,
        })
    }

    fn write_one(
        &self,
        author: &Author,
        prompt: &str,
        how: &GenerationSpec,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let began = std::time::Instant::now();
        let streams = !self.json;
        if streams {
            terminal.print(prompt)?;
        }
        let mut hear = |text: &str| !streams || terminal.stream(text).unwrap_or(false);
        let written = author
            .write(&(how.prompt.clone() + prompt), how, self.seed, &mut hear)
            .map_err(|error| train_failure(&error))?;
        if streams {
            return terminal.print("\n");
        }
        terminal.print(&(self.json_document(prompt, &written, how, began.elapsed().as_secs_f64()) + "\n"))
    }

    fn json_document(&self, prompt: &str, written: &Written, how: &GenerationSpec, seconds: f64) -> String {
        let generated = &written.generated;
        let stop = match generated.stop {
            tonnage_train::generate::Stop::EndOfText => "end_of_text",
            tonnage_train::generate::Stop::Length => "length",
            tonnage_train::generate::Stop::Positions => "positions",
            tonnage_train::generate::Stop::Listener => "listener",
        };
        format!(
            "{:#}",
            json!({
                "version": tonnage_report::VERSION,
                "prompt": prompt,
                "text": written.text,
                "tokens": generated.tokens,
                "prompt_tokens": written.prompt_tokens,
                "score": generated.score,
                "stop": stop,
                "seed": self.seed,
                "generation": how,
                "seconds": seconds,
            })
        )
    }

    /// Line by line, until the input ends.
    fn ask_prompts(&self, author: &Author, how: &GenerationSpec, terminal: &Terminal) -> Result<(), Failure> {
        loop {
            terminal.tell("> ");
            // Nothing can be done about a stderr that is closed.
            let _ = std::io::stderr().flush();
            let mut line = String::new();
            let read =
                std::io::stdin().read_line(&mut line).map_err(|error| Failure::about_file("the input", &error))?;
            if read == 0 {
                terminal.tell("\n");
                return Ok(());
            }
            let prompt = line.trim_end_matches(['\n', '\r']);
            if prompt.is_empty() {
                continue;
            }
            // A prompt that cannot be continued is said; the next may be better.
            if let Err(failure) = self.write_one(author, prompt, how, terminal) {
                terminal.fail(&failure);
            }
        }
    }
}

fn adapter_overrides(adapter: Option<&AdapterConfig>) -> Vec<Override> {
    let mut overrides = vec![Override::caller(FRAMEWORK, "loop")];
    if let Some(adapter) = adapter {
        overrides.push(Override::caller(LORA_R, adapter.r));
        overrides.push(Override::caller(LORA_ALPHA, adapter.lora_alpha));
        overrides.push(Override::caller(LORA_TARGETS, adapter.target_modules.join(",")));
    }
    overrides
}

/// A relative folder that looks like a path to whoever reads it.
fn shown_path(path: &Path) -> String {
    if path.is_absolute() || path.starts_with(".") || path.starts_with("..") {
        return path.display().to_string();
    }
    Path::new(".").join(path).display().to_string()
}

fn read_prompt() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(PROMPT_BYTES).read_to_string(&mut text);
    read.map_err(|error| Failure::about_file("the input", &error))?;
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    if text.is_empty() {
        return Err(Failure::bad_input("there is no prompt").with_hint("give one: tonnage generate FOLDER \"Once\""));
    }
    Ok(text)
}
