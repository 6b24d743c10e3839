//! `torchrun`: a free port where none is told, per-rank logs in the attempt's folder, and lines on the screen that say their
//! rank.

use std::path::Path;

use super::{Adapter, flags};

pub(super) static TORCHRUN: Adapter =
    Adapter { name: "torchrun", matches: is_torchrun, set: |_, _, _, _| Ok(false), finish: finish_command };

fn is_torchrun(argv: &[String]) -> bool {
    launcher_index(argv).is_some()
}

/// The place of the word after which torchrun's own flags may stand.
fn launcher_index(argv: &[String]) -> Option<usize> {
    argv.iter().position(|word| word.rsplit('/').next() == Some("torchrun") || word == "torch.distributed.run")
}

/// What says where ranks meet; without any, torchrun takes port 29500 (torch/distributed/run.py), which a second run or what
/// an earlier one left may hold.
const MEETING: [&str; 5] = ["--standalone", "--master_port", "--rdzv_endpoint", "--rdzv_backend", "--rdzv_id"];
/// The same in torchrun's variables.
const MEETING_VARIABLES: [&str; 4] = ["PET_STANDALONE", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND"];

/// A port that nobody has now, for ranks of one machine that are told none.
fn free_port(argv: &[String]) -> Option<u16> {
    let is_one_machine = flags::flag_value(argv, "--nnodes").is_none_or(|nodes| matches!(nodes, "1" | "1:1"));
    let is_told =
        flags::has_flag(argv, &MEETING) || MEETING_VARIABLES.iter().any(|name| std::env::var_os(name).is_some());
    if is_told || !is_one_machine {
        return None;
    }
    // The kernel gives another one to whoever asks next.
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).ok()?;
    Some(listener.local_addr().ok()?.port())
}

fn finish_command(argv: &mut Vec<String>, folder: &Path) {
    let Some(at) = launcher_index(argv) else { return };
    if let Some(port) = free_port(argv) {
        argv.splice(at + 1..at + 1, ["--master-port".to_owned(), port.to_string()]);
    }
    if flags::has_flag(argv, &["--log_dir", "--tee", "--redirects"]) {
        return;
    }
    let logs = folder.join("ranks").display().to_string();
    // 3 is stdout and stderr: to the rank's file, and on with the rank in front.
    let flags = ["--log-dir".to_owned(), logs, "--tee".to_owned(), "3".to_owned()];
    argv.splice(at + 1..at + 1, flags);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_told_no_port_get_a_free_one() {
        let told = |command: &str| {
            let mut argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
            finish_command(&mut argv, Path::new("logs"));
            flags::flag_value(&argv, "--master_port").map(|port| port.parse::<u16>().unwrap())
        };
        let port = told("torchrun --nproc-per-node 2 t.py").unwrap();
        assert!(std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).is_ok(), "{port} is taken");
        assert!(told("python -m torch.distributed.run --nnodes=1 t.py").is_some());
        assert_eq!(told("torchrun --master-port 29501 t.py"), Some(29501));
        for command in ["torchrun --standalone t.py", "torchrun --nnodes 2 t.py", "torchrun --rdzv-endpoint h:1 t.py"] {
            assert_eq!(told(command), None, "{command}");
        }
    }
}
