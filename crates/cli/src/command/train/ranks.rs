//! The ranks of a training: processes that `tonnage trainer` starts of itself, or that torchrun has started. What one rank writes
//! stands on the screen with its number before it; when one ends otherwise than well, the others are ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonnage_torch::Device;
use tonnage_train::ranks::{LISTENER, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, Place, RANK, WORLD_SIZE};

use tonnage_train::store::checkpoints::Checkpoints;
use tonnage_train::training::State;

use super::worker::Signals;
use crate::exit::Exit;
use crate::failure::Failure;

/// The exit code of a rank that was fine until another had gone.
pub const LOST_ANOTHER: u8 = 75;
/// How long the others may take to end by themselves once one has failed: most see it at once, those inside a GPU never.
const GRACE: Duration = Duration::from_secs(10);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(20);
pub const THREADS: &str = "OMP_NUM_THREADS";
/// The process that started a rank, by its number.
const LAUNCHER: &str = "TONNAGE_RANKS_LAUNCHER";

/// Where the ranks are: this process's place among them.
///
/// # Errors
/// When the variables are wrong.
pub fn place_of_rank() -> Result<Option<Place>, Failure> {
    Place::of_variables(&|name| std::env::var(name).ok()).map_err(|error| super::engine::train_failure(&error))
}

/// Whether as many ranks go on in `output` as have begun there: each has its own random numbers in the checkpoint.
///
/// # Errors
/// When they are others.
pub fn check_resumed(output: &Path, ranks: u64) -> Result<(), Failure> {
    let newest = Checkpoints::new(output, 1).newest().map_err(|error| super::engine::train_failure(&error))?;
    let Some((step, folder)) = newest else { return Ok(()) };
    // A checkpoint that cannot be read is told of by who reads all of it.
    let Ok(State { ranks: then, .. }) = State::read(&folder) else { return Ok(()) };
    if then == ranks {
        return Ok(());
    }
    let words = |count: u64| if count == 1 { "1 process".to_owned() } else { format!("{count} ranks") };
    let (place, old, new) = (output.display(), words(then), words(ranks));
    let way = if then == 1 { "without --ranks it goes on".to_owned() } else { format!("--ranks {then} goes on") };
    Err(Failure::bad_input(format!("{place} was trained to step {step} by {old}, and {new} cannot go on from there"))
        .with_hint(format!("{way}; --overwrite begins anew with {new}, and --output-dir elsewhere")))
}

/// The GPU of a rank: that of its number on its machine.
///
/// # Errors
/// When a GPU was named, which all would take, or there are too few.
pub fn device_of(chosen: Device, place: &Place, devices: usize) -> Result<Device, Failure> {
    match chosen {
        Device::Cpu => Ok(Device::Cpu),
        Device::Cuda(0) if (devices as u64) < place.local_ranks => {
            let ranks = place.local_ranks;
            Err(Failure::bad_input(format!(
                "{ranks} ranks on this machine need {ranks} GPUs, and PyTorch sees {devices}"
            ))
            .with_hint("fewer ranks with --ranks, or --device cpu"))
        }
        Device::Cuda(0) => Ok(Device::Cuda(u8::try_from(place.local_rank).unwrap_or(u8::MAX))),
        other => Err(Failure::bad_input(format!("--device {other}: each of several ranks has a GPU of its own"))
            .with_hint("--device cuda, with CUDA_VISIBLE_DEVICES for which of them")),
    }
}

/// Has this process end when the one that started it does, whichever way that ends.
///
/// # Errors
/// When it has ended already.
pub fn end_with_launcher() -> Result<(), Failure> {
    let Some(launcher) = std::env::var(LAUNCHER).ok().and_then(|number| number.parse().ok()) else { return Ok(()) };
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| Failure::about_file("a rank", &error.into()))?;
    // It may have gone before that was set.
    if nix::unistd::getppid() == Pid::from_raw(launcher) {
        Ok(())
    } else {
        Err(Failure::bad_input("the launcher has ended"))
    }
}

/// A rank that runs, or has ended.
struct Started {
    child: Child,
    ended: Option<ExitStatus>,
    told: Vec<JoinHandle<()>>,
}

/// Starts `ranks` processes of this very command and waits for all of them.
///
/// # Errors
/// When they cannot be started, or one fails: the error names it.
pub fn launch_ranks(ranks: u64, signals: &Signals) -> Result<Exit, Failure> {
    let failed = |error: &std::io::Error| Failure::about_file("a rank", error);
    // Rank 0 gets the socket itself: between choosing a port and listening on it nobody else can take it.
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| failed(&error))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    let mut all = Vec::new();
    let mut listener = Some(listener);
    for rank in 0..ranks {
        let started = start_rank(rank, ranks, port, listener.take().as_ref());
        match started {
            Ok(one) => all.push(one),
            Err(error) => {
                end_all(&mut all, Signal::SIGKILL);
                return Err(failed(&error));
            }
        }
    }
    let cause = wait_all(&mut all, signals).map_err(|error| failed(&error))?;
    for one in all.iter_mut().flat_map(|one| one.told.drain(..)) {
        // A thread that only copies lines: were it to panic, nothing is lost but those.
        let _ = one.join();
    }
    match cause {
        None => Ok(Exit::Done),
        Some((_, status)) if signals.was_asked() && status.code() == Some(1) => {
            Err(Failure { exit: Exit::No, ..Failure::bad_input("stopped; what rank 0 said of it stands above") })
        }
        Some((rank, status)) => Err(Failure {
            exit: Exit::No,
            ..Failure::bad_input(format!("rank {rank} of {ranks} {}; the others were ended", how_ended(status)))
        }),
    }
}

fn how_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            format!("was killed by {name}")
        }
        (None, Some(code)) if code == i32::from(LOST_ANOTHER) => "lost its connection to another".to_owned(),
        (None, code) => format!("ended with exit code {}", code.unwrap_or(-1)),
    }
}

fn start_rank(rank: u64, ranks: u64, port: u16, listener: Option<&TcpListener>) -> std::io::Result<Started> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
    let number = rank.to_string();
    for (name, value) in [(RANK, &number), (LOCAL_RANK, &number)] {
        command.env(name, value);
    }
    command.env(WORLD_SIZE, ranks.to_string()).env(LOCAL_WORLD_SIZE, ranks.to_string());
    command.env(MASTER_ADDR, "127.0.0.1").env(MASTER_PORT, port.to_string());
    command.env(LAUNCHER, std::process::id().to_string()).env_remove(LISTENER);
    if let Some(listener) = listener {
        // It outlives exec in this child; this process closes its own before it starts the next.
        fcntl(listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
        command.env(LISTENER, listener.as_raw_fd().to_string());
    }
    if std::env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        command.env(THREADS, (cores / ranks).max(1).to_string());
    }
    if rank > 0 {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    let mut told = Vec::new();
    told.extend(child.stdout.take().map(|from| copy_output(rank, from)));
    told.extend(child.stderr.take().map(|from| copy_output(rank, from)));
    Ok(Started { child, ended: None, told })
}

/// Copies lines to stderr, each with the rank before it, as PyTorch marks them.
fn copy_output(rank: u64, from: impl Read + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let mut whole = format!("[rank{rank}]: ").into_bytes();
            whole.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(&line));
            whole.push(b'\n');
            if std::io::stderr().write_all(&whole).is_err() {
                return;
            }
            line.clear();
        }
    })
}

/// Until all have ended: the first that failed, with how, if one did.
fn wait_all(all: &mut [Started], signals: &Signals) -> std::io::Result<Option<(usize, ExitStatus)>> {
    let mut passed_on = false;
    let mut failed_at: Option<Instant> = None;
    let mut failed: Vec<(usize, ExitStatus)> = Vec::new();
    loop {
        for (rank, one) in all.iter_mut().enumerate().filter(|(_, one)| one.ended.is_none()) {
            one.ended = one.child.try_wait()?;
            // What was killed here is no cause.
            if let Some(status) = one.ended.filter(|status| !status.success())
                && failed_at.is_none_or(|at| at.elapsed() < GRACE)
            {
                failed.push((rank, status));
            }
        }
        if all.iter().all(|one| one.ended.is_some()) {
            break;
        }
        if signals.was_asked() && !passed_on {
            passed_on = true;
            end_all(all, Signal::SIGTERM);
        }
        if !failed.is_empty() && failed_at.get_or_insert_with(Instant::now).elapsed() >= GRACE {
            end_all(all, Signal::SIGKILL);
        }
        thread::sleep(LOOKED_AT_EVERY);
    }
    // One that was killed, then one that failed by itself; those that only lost another come last.
    let weight = |status: &ExitStatus| match (status.signal(), status.code()) {
        (Some(_), _) => 0,
        (None, Some(code)) if code == i32::from(LOST_ANOTHER) => 2,
        _ => 1,
    };
    Ok(failed.into_iter().min_by_key(|(_, status)| weight(status)))
}

/// Signals those that have not been seen to end: their numbers are theirs until then.
fn end_all(all: &mut [Started], signal: Signal) {
    for one in all.iter().filter(|one| one.ended.is_none()) {
        // One that has ended meanwhile needs it no more.
        let _ = kill(Pid::from_raw(one.child.id().cast_signed()), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_local(local_rank: u64) -> Place {
        let variables = [("RANK", local_rank), ("WORLD_SIZE", 2), ("LOCAL_RANK", local_rank), ("MASTER_PORT", 1)]
            .map(|(n, v)| (n, v.to_string()));
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
            found.or_else(|| (name == "MASTER_ADDR").then(|| "127.0.0.1".to_owned()))
        };
        Place::of_variables(&get).unwrap().unwrap()
    }

    #[test]
    fn each_rank_has_the_gpu_of_its_number() {
        assert_eq!(device_of(Device::Cuda(0), &of_local(1), 2).unwrap(), Device::Cuda(1));
        assert_eq!(device_of(Device::Cpu, &of_local(1), 0).unwrap(), Device::Cpu);
        let few = device_of(Device::Cuda(0), &of_local(0), 1).unwrap_err();
        assert!(few.problem.contains("need 2 GPUs, and PyTorch sees 1"), "{}", few.problem);
        assert!(device_of(Device::Cuda(1), &of_local(0), 2).unwrap_err().hint.unwrap().contains("CUDA_VISIBLE"));
    }

    #[test]
    fn another_number_of_ranks_does_not_go_on() {
        let folder = std::env::temp_dir().join(format!("tonnage-ranks-{}", std::process::id()));
        check_resumed(&folder, 3).unwrap();
        std::fs::create_dir_all(folder.join("checkpoint-6")).unwrap();
        let state = serde_json::to_string(&State { ranks: 2, ..State::default() }).unwrap();
        std::fs::write(folder.join("checkpoint-6/trainer_state.json"), state).unwrap();
        check_resumed(&folder, 2).unwrap();
        let said = check_resumed(&folder, 1).unwrap_err();
        assert!(said.problem.contains("step 6 by 2 ranks, and 1 process cannot"), "{}", said.problem);
        assert!(said.hint.unwrap().starts_with("--ranks 2 goes on"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_end_is_said_in_words() {
        assert_eq!(how_ended(ExitStatus::from_raw(9)), "was killed by SIGKILL");
        assert_eq!(how_ended(ExitStatus::from_raw(2 << 8)), "ended with exit code 2");
        assert!(how_ended(ExitStatus::from_raw(i32::from(LOST_ANOTHER) << 8)).contains("lost its connection"));
    }
}
