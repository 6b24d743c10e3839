//! Supervisor, guardian and keeper that somebody stops (SIGSTOP): whichever of the others dies then, none stays behind.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::kills::{
    is_of, kill_now, parent, started, wait_for_a_session_of_its_own, wait_for_end, wait_until_ended_or_told,
};
use super::{Home, wait_gone};

#[test]
fn who_is_stopped_is_woken() {
    let home = Home::new("sigstop-guardian");
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let [_, guardian, ..] = started(&home, &["--grace", "1"], script);
    kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
    home.write("go", "");
    home.wait("a guardian that is stopped holds up no end", |run| run["result"]["outcome"] == "succeeded");
    std::fs::remove_file(home.path("go")).unwrap();
    let [_, guardian, keeper, _] = started(&home, &["--grace", "1"], script);
    kill(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    kill_now(&[guardian]);
    home.write("go", "");
    home.wait("nor does a keeper whose guardian is dead", |run| run["result"]["outcome"] == "succeeded");
}

#[test]
fn who_is_stopped_is_woken_by_the_death_above_it() {
    let home = Home::new("sigstop-alone");
    let script = "setsid sleep 7127 & exec sleep 7128";
    let [supervisor, guardian, keeper, _] = started(&home, &["--grace", "1"], script);
    wait_for_a_session_of_its_own("sleep\u{0}7127");
    kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
    kill_now(&[supervisor, keeper]);
    wait_gone("sleep\u{0}7127");
    let [supervisor, guardian, keeper, _] = started(&home, &["--grace", "1"], script);
    wait_for_a_session_of_its_own("sleep\u{0}7127");
    kill(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    kill_now(&[supervisor, guardian]);
    wait_gone("sleep\u{0}7127");
}

#[test]
fn a_guardian_that_is_stopped_before_there_is_a_command_is_woken() {
    let home = Home::new("sigstop-early");
    for words in ["", "[\"no-such-program-7129\"]\n"] {
        let (mut control, theirs) = UnixStream::pair().unwrap();
        let mut guardian = home.command(&["guardian", "1"]).stdin(OwnedFd::from(theirs)).spawn().unwrap();
        let pid = guardian.id().cast_signed();
        let until = Instant::now() + Duration::from_secs(20);
        while !super::processes("tonnage\u{0}keep\u{0}").iter().any(|keeper| parent(*keeper) == Some(pid)) {
            assert!(Instant::now() < until, "no keeper is started");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        control.write_all(words.as_bytes()).unwrap();
        drop(control);
        wait_for_end(&mut guardian, || format!("a guardian whose keeper hears {words:?}"));
    }
}

/// The first process that `supervisor` starts for its run, as soon as it is the program.
fn first_guardian(supervisor: &mut Child) -> i32 {
    let (pid, until) = (supervisor.id().cast_signed(), Instant::now() + Duration::from_secs(20));
    loop {
        let found = super::processes("run-guardian\u{0}").into_iter().find(|guardian| parent(*guardian) == Some(pid));
        if let Some(guardian) = found {
            return guardian;
        }
        assert!(Instant::now() < until && supervisor.try_wait().unwrap().is_none(), "no guardian is started");
    }
}

#[test]
fn a_guardian_that_is_stopped_as_soon_as_it_is_there_is_woken() {
    let home = Home::new("sigstop-at-once");
    for round in 0..24 {
        let mut supervisor = home.command(&["run", "--grace", "0", "--", "sleep", "7132"]).spawn().unwrap();
        let guardian = first_guardian(&mut supervisor);
        kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
        kill_now(&[supervisor.id().cast_signed()]);
        supervisor.wait().unwrap();
        // Looked for in `/proc`: another command would wake it.
        let until = Instant::now() + Duration::from_secs(10);
        while is_of(&home, guardian) {
            assert!(Instant::now() < until, "round {round}: {guardian} stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn who_is_stopped_after_all_others_died_is_woken_by_the_next_command() {
    let home = Home::new("sigstop-last");
    let script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done; : 7133' & exec sleep 7134";
    let [supervisor, guardian, keeper, _] = started(&home, &["--grace", "5"], script);
    kill_now(&[supervisor, keeper]);
    // The guardian now waits for what takes no SIGTERM.
    wait_gone("sleep\u{0}7134");
    kill(Pid::from_raw(guardian), Signal::SIGSTOP).unwrap();
    assert!(home.run(&["list"]).status.success());
    wait_gone("done; : 7133");
    wait_until_ended_or_told(&home, "done; : 7133", &[], true, "the guardian");
}
