//! [`Exporters`]: processes beside a runner that hand on what runs measure while it runs. Whatever becomes of them, no run and no
//! runner is touched; each is `tonnage suite export --follow`, which anybody may start by hand.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tonnage_suite::export::FORMATS;
use tonnage_suite::folder::SuiteFolder;

use crate::failure::Failure;
use crate::terminal::Terminal;

/// How long they are waited for when the suite has ended.
const PATIENCE: Duration = Duration::from_secs(180);

/// A format and its folder.
#[derive(Clone, Debug)]
pub struct Export {
    format: String,
    folder: PathBuf,
}

/// Reads `FORMAT=FOLDER`.
pub fn parse_export(text: &str) -> Result<Export, String> {
    let names = FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
    let wrong = || format!("FORMAT=FOLDER, with a format of {names}");
    let (format, folder) = text.split_once('=').filter(|(_, folder)| !folder.is_empty()).ok_or_else(wrong)?;
    if FORMATS.iter().all(|known| known.name != format) {
        return Err(wrong());
    }
    Ok(Export { format: format.to_owned(), folder: PathBuf::from(folder) })
}

/// Those that were started.
#[derive(Default)]
pub struct Exporters(Vec<(Export, PathBuf, Child)>);

impl Exporters {
    /// Starts one for each of `wanted`; folders are from the current one.
    ///
    /// # Errors
    /// When a folder or a log cannot be made: nothing was started then that has measured anything.
    pub fn start(wanted: &[Export], python: &Path, suite: &SuiteFolder, name: &str) -> Result<Self, Failure> {
        let mut started = Self::default();
        for export in wanted {
            let log = suite.path.join(format!("export-{}.log", export.format));
            let failed = |error: std::io::Error| Failure::about_file(&log.display().to_string(), &error);
            let program = std::env::current_exe().map_err(failed)?;
            let opened =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&log).map_err(failed)?;
            let mut command = Command::new(program);
            command.args(["suite", "export", name, "--to", &export.format, "--follow", "--out"]).arg(&export.folder);
            command.arg("--python").arg(python);
            // In a group of its own a Ctrl-C ends the suite, and it tells of the end.
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(opened).process_group(0);
            let child = command.spawn().map_err(failed)?;
            started.0.push((export.clone(), log, child));
        }
        Ok(started)
    }

    /// Waits for them, and says what became of each.
    pub fn finish(self, terminal: &Terminal) {
        let until = Instant::now() + PATIENCE;
        for (export, log, mut child) in self.0 {
            let shown = export.folder.display();
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => terminal.say(&format!("{}: {shown}", export.format)),
                    Ok(None) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(50));
                        continue;
                    }
                    Ok(None) => terminal.say(&format!("{}: still writes to {shown}", export.format)),
                    Ok(Some(_)) | Err(_) => {
                        let said = std::fs::read_to_string(&log).unwrap_or_default();
                        let why =
                            said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
                        terminal.say(&format!("warning: {} was not exported to {shown}: {why}", export.format));
                    }
                }
                break;
            }
        }
    }
}
