//! `tonnage watch`: GPUs and their processes as they are, beside what was predicted.

mod prediction;
mod sinks;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tonnage_core::limit::GPU_RECORDING_BYTES;
use tonnage_run::bounded::read_text;
use tonnage_watch::host::Kernel;
use tonnage_watch::nvml::{Library, NvmlSampler};
use tonnage_watch::record::Recording;
use tonnage_watch::screen::{self, App, Levels, Palette, Theme};
use tonnage_watch::watcher::{Source, Watcher, lock_board};
use tonnage_watch::{Board, format};

#[cfg(unix)]
use super::suite::living;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage watch
  tonnage watch job.toml --bell
  tonnage watch --once
  tonnage watch --csv --interval 5 > gpus.csv
  tonnage watch --prometheus 127.0.0.1:9838 --metrics-processes
  tonnage watch --web
  tonnage watch --record session.jsonl
  tonnage watch --replay session.jsonl --speed 10";

/// The variable that names NVML when `--nvml` does not.
pub const LIBRARY: &str = "TONNAGE_NVML_LIBRARY";

/// Seconds between two samples when nobody says.
const INTERVAL: f64 = 1.0;

/// Shows GPUs, their processes, and memory against what was predicted
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\nKeys of the screen: h. What is absent is shown as `-`, never as zero.\n\n{}", exit::ANSWER))]
pub struct WatchArgs {
    #[command(flatten)]
    job: JobArgs,

    /// Compares with an estimate that was written with `tonnage estimate --json`
    #[arg(long, value_name = "FILE", help_heading = "Watch", conflicts_with = "MODEL")]
    estimate: Option<PathBuf>,

    /// Seconds between two samples; of a recording, at least [default: 1, or as recorded]
    #[arg(short = 'n', long, value_name = "SECONDS", value_parser = parse_interval, help_heading = "Watch")]
    interval: Option<f64>,

    /// Looks once, prints text and ends; so does an output that is no terminal
    #[arg(short = '1', long, help_heading = "Watch")]
    once: bool,

    /// The NVML library [default: TONNAGE_NVML_LIBRARY, or the driver's]
    #[arg(long, value_name = "FILE", help_heading = "Watch")]
    nvml: Option<PathBuf>,

    /// Ends after so many samples
    #[arg(long, value_name = "N", help_heading = "Watch")]
    samples: Option<u64>,

    /// No signals can be sent
    #[arg(long, help_heading = "Screen")]
    read_only: bool,

    /// Colours of the screen
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Screen")]
    theme: Option<ThemeName>,

    /// Per cent of memory from which on a bar is worth a look, and near the end
    #[arg(long, value_name = "LOW,HIGH", default_value = "80,95", value_parser = parse_levels, help_heading = "Screen")]
    levels: Levels,

    /// Nothing but ASCII characters on the screen
    #[arg(long, help_heading = "Screen")]
    ascii: bool,

    #[command(flatten)]
    sinks: sinks::SinkArgs,

    /// Shows a recording instead of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "nvml", help_heading = "Recordings")]
    replay: Option<PathBuf>,

    /// Replays so many times as fast; 0 is as fast as can be [default: 1 on a screen or page, else 0]
    #[arg(long, value_name = "N", requires = "replay", value_parser = parse_speed, help_heading = "Recordings")]
    speed: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ThemeName {
    /// For a dark terminal
    Dark,
    /// For a light terminal
    Light,
    /// Blue and orange instead of green and red
    ColourBlind,
    /// No colours
    Mono,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("0.05 to 86400 seconds".to_owned()) }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e6).contains(&speed) { Ok(speed) } else { Err("0 to 1000000".to_owned()) }
}

fn parse_levels(text: &str) -> Result<Levels, String> {
    let (low, high) = text.split_once(',').ok_or("two numbers, as in 80,95")?;
    let per_cent = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("`{text}` is no number"));
    let levels = Levels { middle: per_cent(low)? / 100.0, high: per_cent(high)? / 100.0 };
    let in_order = 0.0 <= levels.middle && levels.middle <= levels.high && levels.high <= 1.0;
    if in_order { Ok(levels) } else { Err("0 to 100, the lower first".to_owned()) }
}

impl WatchArgs {
    /// Watches until somebody quits, or the samples end.
    ///
    /// # Errors
    /// When NVML, the recording or the job cannot be read, or a file or an address cannot be used.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let prediction = prediction::of_job(&self.job, self.estimate.as_deref())?;
        let mut watcher = Watcher::new(self.sample_source(terminal)?, Board::new(prediction));
        self.sinks.attach(&mut watcher)?;
        #[cfg(unix)]
        if self.replay.is_none() {
            watcher.suites = Some(look_at_suites(self.is_one_sample()));
        }
        // What is replayed is no history of this machine.
        if self.replay.is_none() {
            self.sinks.keep_history(&mut watcher, terminal)?;
        }
        self.sinks.serve(&watcher, terminal)?;
        if self.is_screen() {
            let app = App {
                theme: self.screen_theme(terminal),
                read_only: self.read_only || self.replay.is_some(),
                levels: self.levels,
                ..App::default()
            };
            return screen::run(watcher, app)
                .map(|()| Exit::Done)
                .map_err(|error| Failure::about_file("screen", &error));
        }
        self.stream_samples(watcher, terminal)
    }

    fn sample_source(&self, terminal: &Terminal) -> Result<Source, Failure> {
        if let Some(path) = &self.replay {
            let speed = self.speed.unwrap_or(if self.is_screen() || self.sinks.serves() { 1.0 } else { 0.0 });
            let recording = open_recording(path)?;
            let recording = match self.interval {
                Some(seconds) => recording.every(seconds),
                None => recording,
            };
            let (recording, one_of) = recording.bounded();
            if one_of > 1 {
                terminal.note(&format!(
                    "a long recording: one of {one_of} of its samples is played, and what was told between counts in the next"
                ));
            }
            return Ok(Source::Replay(Box::new(recording), speed));
        }
        let path = self.nvml.clone().or_else(|| std::env::var_os(LIBRARY).map(PathBuf::from));
        let library = Library::open(path.as_deref()).map_err(|error| {
            Failure::bad_input(error.to_string())
                .with_hint("NVML comes with NVIDIA's driver; `--nvml FILE` names another, `--replay FILE` needs none")
        })?;
        let sampler = NvmlSampler::new(library, Kernel::of_this_machine());
        Ok(Source::Live(Box::new(sampler), Duration::from_secs_f64(self.interval.unwrap_or(INTERVAL))))
    }

    fn is_screen(&self) -> bool {
        let is_data = self.once || self.samples.is_some() || self.sinks.prints() || self.sinks.serves();
        !is_data && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    fn is_once(&self) -> bool {
        self.once || !(self.sinks.prints() || self.sinks.serves() || self.samples.is_some() || self.sinks.records())
    }

    /// Whether nothing comes after the first sample.
    #[cfg(unix)]
    fn is_one_sample(&self) -> bool {
        self.samples == Some(1) || !self.is_screen() && self.is_once()
    }

    fn screen_theme(&self, terminal: &Terminal) -> Theme {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let palette = match self.theme {
            Some(ThemeName::Dark) => Palette::Dark,
            Some(ThemeName::Light) => Palette::Light,
            Some(ThemeName::ColourBlind) => Palette::ColourBlind,
            Some(ThemeName::Mono) => Palette::Mono,
            None if no_color => Palette::Mono,
            None => Palette::Dark,
        };
        Theme { palette, ascii: self.ascii || !terminal.look.unicode }
    }

    /// Samples one after the other; each is printed as it was asked for.
    fn stream_samples(&self, mut watcher: Watcher, terminal: &Terminal) -> Result<Exit, Failure> {
        let once = self.is_once();
        let most = self.samples.unwrap_or(if once && self.replay.is_none() { 1 } else { u64::MAX });
        let board = watcher.board();
        let mut printer = self.sinks.printer();
        for sample in 0..most {
            match if sample == 0 { Some(Duration::ZERO) } else { watcher.wait() } {
                Some(wait) => std::thread::sleep(wait),
                None => break,
            }
            if !watcher.step().map_err(|error| Failure::about_file("watch", &error))? {
                break;
            }
            let text = printer.sample(&lock_board(&board));
            if !text.map_or(Ok(true), |text| terminal.stream(&text))? {
                return Ok(Exit::Done);
            }
        }
        if once {
            // What goes into a file or another program is not cut.
            let width = if io::stdout().is_terminal() { terminal.look.width } else { usize::MAX };
            terminal.print(&format::plain_table(&lock_board(&board), width))?;
        }
        // A server goes on when a replay has ended, but not beyond the samples that were asked for.
        if self.samples.is_none() && !self.once {
            self.sinks.stay();
        }
        Ok(Exit::Done)
    }
}

/// Looks for the suites of this user that live.
#[cfg(unix)]
fn look_at_suites(once: bool) -> tonnage_watch::LookAtSuites {
    // Who takes one sample waits for what SLURM says; a screen does not.
    let living = if once { living::Living::default() } else { living::Living::beside() };
    let (store, mut living) = (tonnage_run::store::Store::of_user(), living);
    Box::new(move || living.look(&store))
}

fn open_recording(path: &Path) -> Result<Recording, Failure> {
    let name = path.display().to_string();
    let text = read_text(path, GPU_RECORDING_BYTES).map_err(|error| Failure::about_file(&name, &error))?;
    let recording = Recording::parse(text).map_err(|error| Failure::bad_input(format!("{name}: {error}")))?;
    if recording.is_empty() {
        return Err(Failure::bad_input(format!("{name}: there is nothing in it")));
    }
    Ok(recording)
}
