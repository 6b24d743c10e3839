//! [`Client`]: SLURM's own programs, each call under a timeout and with bounded output. A controller that is silent says nothing of a job.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A queue of a large cluster as JSON; what is longer is not read.
const MOST_BYTES: u64 = 256 << 20;
/// What a client may take: by itself it gives up on a silent controller after some ten seconds a try.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a program of SLURM said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It succeeded: its output.
    Said(String),
    /// It failed for a reason of its own: its words.
    Refused(String),
    /// Nobody answered it, or not whole: nothing is known.
    Silent(String),
}

/// Calls SLURM's programs.
#[derive(Clone, Debug)]
pub struct Client {
    /// What a call may take.
    pub timeout: Duration,
}

impl Default for Client {
    fn default() -> Self {
        Self { timeout: TIMEOUT }
    }
}

/// What a job that submits others would hand on to them; the command line and the script say these (sbatch(1), INPUT ENVIRONMENT VARIABLES).
const NOT_HANDED_ON: [&str; 11] = [
    "SBATCH_ARRAY_INX",
    "SBATCH_CHDIR",
    "SBATCH_ERROR",
    "SBATCH_JOB_NAME",
    "SBATCH_NO_REQUEUE",
    "SBATCH_OPEN_MODE",
    "SBATCH_OUTPUT",
    "SBATCH_REQUEUE",
    "SBATCH_SIGNAL",
    "SBATCH_WAIT",
    "SBATCH_IGNORE_PBS",
];

/// Variables that say which SLURM it is.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"];

/// Words of SLURM's programs where the controller did not answer (slurm_errno.c, `slurm_strerror`): what was asked may have been done.
const SILENCE: [&str; 8] = [
    "Unable to contact slurm controller",
    "Socket timed out on send/recv operation",
    "Zero Bytes were transmitted or received",
    "Transport endpoint is not connected",
    "Connection refused",
    "Slurm backup controller in standby mode",
    "Slurm controller not responding",
    "Slurm temporarily unable to accept job",
];

impl Client {
    /// Calls `program`, where `folder` is given from there.
    pub fn call_program<W: AsRef<OsStr>>(&self, program: &str, words: &[W], folder: Option<&Path>) -> Answer {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_a_job = text.starts_with("SLURM") && !KEPT.contains(&&*text);
            if of_a_job || NOT_HANDED_ON.contains(&&*text) {
                command.env_remove(&name);
            }
        }
        // Dates that compare, lists of an array's tasks that are not cut short, words that are not another language's.
        command.env("SLURM_TIME_FORMAT", "standard").env("SLURM_BITSTR_LEN", "0").env("LC_ALL", "C");
        folder.map(|folder| command.current_dir(folder));
        match command.spawn() {
            Ok(child) => self.wait_answer(program, child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Answer::Refused(format!("there is no `{program}` here"))
            }
            Err(error) => Answer::Silent(format!("{program}: {error}")),
        }
    }

    fn wait_answer(&self, program: &str, mut child: Child) -> Answer {
        let output = child.stdout.take().map(read_pipe);
        let words = child.stderr.take().map(read_pipe);
        let until = Instant::now() + self.timeout;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                _ => {
                    // It may have ended just now; whoever is gone needs no end.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Answer::Silent(format!("{program} did not answer within {} s", self.timeout.as_secs()));
                }
            }
        };
        // A child of its own may hold the pipe; what it says then is of no interest.
        let said = |pipe: Option<mpsc::Receiver<Vec<u8>>>| {
            let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            pipe.and_then(|pipe| pipe.recv_timeout(rest).ok())
        };
        let (output, words) = (said(output), said(words).unwrap_or_default());
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        match output {
            _ if !status.success() && SILENCE.iter().any(|silence| words.contains(silence)) => Answer::Silent(words),
            _ if status.code().is_none() => Answer::Silent(format!("{program} was ended by a signal")),
            Some(output) if !status.success() => {
                let output = String::from_utf8_lossy(&output).trim().to_owned();
                Answer::Refused(if words.is_empty() { output } else { words })
            }
            Some(output) if (output.len() as u64) < MOST_BYTES => {
                Answer::Said(String::from_utf8_lossy(&output).into_owned())
            }
            _ => Answer::Silent(format!("{program}'s answer could not be read to its end")),
        }
    }
}

/// Reads a pipe to its end beside others.
fn read_pipe(pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if pipe.take(MOST_BYTES).read_to_end(&mut bytes).is_ok() {
            // Nobody waits for it any more once the time is up.
            let _ = sender.send(bytes);
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, milliseconds: u64) -> Answer {
        Client { timeout: Duration::from_millis(milliseconds) }.call_program("sh", &["-c", script], None)
    }

    #[test]
    fn what_is_refused_is_told_from_silence() {
        assert_eq!(shell("echo 12; echo warning >&2", 5000), Answer::Said("12\n".to_owned()));
        let refused = "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1";
        assert!(matches!(shell(refused, 5000), Answer::Refused(words) if words.contains("Invalid account")));
        for silent in [
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
            "kill -9 $$",
        ] {
            assert!(matches!(shell(silent, 5000), Answer::Silent(_)), "{silent}");
        }
        assert!(matches!(shell("sleep 30", 100), Answer::Silent(_)));
        assert!(matches!(Client::default().call_program("no-such-squeue", &[""], None), Answer::Refused(_)));
    }

    #[test]
    fn a_long_answer_fills_no_pipe() {
        let Answer::Said(text) = shell("yes | head -c 3000000; yes | head -c 300000 >&2", 20_000) else {
            panic!("no answer")
        };
        assert_eq!(text.len(), 3_000_000);
    }
}
