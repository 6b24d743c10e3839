//! Kills of job and supervisor at any moment: no record is lost, no process left, and the run goes on.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Home, wait_gone};

/// A job that counts in a file, so that every start goes on from where it was, in steps of a few milliseconds.
const COUNTS: &str = r#"
    sleep 7131.SEED &
    n=$(cat count 2>/dev/null || echo 0)
    while [ "$n" -lt 60 ]; do
        n=$((n + 1)); echo "$n" > count.tmp; mv count.tmp count; echo "step $n/60"; sleep 0.01
    done"#;

/// Numbers that look random and are the same in every run of the test.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // The constants of Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Job,
    Keeper,
    Guardian,
    Supervisor,
}
use Who::{Guardian, Job, Keeper, Supervisor};

/// Who is stopped (SIGSTOP), and then who is killed. An odd number: every other job is silent.
const KINDS: [(&[Who], &[Who]); 19] = [
    (&[], &[Job]),
    (&[], &[Supervisor]),
    (&[], &[Keeper]),
    (&[], &[Guardian]),
    (&[], &[Supervisor, Keeper]),
    (&[], &[Keeper, Supervisor]),
    (&[], &[Guardian, Keeper]),
    (&[], &[Supervisor, Guardian]),
    (&[], &[Job, Keeper]),
    (&[], &[Supervisor, Guardian, Keeper]),
    (&[], &[Job, Keeper, Guardian, Supervisor]),
    (&[Keeper], &[Supervisor]),
    (&[Keeper], &[Keeper]),
    (&[Keeper], &[Guardian]),
    (&[Keeper], &[Supervisor, Guardian]),
    (&[Guardian], &[Supervisor]),
    (&[Guardian], &[Job]),
    (&[Guardian], &[Supervisor, Keeper]),
    (&[Job, Keeper], &[Supervisor]),
];

/// Whether somebody is left who ends what the command started: who was stopped is woken by the death of the one above it.
fn leaves_a_keeper((_, killed): (&[Who], &[Who])) -> bool {
    [Supervisor, Guardian, Keeper].iter().any(|who| !killed.contains(who))
}

/// `TONNAGE_KILLS=200 cargo test -p tonnage --test run many_kills` is the long lane; `TONNAGE_KILLS_SEED` makes it another, which
/// may run beside it.
#[test]
fn many_kills_lose_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (kills, seed) = (number("TONNAGE_KILLS").unwrap_or(38), number("TONNAGE_KILLS_SEED").unwrap_or(7));
    let home = Home::new(&format!("kills-{seed}"));
    let mut dice = Dice(seed);
    let marker = format!("sleep\u{0}7131.{seed}\u{0}");
    let counts = COUNTS.replace("SEED", &seed.to_string());
    // Every other job is silent: none dies of a pipe that nobody reads.
    let silent = format!("exec > /dev/null 2>&1; {counts}");
    let (mut tally, mut left) = ([(0, 0); KINDS.len()], Vec::new());
    for round in 0..kills {
        let script = if round % 2 == 0 { &counts } else { &silent };
        let first = ["run", "--grace", "0", "--max-attempts", "50", "--", "sh", "-c", script];
        let goes_on = is_unfinished(&home);
        if !goes_on {
            std::fs::write(home.path("count"), "0").unwrap();
        }
        let words: &[&str] = if goes_on { &AGAIN } else { &first };
        let mut supervisor = home.command(words).stdout(std::process::Stdio::null()).spawn().unwrap();
        // Now and then before there is a process at all.
        let until = Instant::now() + Duration::from_secs(20);
        while round % 5 != 4 && job_pid(&home).is_none() && supervisor.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "round {round}: nothing starts");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(dice.below(250)));
        assert!(super::processes(&marker).len() < 2, "round {round}: a job is started beside what is left of another");
        let number = usize::try_from(round).unwrap() % KINDS.len();
        let kind = KINDS[number];
        let found = strike(&home, kind, supervisor.id().cast_signed());
        tally[number] = (tally[number].0 + 1, tally[number].1 + u64::from(found));
        let status = wait_for_end(&mut supervisor, || format!("round {round}, {kind:?}"));
        if kind.1.contains(&Supervisor) {
            let place = format!("round {round}, {kind:?}, found {found}");
            left = wait_until_ended_or_told(&home, &marker, &left, !found || leaves_a_keeper(kind), &place);
        } else {
            assert!(status.success(), "round {round}: what was killed is started again: {}", home.last());
        }
        assert_eq!(home.run(&["list", "--json"]).status.code(), Some(0));
    }
    let anew = ["run", "--", "sh", "-c", &counts];
    let output = home.run(if is_unfinished(&home) { &AGAIN } else { &anew });
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(home.path("count")).unwrap(), "60\n");
    let run = home.last();
    assert_eq!(run["result"]["outcome"], "succeeded");
    wait_until_ended_or_told(&home, &marker, &[], true, "the end");
    let killed = print_tally(&tally);
    assert!(killed * 3 > kills, "too few rounds found their victims alive: {killed} of {kills}");
}

/// A line for each kind; how many rounds found whom they stop and kill alive.
fn print_tally(tally: &[(u64, u64)]) -> u64 {
    for ((stopped, killed), (rounds, alive)) in KINDS.iter().zip(tally) {
        eprintln!("stopped {stopped:?}, killed {killed:?}: {rounds} rounds, {alive} found all of them alive");
    }
    tally.iter().map(|(_, alive)| alive).sum()
}

const AGAIN: [&str; 5] = ["run", "--resume", "last", "--grace", "0"];

/// Stops and kills, one right after the other; whether all were there.
fn strike(home: &Home, (stopped, killed): (&[Who], &[Who]), supervisor: i32) -> bool {
    let job = job_pid(home);
    let keeper = job.and_then(parent);
    let guardian = keeper.and_then(parent);
    let pid = |who: &Who| match who {
        Job => job,
        Keeper => keeper,
        Guardian => guardian,
        Supervisor => Some(supervisor),
    };
    let with = |signal: Signal| move |who: &Who| Some((pid(who)?, signal));
    let signals: Vec<_> =
        stopped.iter().map(with(Signal::SIGSTOP)).chain(killed.iter().map(with(Signal::SIGKILL))).collect();
    // One that has just ended by itself needs no kill.
    let sent = signals.iter().flatten().filter(|(pid, signal)| kill(Pid::from_raw(*pid), *signal).is_ok()).count();
    sent == signals.len()
}

/// The end of a supervisor or guardian. One that waits for who was stopped would wait for ever.
pub fn wait_for_end(supervisor: &mut Child, place: impl Fn() -> String) -> ExitStatus {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = supervisor.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < until, "{}: it does not end", place());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until nothing of the job is left, nor of who kept it. Where nobody was left to end it, until the run says which
/// processes there are: who goes on with it, or stops it, ends them; what was told `before` may be there as long as nobody did.
/// What is left.
pub fn wait_until_ended_or_told(home: &Home, marker: &str, before: &[i32], ends: bool, place: &str) -> Vec<i32> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let left = super::processes(marker);
        let all_gone = left.is_empty() && (!ends || keepers_of(home).is_empty());
        let may_stay = !left.is_empty() && (!ends || left.iter().all(|pid| before.contains(pid)));
        if all_gone || may_stay && are_told(home, &left) {
            return left;
        }
        assert!(Instant::now() < until, "{place}: left behind: {left:?}, kept by {:?}", keepers_of(home));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn are_told(home: &Home, left: &[i32]) -> bool {
    let told = home.last()["run"]["left_behind"].as_array().cloned().unwrap_or_default();
    left.iter().all(|pid| told.contains(&(*pid).into()))
}

/// Guardians and keepers of this home's runs.
fn keepers_of(home: &Home) -> Vec<i32> {
    let all = super::processes("run-guardian\u{0}").into_iter().chain(super::processes("tonnage\u{0}keep\u{0}"));
    all.filter(|pid| is_of(home, *pid)).collect()
}

/// Whether the process was started for a run of this home: another may have its number by now.
pub fn is_of(home: &Home, pid: i32) -> bool {
    let mark = home.path("home/runs").display().to_string();
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()).contains(&mark)
}

pub fn parent(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.get(text.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 1)
}

/// A detached run of `script`, with its supervisor, guardian, keeper and job.
pub fn started(home: &Home, words: &[&str], script: &str) -> [i32; 4] {
    assert!(home.run(&[&["run", "--detach"], words, &["--", "sh", "-c", script]].concat()).status.success());
    home.wait("a process", |run| run["attempts"][0]["pid"].is_u64());
    let job = job_pid(home).unwrap();
    let keeper = parent(job).unwrap();
    let guardian = parent(keeper).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    [parent(guardian).unwrap(), guardian, keeper, job]
}

/// Waits until `setsid` has become the program that it starts: before that, a busy machine may kill it with the others.
pub fn wait_for_a_session_of_its_own(program: &str) {
    let has_begun = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).starts_with(program)
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !super::processes(program).iter().any(has_begun) {
        assert!(Instant::now() < until, "{program} was not started");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn kill_now(pids: &[i32]) {
    for pid in pids {
        // One that ended by itself when it lost the one before needs no kill.
        let sent = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        assert!(matches!(sent, Ok(()) | Err(nix::errno::Errno::ESRCH)), "{sent:?}");
    }
}

#[test]
fn supervisor_and_keeper_at_once_leave_nothing() {
    for (number, script) in
        ["exec sleep 7121", "setsid sleep 7121 & (setsid sleep 7121 &) ; sleep 7121"].iter().enumerate()
    {
        let home = Home::new(&format!("both-{number}"));
        let [supervisor, _, keeper, _] = started(&home, &["--grace", "1"], script);
        kill_now(&[supervisor, keeper]);
        wait_gone("sleep\u{0}7121");
        assert_eq!(home.run(&["stop"]).status.code(), Some(1), "there is nothing to stop");
    }
}

#[test]
fn a_command_dies_with_all_that_keep_it() {
    let home = Home::new("all-three");
    let [supervisor, guardian, keeper, _] = started(&home, &[], "exec sleep 7122");
    kill_now(&[guardian, keeper, supervisor]);
    wait_gone("sleep\u{0}7122");
}

#[test]
fn a_job_may_save_and_say_so_when_its_supervisor_died() {
    let home = Home::new("saves-alone");
    let script =
        "trap 'sleep 0.3; echo last words; echo saved > saved; exit 0' TERM; echo first; while :; do sleep 0.05; done";
    let [supervisor, ..] = started(&home, &["--grace", "10"], script);
    kill_now(&[supervisor]);
    let until = Instant::now() + Duration::from_secs(10);
    while !home.path("saved").exists() {
        assert!(Instant::now() < until, "the job died of its pipe");
        std::thread::sleep(Duration::from_millis(20));
    }
    let logs = || String::from_utf8_lossy(&home.run(&["logs"]).stdout).into_owned();
    while !logs().starts_with("first\nlast words\n") {
        assert!(Instant::now() < until, "{}", logs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

const JOB: &str = "model = \"gpt2\"\nmicro_batch_size = 32\nseq_len = 512\nprecision = \"bf16\"\ngpu = \"24GiB,sm_86,multiprocessors=82\"\n";

#[test]
fn what_is_left_all_the_same_is_said_counted_and_ended() {
    let home = Home::new("left");
    let job = home.write("job.toml", JOB);
    let script = "setsid sleep 7123 & exec sleep 7124";
    let [supervisor, guardian, keeper, _] = started(&home, &["--grace", "1", "--no-adjust", &job], script);
    wait_for_a_session_of_its_own("sleep\u{0}7123");
    // Nobody is left who would end what the command started: each is held first, and the lowest dies first, since a death wakes
    // the one below it.
    let all = [keeper, guardian, supervisor];
    all.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap());
    kill_now(&all);
    wait_gone("sleep\u{0}7124");
    let orphan = super::processes("sleep\u{0}7123");
    assert_eq!(orphan.len(), 1, "this test needs an orphan");
    let status = String::from_utf8(home.run(&["status"]).stdout).unwrap();
    let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("its process {} still runs", orphan[0])), "{words}");
    assert_eq!(home.last()["run"]["left_behind"], serde_json::json!(orphan));
    // Its bytes are nobody else's.
    let second = home.run(&["run", "--no-adjust", &job, "--set", "micro_batch_size=64", "--", "true"]);
    let said = String::from_utf8_lossy(&second.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("promised to other runs") && said.contains("lost its supervisor"), "{said}");
    let stopped = home.run(&["stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{}", String::from_utf8_lossy(&stopped.stderr));
    wait_gone("sleep\u{0}7123");
    let list: serde_json::Value = serde_json::from_slice(&home.run(&["list", "--json"]).stdout).unwrap();
    assert_eq!(list["runs"][0]["state"], "stopped");
    assert_eq!(home.run(&["stop"]).status.code(), Some(1));
}

#[test]
fn a_supervisor_that_is_stopped_goes_on_to_end() {
    let home = Home::new("sigstop");
    let [supervisor, ..] = started(&home, &["--grace", "1"], "exec sleep 7125");
    kill(Pid::from_raw(supervisor), Signal::SIGSTOP).unwrap();
    let stopped = home.run(&["stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{}", String::from_utf8_lossy(&stopped.stderr));
    wait_gone("sleep\u{0}7125");
    assert_eq!(home.last()["result"]["outcome"], "stopped");
}

#[test]
fn a_keeper_that_is_stopped_does_not_keep_a_run_alive() {
    let home = Home::new("sigstop-keeper");
    let [_, _, keeper, _] = started(&home, &["--grace", "1"], "exec sleep 7126");
    // Again and again: its guardian wakes it.
    let stopping = std::thread::spawn(move || {
        while kill(Pid::from_raw(keeper), Signal::SIGSTOP).is_ok() {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    assert_eq!(home.run(&["stop"]).status.code(), Some(0));
    wait_gone("sleep\u{0}7126");
    stopping.join().unwrap();
}

/// Whether there is a run to go on with: a supervisor may have been killed before it made one.
fn is_unfinished(home: &Home) -> bool {
    let run = serde_json::from_slice::<serde_json::Value>(&home.run(&["show", "last", "--json"]).stdout);
    run.is_ok_and(|run| run["result"]["outcome"] != "succeeded")
}

fn job_pid(home: &Home) -> Option<i32> {
    let output = home.run(&["show", "last", "--json"]);
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let last = run["attempts"].as_array()?.last()?.clone();
    if !last["exit"].is_null() {
        return None;
    }
    // Until a run is taken up again, its last process is that of before.
    i32::try_from(last["pid"].as_i64()?).ok().filter(|pid| is_of(home, *pid))
}

#[test]
fn a_killed_keeper_leaves_nothing() {
    let home = Home::new("keeper");
    let script = "setsid sleep 7105 & sleep 7105";
    let [_, _, keeper, _] = started(&home, &["--grace", "1", "--max-attempts", "1"], script);
    kill_now(&[keeper]);
    home.wait("ended", |run| !run["result"].is_null());
    wait_gone("sleep\u{0}7105");
}

/// A child of the supervisor that has not yet become the guardian: it bears its parent's command line until then.
fn not_yet_a_guardian(supervisor: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
    let own = std::fs::read(format!("/proc/{supervisor}/cmdline")).ok()?;
    let is_copy = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == own);
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_copy)
}

#[test]
fn a_guardian_killed_before_it_has_the_command_is_started_again() {
    let home = Home::new("kills-unborn");
    let until = Instant::now() + Duration::from_secs(60);
    let mut killed = 0;
    while killed < 3 && Instant::now() < until {
        let mut supervisor = home.command(&["run", "--", "sh", "-c", "echo made >> made"]).spawn().unwrap();
        let pid = supervisor.id().cast_signed();
        let _ = std::fs::remove_file(home.path("made"));
        let mut is_killed = false;
        while supervisor.try_wait().unwrap().is_none() {
            if let Some(child) = not_yet_a_guardian(pid).filter(|_| !is_killed) {
                is_killed = kill(Pid::from_raw(child), Signal::SIGKILL).is_ok();
            }
        }
        killed += u32::from(is_killed);
        assert!(supervisor.wait().unwrap().success(), "{}", home.last());
        assert_eq!(std::fs::read_to_string(home.path("made")).unwrap(), "made\n", "made once");
    }
    assert!(killed > 0, "no guardian was caught before it was one");
}
