//! Signals that tell a job to end: a closed terminal, Ctrl-C, a scheduler's or a colleague's SIGTERM.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, integer_after};
use tonnage_core::failure::Class;

fn ended(class: Class) -> Option<Reading> {
    Reading::whole(FailureCause::Stated { class, detail: None })
}

fn of_signal(number: u64) -> Option<Class> {
    Some(match number {
        1 => Class::Hangup,
        2 => Class::Interrupted,
        15 => Class::Terminated,
        _ => return None,
    })
}

/// torchrun's agent: it was told, and tells its workers.
pub(super) const AGENT: Signature = Signature {
    name: "launcher_signal",
    needles: &[
        "death signal, shutting down workers",
        "got signal: ",
        "due to signal ",
        "Received Signals.SIG",
        " signal SIGHUP",
        " signal SIGINT",
        "Main process received SIG",
    ],
    also: &["Received ", "SignalException", "Process ", "ending process ", "losing process ", "process received SIG"],
    follow: 0,
    read: |text| {
        let number = ["Received ", "got signal: "].iter().find_map(|words| integer_after(text, words));
        let named =
            [("SIGHUP", 1), ("SIGINT", 2), ("SIGTERM", 15)].into_iter().find(|(name, _)| has_phrase(text, name));
        // It passes on what it got; SIGTERM it sends of its own accord as well, when a worker has failed.
        let passed_on = ["SIGHUP", "SIGINT"].iter().any(|signal| {
            has_phrase(text, &format!(" closing signal {signal}")) || has_phrase(text, &format!(" via signal {signal}"))
        });
        let own = has_phrase(text, "death signal, shutting down workers")
            || has_phrase(text, "SignalException: Process ")
            || has_phrase(text, "Received Signals.SIG")
            // DeepSpeed's launch.py.
            || has_phrase(text, "Main process received SIG")
            || passed_on;
        ended(of_signal(number.or(named.map(|(_, number)| number)).filter(|_| own)?)?)
    },
};

/// A shell's report, and torchrun's of a worker.
pub(super) const SHELL: Signature = Signature {
    name: "shell_terminated",
    needles: &["Terminated", "Hangup", "zsh: terminated", "zsh: hangup"],
    also: &[": line ", "]  ", "Terminated\n", "Terminated\r", "Hangup\n", "zsh: "],
    follow: 0,
    read: |text| {
        // Julia's.
        let of_julia = text.len() < 60 && text.ends_with("signal (15): Terminated");
        if matches!(text, "Terminated") || text.starts_with("zsh: terminated ") || of_julia {
            return ended(Class::Terminated);
        }
        if matches!(text, "Hangup") || text.starts_with("zsh: hangup ") {
            return ended(Class::Hangup);
        }
        let words: Vec<&str> = text.split_whitespace().take(8).collect();
        let report = words.windows(2).find(|pair| matches!(pair.get(1), Some(&"Terminated" | &"Hangup")))?;
        let is_pid = report.first()?.bytes().all(|byte| byte.is_ascii_digit());
        let class = if report.get(1) == Some(&"Hangup") { Class::Hangup } else { Class::Terminated };
        if is_pid && has_phrase(text, ": line ") { ended(class) } else { None }
    },
};

/// What a terminal shows of Ctrl-C, where no traceback follows.
pub(super) const KEYBOARD: Signature = Signature {
    name: "keyboard_interrupt",
    needles: &["KeyboardInterrupt", "Stop signal received (e.g. via SIGINT"],
    also: &[],
    follow: 0,
    read: |text| {
        // Ray Tune's.
        let tune = has_phrase(text, "Stop signal received (e.g. via SIGINT") && has_phrase(text, "ending Ray Tune run");
        let said = tune || text == "KeyboardInterrupt" || text == "^CKeyboardInterrupt" || text == "KeyboardInterrupt:";
        if said { ended(Class::Interrupted) } else { None }
    },
};
