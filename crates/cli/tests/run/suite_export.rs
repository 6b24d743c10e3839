//! What runs of a suite measured, handed on while they run; and where `status` and `watch` see them.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::Home;
use super::suites::{made, status, suite, text, wait};

/// A script that logs steps until it may end.
const LOGS: &str = ": > up-$1-$2\nfor i in 1 2 3; do echo step $i loss 0.$i; done\n\
                    while [ ! -e go ]; do sleep 0.05; done\necho step 4 loss 0.4\n";

fn points(home: &Home, folder: &str) -> usize {
    let output = home.run(&["report", folder, "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    answer.to_string().matches("loss").count()
}

#[test]
fn metrics_are_handed_on_while_runs_run() {
    let home = made("suite-live", &suite(1), LOGS);
    let mut runner = home
        .command(&[
            "suite",
            "run",
            "s.toml",
            "--slots",
            "2",
            "--export",
            "tensorboard=events",
            "--export",
            "csv=tables",
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let table = || fs::read_to_string(home.path("tables/metrics.csv")).unwrap_or_default();
    wait(|| table().contains("\"c a=2\",0,3,\"loss\",0.3\n"));
    assert!(!table().contains(",4,"), "it has not come so far");
    wait(|| points(&home, "events") > 0);
    home.write("go", "");
    assert!(runner.wait().unwrap().success());
    for a in [1, 2] {
        assert!(table().contains(&format!("\"c a={a}\",0,4,\"loss\",0.4\n")), "{}", table());
    }
    let events = fs::read_dir(home.path("events")).unwrap().count();
    assert_eq!(events, 2, "a folder a run");
    // By hand, after the end, the same.
    assert!(home.run(&["suite", "export", "--to", "csv", "--out", "again"]).status.success());
    assert_eq!(fs::read_to_string(home.path("again/metrics.csv")).unwrap(), table());
}

/// A package that notes what it is told, in place of the real one, which `.ci/lanes/suites` has.
const WANDB: &str = r#"
import json, os

def note(**words):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(words) + "\n")

def Settings(**words):
    return words

class Run:
    def __init__(self, id, dir):
        self.id = id
        self.dir = os.path.join(dir, "wandb", "offline-run-%d-%s" % (len(os.listdir(dir)), id), "files")
        os.makedirs(self.dir)
    def define_metric(self, *names, **words):
        pass
    def log(self, values):
        if os.path.exists(os.environ["NOTES"] + ".dies-later"):
            os._exit(9)
        note(id=self.id, values=values)
    def finish(self, exit_code=0):
        note(id=self.id, exit_code=exit_code)

def init(**words):
    if os.path.exists(os.environ["NOTES"] + ".dies"):
        os._exit(9)
    note(**{key: words[key] for key in ("id", "resume", "mode", "project", "group", "config")})
    return Run(words["id"], words["dir"])
"#;

fn notes(home: &Home) -> Vec<Value> {
    let text = fs::read_to_string(home.path("notes")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn wandb_gets_every_point_once_and_its_death_touches_nothing() {
    let home = made(
        "suite-wandb",
        &suite(1),
        "for i in 1 2 3; do echo step $i loss 0.$i; done\n[ $1 = 2 ] && exit 3\nexit 0\n",
    );
    fs::create_dir(home.path("fake")).unwrap();
    home.write("fake/wandb.py", WANDB);
    let with = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("PYTHONPATH", home.path("fake")).env("NOTES", home.path("notes")).env_remove("WANDB_MODE");
        command.output().unwrap()
    };
    // It dies at once: the suite does not mind, and says so.
    home.write("notes.dies", "");
    let ran = with(&["suite", "run", "s.toml", "--export", "wandb=offline"]);
    assert_eq!(ran.status.code(), Some(1), "one run fails: {}", text(&ran));
    assert_eq!(status(&home)["succeeded"], 1, "{}", text(&ran));
    let said = text(&ran).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("warning: wandb was not exported"), "{said}");
    assert!(notes(&home).is_empty());
    fs::remove_file(home.path("notes.dies")).unwrap();
    home.write("notes.dies-later", "");
    assert!(!with(&["suite", "export", "s", "--to", "wandb", "--out", "offline"]).status.success());
    fs::remove_file(home.path("notes.dies-later")).unwrap();
    fs::remove_file(home.path("notes")).unwrap();
    let export = ["suite", "export", "s", "--to", "wandb", "--out", "offline"];
    let exported = with(&export);
    assert!(exported.status.success(), "{}", text(&exported));
    let told = notes(&home);
    let begun: Vec<&Value> =
        told.iter().filter(|note| note["mode"] == "offline" && note["resume"] == "allow").collect();
    assert_eq!(begun.len(), 2, "{told:?}");
    let ids: Vec<Value> = serde_json::from_value(status(&home)["runs"].clone()).unwrap();
    assert!(ids.iter().all(|run| begun.iter().any(|one| one["id"] == run["id"])), "a run's id is its identity");
    let losses = told.iter().filter(|note| note["values"]["loss"].is_number()).count();
    assert_eq!(losses, 6);
    let mut codes: Vec<i64> = told.iter().filter_map(|note| note["exit_code"].as_i64()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 1]);
    // What the export left that died half-way is not what `wandb sync` is told to upload.
    let places = fs::read_dir(home.path("offline/wandb")).unwrap().flatten();
    let mut places: Vec<String> = places.map(|place| place.file_name().into_string().unwrap()).collect();
    places.sort();
    assert_eq!(places.len(), 3, "{places:?}");
    assert!(places[0].starts_with("died-offline-run-") && places[1].starts_with("offline-run-"), "{places:?}");
    let again = with(&export);
    assert!(again.status.success() && notes(&home).len() == told.len(), "what was given is not given again");
    // Without the package it is said what to do.
    let bare = home.run(&["suite", "export", "s", "--to", "wandb", "--out", "other", "--python", "./nowhere"]);
    assert!(!bare.status.success() && text(&bare).contains("--python"), "{}", text(&bare));
}

#[test]
fn tensorboard_files_of_the_script_are_a_source() {
    let home = made("suite-events", &suite(1), LOGS);
    home.write("go", "");
    assert!(home.run(&["suite", "run", "s.toml"]).status.success());
    assert!(home.run(&["suite", "export", "--to", "tensorboard", "--out", "made"]).status.success());
    let reads = "name = \"t\"\ncommand = [\"sh\", \"u.sh\", \"{a}\", \"{seed}\"]\nseeds = 1\ntensorboard = \"logs/{a}-{seed}\"\n\
                 [parameters]\na = 0\n[[configuration]]\nname = \"c\"\na = [1, 2]\n";
    home.write("t.toml", reads);
    home.write("u.sh", "mkdir -p logs\ncp -r made/c_a=$1_seed_$2 logs/$1-$2\n");
    let output = home.run(&["suite", "run", "t.toml"]);
    assert!(output.status.success(), "{}", text(&output));
    let report = text(&home.run(&["report", "t"]));
    assert!(report.contains("2 runs of 2 configurations") && report.contains("Asked about: `loss`"), "{report}");
}

#[test]
fn status_and_watch_know_suites() {
    let home = made("suite-watched", &suite(3), LOGS);
    let mut runner = home.command(&["suite", "run", "s.toml", "--slots", "2"]).stderr(Stdio::null()).spawn().unwrap();
    wait(|| home.path("up-1-0").exists() && home.path("up-1-1").exists());
    let said = text(&home.run(&["status"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("of suite s: c a=1 seed"), "{said}");
    assert!(said.contains("suite s: 0 of 6 done, 2 running, 4 waiting"), "{said}");
    assert!(said.contains("- c a=1 seed 0 for") && said.contains("- next: c a=1 seed 2"), "{said}");
    let answer: Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(answer["suites"][0]["running"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(answer["suite"]["suite"], "s");
    let by_name = text(&home.run(&["status", "s"]));
    assert!(by_name.contains("0 of 6 done"), "{by_name}");
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libtonnage_phantom.so");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml/neighbour.jsonl");
    let watch = |args: &[&str]| {
        let mut command = home.command(&[&["watch", "--nvml", library.to_str().unwrap()], args].concat());
        command.env("TONNAGE_NVML_SCRIPT", &script).env("TONNAGE_PHANTOM_QUIET", "1");
        command.env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1").output().unwrap()
    };
    let plain = text(&watch(&["--once"]));
    assert!(
        plain.contains("suite s: 0 of 6 done, 2 running, 4 waiting") && plain.contains("next: c a=1 seed 2"),
        "{plain}"
    );
    let sample: Value = serde_json::from_slice(&watch(&["--json", "--samples", "1"]).stdout).unwrap();
    assert_eq!((&sample["suites"][0]["suite"], &sample["suites"][0]["waiting"]), (&"s".into(), &4.into()), "{sample}");
    home.write("go", "");
    assert!(runner.wait().unwrap().success());
    assert!(!text(&home.run(&["status"])).contains("of 6 done"), "it has ended");
    assert!(!text(&watch(&["--once"])).contains("suite"), "it has ended");
}
