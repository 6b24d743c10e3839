//! A home that is full, or gone: no success becomes a failure, and no guard ends.

use std::process::Command;

use super::Home;

#[test]
fn a_home_that_vanishes_ends_nothing() {
    let home = Home::new("vanished");
    let script = "mv home gone; echo trained > proof; exit 0";
    let output = home.run(&["run", "--", "sh", "-c", script]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(home.path("proof").exists() && said.contains("the record cannot be written"), "{said}");
    assert!(said.contains("succeeded"), "{said}");
    // The guard goes on: the second start is made without a record.
    let script = "if [ -e second ]; then exit 0; fi; touch second; mv home gone-too; kill -9 $$";
    let output = home.run(&["run", "--json", "--", "sh", "-c", script]);
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &run["result"]["outcome"]), (Some(0), &"succeeded".into()), "{run:#}");
    assert_eq!(run["result"]["cost"]["attempts"], 2);
    let output = home.run(&["run", "--", "sh", "-c", "mv home gone-again; exit 3"]);
    assert_eq!(output.status.code(), Some(1));
}

/// Runs `script` where `home` is a file system of 1 MiB; `None` where this user may not mount one.
fn with_small_home(home: &Home, script: &str) -> Option<std::process::Output> {
    std::fs::create_dir_all(home.path("home")).unwrap();
    let tonnage = env!("CARGO_BIN_EXE_tonnage");
    let whole = format!("mount -t tmpfs -o size=1m none home || exit 99; TONNAGE={tonnage}; {script}");
    for unshare in [&["-m"][..], &["-rm"]] {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", &whole]).current_dir(home.path("."));
        command.env("TONNAGE_HOME", home.path("home")).env("COLUMNS", "200").stdin(std::process::Stdio::null());
        match command.output() {
            Ok(output) if ![Some(1), Some(99)].contains(&output.status.code()) => return Some(output),
            _ => {}
        }
    }
    None
}

#[test]
fn a_full_disk_fails_no_job_that_succeeded() {
    let home = Home::new("full");
    let job = "head -c 3000000 /dev/zero; echo trained > proof; exit 0";
    // The codes are added to 10, so that they are told from those of `unshare`.
    let script =
        format!("$TONNAGE run -- sh -c '{job}' > /dev/null; code=$?; $TONNAGE status >&2; exit $((code + 10))");
    let Some(output) = with_small_home(&home, &script) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(10), "{said}");
    assert!(home.path("proof").exists() && !said.contains("abandoned"), "{said}");
}

#[test]
fn a_disk_that_fills_does_not_keep_the_guard_from_starting_again() {
    let home = Home::new("fills");
    let job = "if [ -e second ]; then exit 0; fi; touch second; head -c 3000000 /dev/zero > home/fill; kill -9 $$";
    let script = format!("$TONNAGE run -- sh -c '{job}'; code=$?; exit $((code + 10))");
    let Some(output) = with_small_home(&home, &script) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(10), "{said}");
}

#[test]
fn a_run_without_a_job_promises_nothing() {
    let home = Home::new("no-ledger");
    assert!(home.run(&["run", "--", "true"]).status.success());
    assert!(!home.path("home/ledger").exists());
}

#[test]
fn a_damaged_ledger_is_no_empty_one() {
    let home = Home::new("damaged");
    let job = "model = \"gpt2\"\nmicro_batch_size = 1\nseq_len = 32\nprecision = \"bf16\"\ngpu = \"24GiB,sm_90\"\n";
    let job = home.write("job.toml", job);
    assert!(home.run(&["run", &job, "--", "true"]).status.success());
    let ledger = std::fs::read_dir(home.path("home/ledger")).unwrap().flatten().map(|entry| entry.path());
    let ledger: Vec<_> = ledger.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    std::fs::write(&ledger[0], "[{\"run\": ").unwrap();
    let refused = home.run(&["run", &job, "--", "touch", "started"]);
    let said = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("remove it when no run lives") && !home.path("started").exists(), "{said}");
}
