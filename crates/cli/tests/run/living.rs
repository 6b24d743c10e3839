//! Which run is meant by none in particular, how far it is, and what is said of runs that end at their start.

use std::time::{Duration, Instant};

use super::{Home, wait_gone};

const JOB: &str = "model = \"gpt2\"\nmicro_batch_size = 32\nseq_len = 512\nprecision = \"bf16\"\ngpu = \"8GiB,sm_86,multiprocessors=82\"\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_run_that_lives_is_meant_and_a_stop_of_nothing_says_so() {
    let home = Home::new("lives");
    let id = text(&home.run(&["run", "--detach", "--", "sleep", "7111"]).stdout);
    let job = home.write("job.toml", JOB);
    let refused = home.run(&["run", &job, "--", "true"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&home.run(&["status"]).stdout).starts_with(&id));
    assert_eq!(home.run(&["stop"]).status.code(), Some(0));
    wait_gone("sleep\u{0}7111");
    let stopped = home.run(&["stop"]);
    assert_eq!(stopped.status.code(), Some(1));
    assert!(text(&stopped.stderr).contains("nothing was stopped"), "{}", text(&stopped.stderr));
}

#[test]
fn status_says_how_far_it_is_now() {
    let home = Home::new("far");
    let script = "for i in 1 2 3; do echo step $i/400; sleep 1.2; done; echo step 100/400; sleep 7112";
    home.run(&["run", "--detach", "--grace", "1", "--", "sh", "-c", script]);
    let until = Instant::now() + Duration::from_secs(9);
    // Long before the journal hears of it again.
    while !text(&home.run(&["status"]).stdout).contains("progress 100/400, about") {
        assert!(Instant::now() < until, "{}", text(&home.run(&["status"]).stdout));
        std::thread::sleep(Duration::from_millis(100));
    }
    home.run(&["stop"]);
    wait_gone("sleep 7112");
}

#[test]
fn a_refusal_says_why_and_what_to_write() {
    let home = Home::new("way-on");
    let job = home.write("job.toml", JOB);
    for (words, wanted) in [
        (&["true"][..], "write {micro_batch_size} and {gradient_accumulation_steps} where"),
        (&["echo", "{micro_batch_size}"], "write {gradient_accumulation_steps} where"),
    ] {
        let output = home.run(&[&["run", &job, "--"], words].concat());
        let said = text(&output.stderr);
        assert!(said.contains("refused before the start; not taken") && said.contains(wanted), "{said}");
        assert!(said.contains("--force"), "{said}");
    }
}

#[test]
fn who_is_killed_at_once_is_tried_twice_with_a_pause() {
    let home = Home::new("at-once");
    for script in ["kill -9 $$", "exit 137"] {
        let began = Instant::now();
        assert_eq!(home.run(&["run", "--", "sh", "-c", script]).status.code(), Some(1));
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(home.last()["attempts"].as_array().unwrap().len(), 2);
        assert_eq!(home.run(&["run", "--resume", "last"]).status.code(), Some(1));
        assert_eq!(home.last()["attempts"].as_array().unwrap().len(), 4, "taken up again, it counts anew");
    }
}

#[test]
fn a_crash_at_start_is_called_that() {
    let home = Home::new("at-start");
    let output = home.run(&["run", "--", "sh", "-c", "echo ValueError: no >&2; exit 1"]);
    assert!(text(&output.stderr).contains("result a crash at start, before any step"), "{}", text(&output.stderr));
    let output = home.run(&["run", "--", "sh", "-c", "echo step 1/9; echo ValueError: no >&2; exit 1"]);
    assert!(text(&output.stderr).contains("result the program failed"), "{}", text(&output.stderr));
}

#[test]
fn short_secrets_are_in_no_record() {
    let home = Home::new("short");
    let words = ["run", "--", "true", "--password", "pw12", "HF_TOKEN=pw12", "http://u:pw12@h/", "--wandb-key", "k1k"];
    assert!(home.run(&words).status.success());
    let shown = text(&home.run(&["show", "--json"]).stdout);
    assert!(!shown.contains("pw12") && !shown.contains("k1k"), "{shown}");
}

/// Every spelling that outside trials found in clear; `S3cretMark` is the secret.
const SPELLINGS: [&str; 33] = [
    "https://user:S3cretMark@example.com/x?token=abcdefgh",
    "--password=$S3cretMark",
    "--hub_token={S3cretMark",
    "HF_TOKEN=$S3cretMark",
    "--env=HF_TOKEN=S3cretMark",
    "https://h/x?a=1&api_key=S3cretMark",
    "https://h/x?sv=1&sig=S3cretMark",
    "https://h/x?X-Amz-Signature=S3cretMark&a=1",
    "--opts=a=1,token=S3cretMark",
    "Endpoint=https;AccountKey=S3cretMark;Suffix=x",
    "{\"api_key\": \"S3cretMark\"}",
    "{\"env\":{\"HF_TOKEN\":\"S3cretMark\"}}",
    "api_key: S3cretMark",
    "X-Api-Key: S3cretMark",
    "token:S3cretMark",
    "Authorization: Basic S3cretMark",
    "Authorization: Bearer S3cretMark",
    "Cookie: a=b; session=S3cretMark",
    "https://S3cretMark@github.com/x.git",
    "https://u:ab/S3cretMark@h/x",
    "--pass=S3cretMark",
    "--creds=S3cretMark",
    "--jwt=S3cretMark",
    "--bearer=S3cretMark",
    "--cookie=S3cretMark",
    "--otp=S3cretMark",
    "--signature=S3cretMark",
    "--access-code=S3cretMark",
    "SSHPASS=S3cretMark",
    "MY_CRED=S3cretMark",
    "jdbc:postgresql://h/db?user=u&password=S3cretMark",
    "host=h user=u password=S3cretMark dbname=d",
    "hf_aaaaaaaaaaaS3cretMark",
];

#[test]
fn no_spelling_of_a_secret_is_in_a_record() {
    let home = Home::new("spellings");
    for spelling in SPELLINGS {
        assert!(home.run(&["run", "--", "true", spelling]).status.success(), "{spelling}");
        for words in
            [&["list"][..], &["list", "--json"], &["show"], &["show", "--json"], &["status", "--json"], &["logs"]]
        {
            let output = home.run(words);
            let shown = text(&output.stdout) + &text(&output.stderr);
            assert!(!shown.to_lowercase().contains("s3cretmark"), "{spelling}: {words:?}: {shown}");
        }
    }
    let mut folders = vec![home.path("home")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                let file = String::from_utf8_lossy(&bytes).to_lowercase();
                assert!(!file.contains("s3cretmark"), "{}: {file}", entry.path().display());
            }
        }
    }
}

#[test]
fn a_wrong_clock_does_not_make_a_run_the_last() {
    let home = Home::new("clock");
    assert!(home.run(&["run", "--", "true"]).status.success());
    // A run of a clock that was wrong: its id is of another century.
    let id = text(&home.run(&["list", "--json"]).stdout);
    let list: serde_json::Value = serde_json::from_str(&id).unwrap();
    let (old, wrong) = (list["runs"][0]["id"].as_str().unwrap().to_owned(), "99980101-000000");
    std::fs::rename(home.path("home/runs").join(&old), home.path("home/runs").join(wrong)).unwrap();
    let record = home.path("home/runs").join(wrong).join("run.json");
    let renamed = std::fs::read_to_string(&record).unwrap().replace(&old, wrong);
    std::fs::write(&record, renamed).unwrap();
    assert!(home.run(&["run", "--", "echo", "second"]).status.success());
    assert_eq!(home.run(&["logs"]).stdout, b"second\n");
    assert_ne!(home.last()["run"]["id"], wrong);
    // Without the counter, the runs themselves say the number.
    std::fs::remove_file(home.path("home/sequence")).unwrap();
    assert!(home.run(&["run", "--", "echo", "third"]).status.success());
    assert_eq!(home.run(&["logs"]).stdout, b"third\n");
    assert_eq!(home.run(&["remove", wrong]).stdout, format!("{wrong}\n").as_bytes());
    assert_eq!(home.run(&["show", wrong]).status.code(), Some(2));
    let left = home.run(&["remove", "--keep", "1", "--json"]);
    let left: serde_json::Value = serde_json::from_slice(&left.stdout).unwrap();
    assert_eq!(left["removed"].as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["logs"]).stdout, b"third\n");
}

#[test]
fn a_run_that_lives_is_not_removed() {
    let home = Home::new("remove-living");
    let id = text(&home.run(&["run", "--detach", "--grace", "0", "--", "sleep", "7113"]).stdout);
    let refused = home.run(&["remove", &id]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("lives: nothing was removed"), "{}", text(&refused.stderr));
    assert!(home.run(&["remove", "--keep", "0"]).stdout.is_empty());
    assert_eq!(home.run(&["stop"]).status.code(), Some(0));
    wait_gone("sleep\u{0}7113");
    assert!(home.run(&["remove", &id]).status.success());
    assert_eq!(home.run(&["list"]).stdout, b"no runs yet\n");
}

#[test]
fn rounds_are_progress_with_the_time_that_is_left() {
    let home = Home::new("rounds");
    let script = "for i in 1 2 3; do echo \"Starting round: $i/2000\"; sleep 1.1; done; sleep 7114";
    home.run(&["run", "--detach", "--grace", "0", "--", "sh", "-c", script]);
    let until = Instant::now() + Duration::from_secs(15);
    while !text(&home.run(&["status"]).stdout).contains("progress round 3/2000, about") {
        assert!(Instant::now() < until, "{}", text(&home.run(&["status"]).stdout));
        std::thread::sleep(Duration::from_millis(100));
    }
    let run: serde_json::Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(run["nodes"][0]["progress"]["unit"], "round");
    assert!(run["nodes"][0]["seconds_left"].as_f64().unwrap() > 1000.0, "{run:#}");
    home.run(&["stop", "--now"]);
    wait_gone("sleep 7114");
}
