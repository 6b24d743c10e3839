//! `tonnage suite submit` and `status` beside a SLURM of scripts that behaves as no good one does: torn answers, warnings before the
//! number, silence after the job was taken, numbers given out twice. A real SLURM is the lane `suites`'s (testdata/suites/slurm_checks.py).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use serde_json::{Value, json};

use super::Home;
use super::suites::wait;

const SUITE: &str = "name = \"s\"\ncommand = [\"sh\", \"t.sh\", \"{a}\", \"{seed}\"]\nseeds = 3\ncode = [\"t.sh\"]\n[parameters]\na = 0\n\
    [[configuration]]\nname = \"c\"\n";

/// A SLURM of scripts: `sbatch` notes what it is asked and says what `sbatch.says` holds, `squeue` what `squeue.says` does.
struct Cluster {
    home: Home,
}

impl Cluster {
    fn new(name: &str, script: &str) -> Self {
        let cluster = Self { home: Home::new(name) };
        let home = &cluster.home;
        home.write("s.toml", SUITE);
        home.write("t.sh", script);
        fs::create_dir_all(home.path("bin")).unwrap();
        let state = home.path("").display().to_string();
        let note = format!("for word; do printf '%s\\n' \"$word\"; done >> '{state}/sbatch.words'\n");
        let fails =
            |name: &str| format!("[ ! -e '{state}/{name}.fails' ] || {{ cat '{state}/{name}.fails' >&2; exit 1; }}\n");
        let says = |name: &str| format!("[ ! -e '{state}/{name}.says' ] || cat '{state}/{name}.says'\n");
        for (name, text) in [
            ("sbatch", format!("case $1 in --test-only) exit 0 ;; esac\n{note}{}{}", fails("sbatch"), says("sbatch"))),
            ("squeue", format!("echo >> '{state}/squeue.calls'\n{}{}", fails("squeue"), says("squeue"))),
            ("sacct", format!("{}{}", fails("sacct"), says("sacct"))),
            ("scancel", format!("echo \"$@\" >> '{state}/cancelled'\n")),
            ("scontrol", "exit 1\n".to_owned()),
            ("sinfo", "exit 1\n".to_owned()),
            (
                "srun",
                format!(
                    "shift\n[ -e '{state}/srun.stays' ] || once=1\n{}exec \"$@\"\n",
                    fails("srun").replace("exit 1", &format!("[ -z \"$once\" ] || rm '{state}/srun.fails'; exit 1"))
                ),
            ),
        ] {
            home.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}"));
            fs::set_permissions(home.path(&format!("bin/{name}")), fs::Permissions::from_mode(0o755)).unwrap();
        }
        home.write("sacct.fails", "Slurm accounting storage is disabled\n");
        home.write("sbatch.says", "7\n");
        cluster
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        let path = format!("{}:{}", self.home.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("TONNAGE_SLURM_POLL_SECONDS", "0").env_remove("SLURM_CONF");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn submit(&self) -> String {
        text(&self.run(&["suite", "submit", "s.toml"]))
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["suite", "status", "--json"]).stdout).unwrap()
    }

    /// Succeeded, failed, waiting, queued, unknown.
    fn counts(&self) -> [u64; 5] {
        let found = self.status();
        ["succeeded", "failed", "waiting", "queued", "unknown"].map(|key| found[key].as_u64().unwrap())
    }

    /// The name that the last job was sent with.
    fn job_name(&self) -> String {
        let words = fs::read_to_string(self.home.path("sbatch.words")).unwrap();
        words.lines().rev().find_map(|line| line.strip_prefix("--job-name=")).unwrap().to_owned()
    }

    /// Makes the queue one array of `tasks` under a number and a name.
    fn queue(&self, job: u64, name: &str, tasks: &str, state: &str) {
        let job = json!({"job_id": job, "array_job_id": job, "array_task_string": tasks, "job_state": state, "name": name, "state_reason": "Priority"});
        self.home.write("squeue.says", &json!({"errors": [], "jobs": [job]}).to_string());
    }

    /// Runs a task of the newest script as SLURM would.
    fn task(&self, task: u64) -> Output {
        self.script(task).output().unwrap()
    }

    /// The log of a task, as SLURM names it.
    fn log(&self, task: u64) -> PathBuf {
        self.home.path(&format!("home/suites/s/slurm/logs/{}-7_{task}.log", self.job_name()))
    }

    /// The newest script as SLURM would start it for a task, not yet started.
    fn script(&self, task: u64) -> Command {
        let logs = self.home.path("home/suites/s/slurm");
        let batch = self.job_name().split('.').nth(1).unwrap().to_owned();
        let path = format!("{}:{}", self.home.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(logs.join(format!("{batch}.sbatch"))).args(["1", "1", &batch]).env("PATH", path);
        command.env("SLURM_JOB_ID", "9").env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", task.to_string());
        command.env("SLURM_JOB_NODELIST", "n1").env("SLURMD_NODENAME", "n1").env("TONNAGE_SLURM_PAUSE_SECONDS", "0");
        command
    }

    /// What the journal says of a run's end.
    fn end(&self, run: usize) -> Value {
        self.status()["runs"][run]["end"].clone()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn silence_and_torn_answers_make_nothing_gone() {
    let cluster = Cluster::new("slurm-silent", "echo $1 $2 >> done\n");
    assert!(cluster.submit().contains("3 sent"));
    cluster.queue(7, &cluster.job_name(), "0-2", "PENDING");
    assert_eq!(cluster.counts(), [0, 0, 0, 3, 0]);
    let whole = fs::read_to_string(cluster.home.path("squeue.says")).unwrap();
    for torn in
        [&whole[..whole.len() / 2], "{\"jobs\": 3}", "squeue: error: something new", "{\"jobs\": [{\"job_id\": 7}]}"]
    {
        cluster.home.write("squeue.says", torn);
        assert_eq!(cluster.counts(), [0, 0, 0, 0, 3], "{torn}");
        assert!(cluster.submit().contains("SLURM does not answer"), "{torn}");
    }
    cluster.home.write("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    assert_eq!(cluster.counts(), [0, 0, 0, 0, 3]);
    let said = text(&cluster.run(&["suite", "status"]));
    assert!(said.contains("SLURM does not answer") && said.contains("Unable to contact"), "{said}");
    // A run's own word holds, whoever is silent; its script does nothing a second time.
    assert!(cluster.task(1).status.success());
    assert!(text(&cluster.task(1)).contains("is done"));
    assert_eq!(cluster.counts(), [1, 0, 0, 0, 2]);
    let local = text(&cluster.run(&["suite", "run", "s.toml"]));
    assert!(local.contains("2 runs were sent to SLURM, and are left to it"), "{local}");
    assert_eq!(fs::read_to_string(cluster.home.path("done")).unwrap(), "0 1\n");
}

#[test]
fn a_number_given_out_twice_is_not_ours_and_what_is_gone_is_sent_again() {
    let cluster = Cluster::new("slurm-reused", "echo $1 $2 >> done\n");
    cluster.submit();
    let first = cluster.job_name();
    cluster.queue(7, "anothers.job", "0-2", "RUNNING");
    assert_eq!(cluster.counts(), [0, 0, 3, 0, 0], "the controller answers, and has no job of ours");
    // An old script that begins after all leaves the run to the newer one.
    cluster.home.write("sbatch.says", "Your project has 3 hours left\n8;cluster\n");
    assert!(cluster.submit().contains("job 8: 3 runs"));
    assert_ne!(first, cluster.job_name());
    let batch = first.split('.').nth(1).unwrap();
    let script = cluster.home.path(&format!("home/suites/s/slurm/{batch}.sbatch"));
    let mut old = Command::new("bash");
    old.arg(script)
        .args(["1", "1", batch])
        .env("SLURM_JOB_ID", "7")
        .env("SLURM_ARRAY_TASK_ID", "0")
        .env("SLURM_JOB_NODELIST", "n1");
    assert!(text(&old.output().unwrap()).contains("was submitted again since"));
    assert!(!cluster.home.path("done").exists());
    cluster.queue(8, &cluster.job_name(), "0-2%1", "PENDING");
    assert_eq!(cluster.counts(), [0, 0, 0, 3, 0]);
    assert!(cluster.submit().contains("0 sent, 3 in the queue"));
}

#[test]
fn a_job_whose_number_nobody_heard_is_found_by_its_name() {
    let cluster = Cluster::new("slurm-unheard", "echo $1 $2 >> done\n");
    cluster
        .home
        .write("sbatch.fails", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n");
    let said = cluster.submit();
    assert!(said.contains("3 of which SLURM did not say whether it took them"), "{said}");
    cluster.home.write("squeue.says", "{\"jobs\": []}");
    assert_eq!(cluster.counts(), [0, 0, 0, 0, 3], "it may arrive yet");
    assert!(cluster.submit().contains("0 sent, 3 in the queue or running, 3 of these not known where"));
    cluster.queue(12, &cluster.job_name(), "0-2", "PENDING");
    assert_eq!(cluster.counts(), [0, 0, 0, 3, 0]);
    assert_eq!(cluster.status()["runs"][0]["slurm"]["job"], "12_0");
    assert!(cluster.run(&["suite", "stop"]).status.success());
    let cancelled = fs::read_to_string(cluster.home.path("cancelled")).unwrap();
    assert!(
        cancelled.contains(&format!("--name={}", cluster.job_name())) && cancelled.trim_end().ends_with(" 12"),
        "{cancelled}"
    );
}

#[test]
fn ends_are_told_by_accounting_of_every_version() {
    let cluster = Cluster::new("slurm-accounts", "exit 3\n");
    cluster.submit();
    cluster.home.write("squeue.says", "{\"jobs\": []}");
    fs::remove_file(cluster.home.path("sacct.fails")).unwrap();
    cluster.home.write("sacct.says", "{\"jobs\": [{\"job_id\"");
    assert_eq!(cluster.counts(), [0, 0, 0, 0, 3], "a torn answer tells nothing");
    let row = |task: u64, state: &str| {
        json!({"job_id": 7 + task, "array": {"job_id": 7, "task_id": {"set": true, "infinite": false, "number": task}},
               "name": cluster.job_name(), "state": {"current": [state]}, "time": {"elapsed": 5}})
    };
    let rows = [row(0, "TIMEOUT"), row(1, "CANCELLED"), row(2, "RUNNING")];
    cluster.home.write("sacct.says", &json!({"jobs": rows}).to_string());
    let found = cluster.status();
    let of = |at: usize| found["runs"][at]["end"]["class"].as_str().unwrap_or("").to_owned();
    assert_eq!((of(0), of(1)), ("time_limit".to_owned(), "cancelled".to_owned()), "{found}");
    assert_eq!(
        (&found["failed"], &found["waiting"], &found["unknown"]),
        (&1.into(), &1.into(), &1.into()),
        "accounting lags behind"
    );
    assert_eq!(cluster.task(2).status.code(), Some(3));
    let found = cluster.status();
    assert_eq!(found["runs"][2]["end"]["class"], "program_error", "{found}");
    assert!(found["runs"][2]["end"]["reason"].as_str().unwrap().contains("job 7_2 on n1"), "{found}");
}

#[test]
fn refusals_send_nothing_and_name_the_way_out() {
    let cluster = Cluster::new("slurm-refused", "");
    cluster.home.write(
        "sbatch.fails",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
    );
    let output = cluster.run(&["suite", "submit", "s.toml", "--account", "nobody's"]);
    assert!(!output.status.success() && text(&output).contains("a directive cannot hold"), "{}", text(&output));
    let output = cluster.run(&["suite", "submit", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("Invalid account") && text(&output).contains("sacctmgr show associations"),
        "{}",
        text(&output)
    );
    assert_eq!(cluster.counts(), [0, 0, 3, 0, 0]);
    let none = cluster.home.command(&["suite", "submit", "s.toml"]).env("PATH", "/nowhere").output().unwrap();
    assert!(
        text(&none).contains("there is no `sbatch` here") && text(&none).contains("suite render"),
        "{}",
        text(&none)
    );
}

/// What `srun` says where it starts nothing: after a restart of the controller, of a node that does not answer, of an option it does not have.
const UNSTARTED: [&str; 4] = [
    "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification\n",
    "srun: error: Task launch for StepId=7.0 failed on node n1: Communication connection failure\n",
    "srun: error: Unable to confirm allocation for job 7: Socket timed out on send/recv operation\n",
    "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more information\n",
];

#[test]
fn a_command_that_slurm_did_not_start_is_tried_again_and_has_not_failed() {
    let cluster = Cluster::new("slurm-launch", "echo $1 $2 >> done\n[ $2 != 2 ] || exit 1\n");
    cluster.submit();
    cluster.queue(7, &cluster.job_name(), "0-2", "RUNNING");
    for words in UNSTARTED {
        cluster.home.write("srun.fails", words);
        let said = text(&cluster.task(0));
        assert!(said.contains("SLURM did not start c seed 0") && said.contains("try 1 of"), "{said}");
        fs::remove_file(cluster.home.path(&format!("home/suites/s/runs/{}/done", run_id(&cluster, 0)))).unwrap();
    }
    assert!(text(&cluster.task(0)).contains("begins"));
    assert_eq!(fs::read_to_string(cluster.home.path("done")).unwrap().lines().count(), 5, "each time once");
    assert_eq!(cluster.counts()[0], 1);
    // A command that began and failed is not made again, whatever its exit code.
    assert_eq!(cluster.task(2).status.code(), Some(1));
    assert_eq!(cluster.end(2)["class"], "program_error");
    // One that never starts is missing, then failed: who submits for ever asks three times.
    cluster.home.write("srun.fails", UNSTARTED[0]);
    cluster.home.write("srun.stays", "");
    // Sent again it is the only task of its array.
    for (asked, task) in [(1, 1), (2, 0), (3, 0)] {
        let log = fs::File::create(cluster.log(task)).unwrap();
        let mut script = cluster.script(task);
        let ended = script.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
        assert_eq!(ended.code(), Some(1));
        let (found, outcome) = (cluster.end(1), if asked < 3 { "stopped" } else { "failed" });
        assert_eq!((&found["class"], &found["outcome"]), (&"not_started".into(), &outcome.into()), "{asked}: {found}");
        assert!(found["reason"].as_str().unwrap().contains("Invalid generic resource"), "{found}");
        cluster.submit();
        cluster.queue(7, &cluster.job_name(), "0", "RUNNING");
    }
    assert_eq!(cluster.counts(), [1, 2, 0, 0, 0], "and is not sent a fourth time");
    assert_eq!(fs::read_to_string(cluster.home.path("done")).unwrap().lines().count(), 6);
}

fn run_id(cluster: &Cluster, run: usize) -> String {
    cluster.status()["runs"][run]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_retry_that_slurm_refuses_marks_nothing() {
    let cluster = Cluster::new("slurm-retry", "exit 3\n");
    cluster.submit();
    cluster.home.write("squeue.says", "{\"jobs\": []}");
    (0..3).for_each(|task| drop(cluster.task(task)));
    assert_eq!(cluster.counts(), [0, 3, 0, 0, 0]);
    cluster.home.write("sbatch.fails", "sbatch: error: Batch job submission failed: Job violates accounting policy\n");
    let refused = cluster.run(&["suite", "retry", "s"]);
    assert!(!refused.status.success() && text(&refused).contains("accounting policy"), "{}", text(&refused));
    assert_eq!(cluster.counts(), [0, 3, 0, 0, 0], "they have failed, and wait for nothing");
    assert_eq!(cluster.end(0)["class"], "program_error");
    assert!(cluster.submit().contains("0 sent, 3 failed"));
    fs::remove_file(cluster.home.path("sbatch.fails")).unwrap();
    assert!(text(&cluster.run(&["suite", "retry", "s"])).contains("3 sent"));
    cluster.queue(7, &cluster.job_name(), "0-2", "PENDING");
    assert_eq!(cluster.counts(), [0, 0, 0, 3, 0]);
}

/// Who cancels a job signals its command and its script at once, and the command may be gone first.
#[test]
fn a_command_that_ends_before_its_script_is_signalled_was_cancelled_too() {
    let cluster = Cluster::new("slurm-cancel", ": > up$2\nkill -TERM $$\n");
    cluster.submit();
    cluster.queue(7, &cluster.job_name(), "0-2", "RUNNING");
    let mut script = cluster.script(0).spawn().unwrap();
    wait(|| cluster.home.path("up0").exists());
    std::thread::sleep(std::time::Duration::from_millis(200));
    kill(Pid::from_raw(script.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(143));
    let end = cluster.end(0);
    assert_eq!((&end["class"], &end["outcome"]), (&"cancelled".into(), &"stopped".into()), "{end}");
}

/// The time of a start that was killed and put back into the queue ends when its log was written last.
#[test]
fn a_start_that_was_killed_and_requeued_counts_as_lost() {
    let cluster = Cluster::new("slurm-lost", "[ ! -e go ] || exit 0\n: > began\nsleep 600\n");
    cluster.submit();
    cluster.queue(7, &cluster.job_name(), "0-2", "RUNNING");
    let log = || fs::OpenOptions::new().append(true).create(true).open(cluster.log(0)).unwrap();
    let mut first = cluster.script(0).stdout(log()).stderr(log()).process_group(0).spawn().unwrap();
    wait(|| cluster.home.path("began").exists());
    killpg(Pid::from_raw(first.id().cast_signed()), Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    let starts = cluster.home.path(&format!("home/suites/s/runs/{}/starts.log", run_id(&cluster, 0)));
    // It began a hundred seconds earlier.
    let mut line: Value = serde_json::from_str(&fs::read_to_string(&starts).unwrap()).unwrap();
    line["at"] = (line["at"].as_u64().unwrap() - 100).into();
    fs::write(&starts, format!("{line}\n")).unwrap();
    cluster.home.write("go", "");
    let again = cluster.script(0).stdout(log()).stderr(log()).env("SLURM_RESTART_COUNT", "1").status().unwrap();
    assert!(again.success());
    let found = cluster.end(0);
    assert_eq!((&found["outcome"], &found["attempts"]), (&"succeeded".into(), &2.into()), "{found}");
    let lost = found["lost_seconds"].as_f64().unwrap();
    assert!(lost >= 100.0 && found["seconds"].as_f64().unwrap() >= lost, "{found}");
}

/// What the Trainer logged is read where the command says that its checkpoints are, on SLURM and here.
#[test]
fn the_trainers_state_is_a_source() {
    let state = "{\"log_history\": [{\"loss\": 0.5, \"step\": 5}, {\"loss\": 0.25, \"step\": 10}]}";
    let script = format!("mkdir -p $2/checkpoint-10\necho '{state}' > $2/checkpoint-10/trainer_state.json\n");
    let cluster = Cluster::new("slurm-trainer", &script);
    let suite =
        SUITE.replace("\"{a}\", \"{seed}\"", "\"--output_dir\", \"out-{seed}\"").replace("seeds = 3", "seeds = 1");
    cluster.home.write("s.toml", &suite);
    cluster.submit();
    cluster.home.write("squeue.says", "{\"jobs\": []}");
    assert!(cluster.task(0).status.success());
    assert_eq!(cluster.counts(), [1, 0, 0, 0, 0]);
    let report = text(&cluster.run(&["report", "s"]));
    assert!(report.contains("Asked about: `loss`"), "{report}");
    cluster.home.write("l.toml", &suite.replace("name = \"s\"", "name = \"l\"").replace("out-", "local-"));
    let local = cluster.run(&["suite", "run", "l.toml"]);
    assert!(local.status.success(), "{}", text(&local));
    let report = text(&cluster.run(&["report", "l"]));
    assert!(report.contains("Asked about: `loss`"), "{report}");
}

#[test]
fn status_and_watch_know_what_was_sent() {
    let cluster = Cluster::new("slurm-watched", "echo $1 $2 >> done\n");
    cluster.submit();
    let job = |task: u64, state: &str, nodes: &str| {
        json!({"job_id": 7 + task, "array_job_id": 7, "array_task_id": task, "job_state": state, "name": cluster.job_name(),
               "state_reason": "Priority", "nodes": nodes})
    };
    let jobs = [job(0, "RUNNING", "n[1-2]"), job(1, "PENDING", ""), job(2, "PENDING", "")];
    cluster.home.write("squeue.says", &json!({"jobs": jobs}).to_string());
    let said = text(&cluster.run(&["status"]));
    assert!(said.contains("suite s: 0 of 3 done, 1 running, 2 in the queue\n- n[1-2]: c seed 0 (job 7_0)"), "{said}");
    let watch = |args: &[&str]| {
        let library = std::env::current_exe().unwrap().with_file_name("libtonnage_phantom.so");
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml/neighbour.jsonl");
        let mut command = cluster.command(&[&["watch", "--nvml", library.to_str().unwrap()], args].concat());
        command.env("TONNAGE_NVML_SCRIPT", script).env("TONNAGE_PHANTOM_QUIET", "1");
        text(&command.env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1").output().unwrap())
    };
    let plain = watch(&["--once"]);
    assert!(plain.contains("1 running, 2 in the queue") && plain.contains("n[1-2]: c seed 0 (job 7_0)"), "{plain}");
    let sample: Value = serde_json::from_str(&watch(&["--json", "--samples", "1"])).unwrap();
    assert_eq!(
        (&sample["suites"][0]["queued"], &sample["suites"][0]["running"][0]["nodes"]),
        (&2.into(), &"n[1-2]".into())
    );
    // Silence is told, and nobody is taken for gone.
    cluster.home.write("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    let answer: Value = serde_json::from_slice(&cluster.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&answer["suites"][0]["unknown"], &answer["suites"][0]["waiting"]), (&3.into(), &0.into()), "{answer}");
    let said = text(&cluster.run(&["status"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("3 not known; SLURM does not answer: slurm_load_jobs error"), "{said}");
    fs::remove_file(cluster.home.path("squeue.fails")).unwrap();
    // However many look, the controller is asked once in thirty seconds.
    let calls = || fs::read_to_string(cluster.home.path("squeue.calls")).unwrap().lines().count();
    let before = calls();
    for args in [&["status"][..], &["suite", "status"], &["status"], &["suite", "submit", "s.toml"]] {
        assert!(
            cluster.command(args).env_remove("TONNAGE_SLURM_POLL_SECONDS").output().unwrap().status.code().is_some()
        );
    }
    assert!(calls() <= before + 1, "{} calls", calls() - before);
    // What ended there is over here.
    cluster.home.write("squeue.says", "{\"jobs\": []}");
    (0..3).for_each(|task| assert!(cluster.task(task).status.success()));
    assert!(text(&cluster.run(&["status"])).contains("there is no run yet"));
    assert_eq!(cluster.counts(), [3, 0, 0, 0, 0]);
}
