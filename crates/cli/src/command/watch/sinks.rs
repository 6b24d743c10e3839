//! Where samples go beside the screen: files, addresses, stdout, those who are told of alerts.

use std::io::BufWriter;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use tonnage_run::home;
use tonnage_watch::Board;
use tonnage_watch::format::{Csv, MetricOptions, sample_line};
use tonnage_watch::notify::Hook;
use tonnage_watch::record::{Recorder, Store, private_file};
use tonnage_watch::watcher::Watcher;
use tonnage_watch::web::{self, Site};

use crate::failure::Failure;
use crate::terminal::Terminal;

#[derive(Args)]
pub struct SinkArgs {
    /// Prints CSV: a row for each device and process of every sample
    #[arg(long, conflicts_with = "json", help_heading = "Outputs")]
    csv: bool,

    /// Prints JSON: a line for each sample (see docs/watch.md)
    #[arg(long, help_heading = "Outputs")]
    json: bool,

    /// Serves metrics for Prometheus on an address, or on a port of this machine
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:9838", value_parser = parse_address, help_heading = "Outputs")]
    prometheus: Option<SocketAddr>,

    /// Serves a page with live plots on an address, or on a port of this machine
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:9840", value_parser = parse_address, help_heading = "Outputs")]
    web: Option<SocketAddr>,

    /// Metrics of processes too
    #[arg(long, help_heading = "Outputs")]
    metrics_processes: bool,

    /// Metrics under the names of NVIDIA's exporter (DCGM_FI_DEV_...) too
    #[arg(long, help_heading = "Outputs")]
    metrics_dcgm: bool,

    /// Writes a recording, which `--replay` and the scripted NVML library read
    #[arg(long, value_name = "FILE", help_heading = "Recordings")]
    record: Option<PathBuf>,

    /// Keeps a history of at most 4 MiB in a folder, and begins with what it holds [with --web: TONNAGE_HOME/watch, or in the user's state folder]
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

/// An address with a port; a port alone, `:PORT` and `localhost:PORT` are this machine's.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port =
        if port.len() < text.len() { port.strip_prefix(':') } else { Some(port.strip_prefix(':').unwrap_or(port)) };
    if let Some(port) = port.and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| {
        "give a port (9838), localhost:9838, or an address of this machine in numbers: 127.0.0.1:9838, 0.0.0.0:9838 \
         for everybody who reaches it"
            .to_owned()
    })
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
            Self::Json => Some(sample_line(board)),
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
            let file = private_file(path).map_err(|error| Failure::about_file(&name, &error))?;
            watcher.recorder = Some(Recorder::new(BufWriter::new(file)));
        }
        Ok(())
    }

    /// Keeps the history that was asked for, or that a page has without being asked.
    pub fn keep_history(&self, watcher: &mut Watcher, terminal: &Terminal) -> Result<(), Failure> {
        let Some(folder) = self.history.clone().or_else(|| self.web.map(|_| home::default_root().join("watch"))) else {
            return Ok(());
        };
        match Store::open(&folder) {
            Ok((store, samples)) => watcher.begin_with(store, samples),
            Err(error) if self.history.is_some() => {
                return Err(Failure::bad_input(format!("{}: {error}", folder.display())));
            }
            Err(error) => terminal.note(&format!("no history is kept: {}: {error}", folder.display())),
        }
        Ok(())
    }

    /// Serves what was asked for; says where.
    pub fn serve(&self, watcher: &Watcher, terminal: &Terminal) -> Result<(), Failure> {
        let listen = |address: SocketAddr, site, what: &str| {
            let found =
                web::serve_site(address, site).map_err(|error| Failure::about_file(&address.to_string(), &error))?;
            terminal.note(&format!("{what}: http://{found}/"));
            if !found.ip().is_loopback() {
                terminal.note("that is not a loopback address: whoever reaches this machine can read it");
            }
            Ok::<(), Failure>(())
        };
        if let Some(address) = self.prometheus {
            let options = MetricOptions { processes: self.metrics_processes, dcgm: self.metrics_dcgm };
            listen(address, Site::of_metrics(watcher.board(), options), "metrics")?;
        }
        if let Some(address) = self.web {
            listen(address, Site::of_page(watcher.board()), "page")?;
        }
        Ok(())
    }

    /// Whether stdout gets data.
    pub fn prints(&self) -> bool {
        self.csv || self.json
    }

    /// Whether somebody may ask for more later.
    pub fn serves(&self) -> bool {
        self.prometheus.is_some() || self.web.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_of_this_machine() {
        for text in ["9838", ":9838", "localhost:9838", "127.0.0.1:9838"] {
            assert_eq!(parse_address(text).map(|found| found.to_string()).as_deref(), Ok("127.0.0.1:9838"), "{text}");
        }
        assert_eq!(parse_address("[::1]:9838").map(|found| found.port()), Ok(9838));
        for text in ["", "localhost", "localhost9838", "127.0.0.1", "example.com:9838", "99999", ":x"] {
            assert!(parse_address(text).is_err_and(|hint| hint.contains("give a port")), "{text}");
        }
    }
}
