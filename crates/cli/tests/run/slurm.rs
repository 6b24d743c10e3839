//! `tonnage suite submit` and `status` beside a SLURM of scripts that behaves as no good one does: torn answers, warnings before the
//! number, silence after the job was taken, numbers given out twice. A real SLURM is the lane `suites`'s (testdata/suites/slurm_checks.py).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::Home;

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
            ("squeue", format!("{}{}", fails("squeue"), says("squeue"))),
            ("sacct", format!("{}{}", fails("sacct"), says("sacct"))),
            ("scancel", format!("echo \"$@\" >> '{state}/cancelled'\n")),
            ("scontrol", "exit 1\n".to_owned()),
            ("sinfo", "exit 1\n".to_owned()),
            ("srun", "shift\nexec \"$@\"\n".to_owned()),
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
        let logs = self.home.path("home/suites/s/slurm");
        let batch = self.job_name().split('.').nth(1).unwrap().to_owned();
        let path = format!("{}:{}", self.home.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(logs.join(format!("{batch}.sbatch"))).args(["1", "1", &batch]).env("PATH", path);
        command.env("SLURM_JOB_ID", "9").env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", task.to_string());
        command.env("SLURM_JOB_NODELIST", "n1").env("SLURMD_NODENAME", "n1");
        command.output().unwrap()
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
