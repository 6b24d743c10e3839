//! SIGKILL, which leaves the killed no time to say anything: what others say of them.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::{after, has, integer_after};

fn killed(pid: Option<u64>, data_loader: bool) -> Option<Reading> {
    Reading::whole(FailureCause::Killed { pid, data_loader })
}

/// torch/csrc/DataLoader.cpp
pub(super) const WORKER: Signature = Signature {
    name: "dataloader_killed",
    needles: &["is killed by signal: "],
    follow: 0,
    read: |text| {
        let pid = integer_after(text, "DataLoader worker (pid ")?;
        let signal = after(text, "is killed by signal: ")?;
        if signal.starts_with("Bus error") {
            return Reading::whole(FailureCause::SharedMemory { pid: Some(pid) });
        }
        if signal.starts_with("Killed") { killed(Some(pid), true) } else { None }
    },
};

/// A shell's report: `Killed`, `line 3: 4711 Killed  python train.py`, `[1]    4711 killed     python train.py`.
pub(super) const SHELL: Signature = Signature {
    name: "shell_killed",
    needles: &["Killed", " killed  "],
    follow: 0,
    read: |text| {
        if text == "Killed" {
            return killed(None, false);
        }
        let words: Vec<&str> = text.split_whitespace().take(8).collect();
        let report = words.windows(2).find(|pair| matches!(pair.get(1), Some(&"Killed" | &"killed")))?;
        let pid = report.first()?.parse().ok()?;
        let shell = has(text, ": line ") || text.starts_with('[');
        if shell { killed(Some(pid), false) } else { None }
    },
};

/// Python's `subprocess`, torchrun, GNU time.
pub(super) const SIGNAL: Signature = Signature {
    name: "signal_9",
    needles: &["SIGKILL", "terminated by signal 9"],
    follow: 0,
    read: |text| {
        let python = has(text, "died with <Signals.SIGKILL: 9>");
        let time = text.ends_with("Command terminated by signal 9");
        let multiprocessing = has(text, "terminated with signal SIGKILL");
        if python || time || multiprocessing { killed(None, false) } else { None }
    },
};
