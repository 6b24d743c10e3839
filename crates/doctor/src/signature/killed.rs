//! SIGKILL, which leaves the killed no time to say anything: what others say of them.

use super::torchrun::rank_of_command;
use super::{Reading, Signature};
use crate::cause::{FailureCause, Worker};
use crate::text::{has_phrase, integer_after, signed_after, text_after, without_space};
use tonnage_core::failure::Class;

fn killed(pid: Option<u64>, data_loader: bool) -> Option<Reading> {
    Reading::whole(FailureCause::Killed { pid, data_loader })
}

/// `torch/csrc/DataLoader.cpp`
pub(super) const WORKER: Signature = Signature {
    name: "dataloader_killed",
    needles: &["is killed by signal: ", "exited unexpectedly"],
    also: &["DataLoader worker (pid"],
    follow: 0,
    read: |text| {
        if let Some(pids) =
            text_after(text, "DataLoader worker (pid(s) ").filter(|pids| has_phrase(pids, ") exited unexpectedly"))
        {
            let detail = integer_after(pids, "").map(|pid| pid.to_string());
            return Reading::whole(FailureCause::Stated { class: Class::Killed, detail });
        }
        let pid = integer_after(text, "DataLoader worker (pid ")?;
        let signal = text_after(text, "is killed by signal: ")?;
        if signal.starts_with("Bus error") {
            return Reading::whole(FailureCause::SharedMemory { pid: Some(pid) });
        }
        if signal.starts_with("Terminated") {
            return Reading::whole(FailureCause::Stated { class: Class::Terminated, detail: None });
        }
        if ["Segmentation fault", "Aborted", "Floating point", "Illegal"].iter().any(|fault| signal.starts_with(fault))
        {
            return Reading::whole(FailureCause::Crash { pid: Some(pid), aborted: false });
        }
        if signal.starts_with("Killed") { killed(Some(pid), true) } else { None }
    },
};

/// A shell's report: `Killed`, `line 3: 4711 Killed  python train.py`, `[1]    4711 killed     python train.py`.
pub(super) const SHELL: Signature = Signature {
    name: "shell_killed",
    needles: &["Killed", " killed  ", " 已杀死 "],
    also: &[": line ", "]  ", "zsh: killed ", "Killed\n", "Killed\r", ": 行 ", "：行 "],
    follow: 0,
    read: |text| {
        let srun = has_phrase(text, "srun: error: ") && has_phrase(text, ": task") && text.ends_with(": Killed");
        // A bar has no line's end: `45380/300000 [===>....] - Time (s): 2.2343Killed`.
        let behind_bar = text.strip_suffix("Killed").is_some_and(|bar| {
            bar.ends_with(|c: char| c.is_ascii_digit() || c == ']') && (has_phrase(bar, "/") && has_phrase(bar, "["))
        });
        if text == "Killed" || text.starts_with("zsh: killed ") || srun || behind_bar {
            return killed(None, false);
        }
        // `run.sh: 行 3:  4711 已杀死  python`.
        if super::crash::is_of_shell(text) && has_phrase(text, " 已杀死 ") {
            return killed(None, false);
        }
        let words: Vec<&str> = text.split_whitespace().take(8).collect();
        let report = words.windows(2).find(|pair| matches!(pair.get(1), Some(&"Killed" | &"killed")))?;
        let pid = report.first()?.parse().ok()?;
        let shell = has_phrase(text, ": line ") || text.starts_with('[');
        if shell { killed(Some(pid), false) } else { None }
    },
};

/// Python's `subprocess`, torchrun, GNU time.
pub(super) const SIGNAL: Signature = Signature {
    name: "signal_9",
    needles: &[
        "SIGKILL",
        "died with <Signals.SIG",
        "terminated with signal SIG",
        "terminated by signal 9",
        "exited on signal ",
        "pool was terminated abruptly",
        "worker died or was killed while",
        "interrupted by signal ",
        "its worker process has died",
        "ProcessExitedException: process ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        if let Some(worker) = of_mpi(text) {
            return Reading::whole(FailureCause::WorkerFailed(worker));
        }
        if let Some((_, cause)) = SIGNALS.iter().find(|(signal, _)| has_phrase(text, signal)) {
            let local = rank_of_command(text);
            let exit_code = *cause;
            let (rank, is_local) = (local, local.is_some());
            return Reading::whole(FailureCause::WorkerFailed(Worker {
                rank,
                exit_code,
                is_local,
                first: true,
                ..Worker::default()
            }));
        }
        if let Some(worker) = of_spawn(text) {
            return Reading::whole(FailureCause::WorkerFailed(worker));
        }
        let time = text.ends_with("Command terminated by signal 9");
        let multiprocessing = has_phrase(text, "terminated with signal SIGKILL");
        let ray = has_phrase(text, "A worker died or was killed while executing a task")
            || has_phrase(text, "The actor is dead because its worker process has died");
        let pool = has_phrase(text, "BrokenProcessPool: A process in the process pool was terminated abruptly");
        if time || multiprocessing || ray || pool { killed(None, false) } else { None }
    },
};

/// `mpirun noticed that process rank 3 with PID 4711 on node n7 exited on signal 9 (Killed).`: the first that it saw.
fn of_mpi(text: &str) -> Option<Worker> {
    let process = text_after(text, " noticed that process rank ")?;
    let signal = integer_after(process, " exited on signal ").filter(|signal| *signal < 64)?;
    let host = text_after(process, " on node ").and_then(|node| node.split(' ').next()).map(str::to_owned);
    let pid = integer_after(process, " with PID ").filter(|pid| *pid > 0);
    Some(Worker {
        rank: integer_after(process, ""),
        exit_code: -i64::try_from(signal).ok()?,
        pid,
        first: true,
        is_local: false,
        host,
    })
}

/// `torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with exit code 1`: the first that it saw.
fn of_spawn(text: &str) -> Option<Worker> {
    let process = text_after(text, "ProcessExitedException: process ")?;
    let exit_code = signed_after(process, " terminated with exit code ").filter(|code| *code != 0)?;
    Some(Worker { rank: integer_after(process, ""), exit_code, first: true, is_local: true, ..Worker::default() })
}

/// Signals as Python's `subprocess` and `multiprocessing` name them, with what they are as exit codes.
const SIGNALS: &[(&str, i64)] = &[
    ("died with <Signals.SIGKILL: 9>", -9),
    ("died with <Signals.SIGSEGV: 11>", -11),
    ("died with <Signals.SIGBUS: 7>", -7),
    ("died with <Signals.SIGABRT: 6>", -6),
    ("died with <Signals.SIGILL: 4>", -4),
    ("died with <Signals.SIGFPE: 8>", -8),
    ("died with <Signals.SIGTERM: 15>", -15),
    ("died with <Signals.SIGINT: 2>", -2),
    ("died with <Signals.SIGHUP: 1>", -1),
    ("terminated with signal SIGSEGV", -11),
    ("terminated with signal SIGBUS", -7),
    ("terminated with signal SIGTERM", -15),
    ("terminated with signal SIGABRT", -6),
    ("(interrupted by signal 9: SIGKILL)", -9),
    ("(interrupted by signal 11: SIGSEGV)", -11),
    ("(interrupted by signal 7: SIGBUS)", -7),
    ("(interrupted by signal 10: SIGBUS)", -7),
    ("(interrupted by signal 6: SIGABRT)", -6),
    ("(interrupted by signal 15: SIGTERM)", -15),
    ("(interrupted by signal 2: SIGINT)", -2),
];

/// 128 and SIGKILL, as container engines, Kubernetes and Python state it.
pub(super) const STATUS: Signature = Signature {
    name: "exit_status_137",
    needles: &["exit code 137", "exited with code 137", "non-zero exit status 137"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = super::says_any(text, &["command terminated with exit code 137"])
            || text.ends_with(" exited with code 137")
            || (has_phrase(text, "CalledProcessError: Command ") && text.ends_with("non-zero exit status 137."));
        if said { killed(None, false) } else { None }
    },
};

/// Kubernetes' word on a container that ended by SIGKILL and not for its memory's limit: `kubectl describe pod`, and
/// `kubectl get pod -o json` or `-o yaml`, whose fields are in the order of their names.
pub(super) const POD: Signature = Signature {
    name: "pod_killed",
    needles: &["Last State:", "\"terminated\": {", "lastState:"],
    also: &[],
    follow: 6,
    read: |text| {
        let text = without_space(text);
        let described = has_phrase(&text, "LastState:Terminated")
            && has_phrase(&text, "Reason:Error")
            && has_phrase(&text, "ExitCode:137");
        let dumped = has_phrase(&text, "\"terminated\":{") || has_phrase(&text, "lastState:terminated:");
        let status = has_phrase(&text, "\"exitCode\":137,") || has_phrase(&text, "exitCode:137");
        let reason = has_phrase(&text, "\"reason\":\"Error\"") || has_phrase(&text, "reason:Error");
        let starts = dumped || has_phrase(&text, "LastState:Terminated") || has_phrase(&text, "lastState:");
        if described || (dumped && status && reason) {
            return killed(None, false);
        }
        if starts { Reading::part(None) } else { None }
    },
};

/// Kubernetes and container engines, which know who killed.
pub(super) const CONTAINER: Signature = Signature {
    name: "container_oom",
    needles: &["OOMKill"],
    also: &["eason", "\"OOMKilled\": true", "\"OOMKilled\":true"],
    follow: 0,
    read: |text| {
        let text = without_space(text);
        let reason = text.ends_with("eason:OOMKilled") || has_phrase(&text, "\"reason\":\"OOMKilled\"");
        let cause = FailureCause::HostMemory { requested: None, resident: None, pid: None };
        if reason || has_phrase(&text, "\"OOMKilled\":true") { Reading::whole(cause) } else { None }
    },
};

/// Ray's own guard of a node's memory.
pub(super) const RAY: Signature = Signature {
    name: "ray_memory",
    needles: &["node running low on memory", "killed due to memory pressure (OOM)"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "was killed due to the node running low on memory")
            || has_phrase(text, "Workers (tasks / actors) killed due to memory pressure (OOM)");
        let cause = FailureCause::HostMemory { requested: None, resident: None, pid: None };
        // Behind it Ray names its own commands in backticks.
        let head = text.split(" killed due to ").next().unwrap_or(text);
        if said && !super::is_talk(head) { Reading::whole(cause) } else { None }
    },
};
