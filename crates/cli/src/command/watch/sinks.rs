//! Where samples go beside the screen: files, addresses, stdout, those who are told of alerts.

use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tonnage_watch::Board;
use tonnage_watch::format::{Csv, MetricOptions, sample_json};
use tonnage_watch::notify::Hook;
use tonnage_watch::record::{Recorder, Store};
use tonnage_watch::watcher::Watcher;

use crate::failure::Failure;

#[derive(Args)]
pub struct SinkArgs {
    /// Prints CSV: a row for each device and process of every sample
    #[arg(long, conflicts_with = "json", help_heading = "Outputs")]
    csv: bool,

    /// Prints JSON: a line for each sample (see docs/watch.md)
    #[arg(long, help_heading = "Outputs")]
    json: bool,

    /// Serves metrics for Prometheus on an address
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:9838", help_heading = "Outputs")]
    prometheus: Option<SocketAddr>,

    /// Metrics of processes too
    #[arg(long, help_heading = "Outputs")]
    metrics_processes: bool,

    /// Metrics under the names of NVIDIA's exporter (DCGM_FI_DEV_...) too
    #[arg(long, help_heading = "Outputs")]
    metrics_dcgm: bool,

    /// Writes a recording, which `--replay` and the scripted NVML library read
    #[arg(long, value_name = "FILE", help_heading = "Recordings")]
    record: Option<PathBuf>,

    /// Keeps a history of at most 4 MiB in a folder, and begins with what it holds
    #[arg(long, value_name = "DIR", help_heading = "Recordings")]
    history: Option<PathBuf>,

    /// Rings the terminal's bell at an alert
    #[arg(long, help_heading = "Alerts")]
    bell: bool,

    /// Runs a shell command at an alert; TONNAGE_ALERT_TEXT, _KIND, _DEVICE and _ADVICE tell of it
    #[arg(long, value_name = "COMMAND", help_heading = "Alerts")]
    alert_command: Option<String>,

    /// Posts an alert as JSON to an address of this machine
    #[arg(long, value_name = "URL", value_parser = Hook::parse, help_heading = "Alerts")]
    alert_hook: Option<Hook>,
}

/// Makes text of samples.
pub enum Printer {
    Nothing,
    Csv(Csv),
    Json,
}

impl Printer {
    pub fn sample(&mut self, board: &Board) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Csv(csv) => Some(csv.rows(board)),
            Self::Json => Some(sample_json(board).to_string() + "\n"),
        }
    }
}

impl SinkArgs {
    /// Opens what was asked for.
    pub fn attach(&self, watcher: &mut Watcher) -> Result<(), Failure> {
        watcher.notify.bell = self.bell;
        watcher.notify.command.clone_from(&self.alert_command);
        watcher.notify.hook.clone_from(&self.alert_hook);
        if let Some(path) = &self.record {
            let name = path.display().to_string();
            let file = File::create(path).map_err(|error| Failure::file(&name, &error))?;
            watcher.recorder = Some(Recorder::new(BufWriter::new(file)));
        }
        if let Some(folder) = &self.history {
            let opened = Store::open(folder);
            let (store, samples) = opened.map_err(|error| Failure::input(format!("{}: {error}", folder.display())))?;
            watcher.store = Some(store);
            watcher.begin_with(samples);
        }
        Ok(())
    }

    fn metric_options(&self) -> MetricOptions {
        MetricOptions { processes: self.metrics_processes, dcgm: self.metrics_dcgm }
    }

    /// Whether stdout gets data.
    pub fn prints(&self) -> bool {
        self.csv || self.json
    }

    /// Whether somebody may ask for more later.
    pub fn serves(&self) -> bool {
        self.prometheus.is_some()
    }

    /// Whether a file gets every sample.
    pub fn records(&self) -> bool {
        self.record.is_some()
    }

    pub fn printer(&self) -> Printer {
        match (self.csv, self.json) {
            (true, _) => Printer::Csv(Csv::default()),
            (_, true) => Printer::Json,
            _ => Printer::Nothing,
        }
    }

    /// A server goes on when a replay has ended, until somebody stops it.
    pub fn stay(&self) {
        while self.serves() {
            std::thread::park();
        }
    }
}
