//! Several nodes on one GPU: admitted by arithmetic, seeded, restarted one by one.

use super::Home;

const SWARM: &str = r#"
model = "gpt2"
task = "swarm"
gpu = "40GiB,sm_80"
precision = "fp32"
gradient_checkpointing = true
prompt_len = 64
completion_len = 64
num_generations = 8

[swarm]
nodes = 8
gpus = 1

[run]
command = ["sh", "-c", "echo role $1 seed $2 gpu $CUDA_VISIBLE_DEVICES; sleep 0.5", "sh", "{role}", "{seed}"]
roles = ["coordinator"]
seed = 40
"#;

#[test]
fn more_nodes_than_fit_are_refused_with_the_arithmetic() {
    let home = Home::new("swarm-refused");
    let file = home.write("swarm.toml", SWARM);
    assert_eq!(home.run(&["run", &file, "--set", "swarm.nodes=12"]).status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["result"]["outcome"], "refused");
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("12 nodes on a GPU need") && reason.contains("would fit"), "{reason}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 0);
}

#[test]
fn as_many_as_fit_run_each_with_its_seed() {
    let home = Home::new("swarm-runs");
    let file = home.write("swarm.toml", SWARM);
    let output = home.run(&["run", &file, "--set", "swarm.nodes=2"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[node-0] role coordinator seed 40 gpu 0", "[node-1] role node seed 41 gpu 0"]);
}

#[test]
fn a_second_terminal_is_refused_by_the_ledger() {
    let home = Home::new("swarm-ledger");
    let file = home.write("swarm.toml", &SWARM.replace("sleep 0.5", "sleep 7106"));
    let fits = ["run", "--detach", "--grace", "0", &file, "--set", "swarm.nodes=4"];
    home.run(&fits);
    home.wait("four nodes", |run| run["attempts"].as_array().is_some_and(|attempts| attempts.len() == 4));
    let second = home.run(&["run", &file, "--set", "swarm.nodes=4"]);
    assert_eq!(second.status.code(), Some(1));
    let run = home.last();
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("promised to other runs"), "{reason}");
    let first = home.run(&["list", "--json"]);
    let runs: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    home.run(&["stop", runs["runs"][0]["id"].as_str().unwrap(), "--now"]);
    super::wait_gone("sleep\u{0}7106");
}

#[test]
fn several_terminals_at_once_never_admit_more_than_fits() {
    let home = Home::new("swarm-race");
    let file = home.write("swarm.toml", &SWARM.replace("sleep 0.5", "sleep 7108"));
    // Three nodes need 19 of 40 GiB: of five terminals, two are let in.
    let words = ["run", "--grace", "0", "--json", &file, "--set", "swarm.nodes=3"];
    let mut terminals: Vec<_> =
        (0..5).map(|_| home.command(&words).stdout(std::process::Stdio::null()).spawn().unwrap()).collect();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut refused = 0;
    while refused < 3 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
        terminals.retain_mut(|terminal| {
            terminal.try_wait().unwrap().is_none_or(|status| {
                assert_eq!(status.code(), Some(1));
                refused += 1;
                false
            })
        });
    }
    for terminal in &mut terminals {
        let pid = nix::unistd::Pid::from_raw(terminal.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        terminal.wait().unwrap();
    }
    super::wait_gone("sleep\u{0}7108");
    assert_eq!((refused, terminals.len()), (3, 2));
}

#[test]
fn a_dead_node_is_restarted_and_the_others_are_left_alone() {
    let home = Home::new("swarm-dead");
    let command =
        r#"echo start >> starts-$1; if [ $1 = 1 ] && [ ! -e died ]; then touch died; kill -9 $$; fi; sleep 2"#;
    let table = format!("command = ['sh', '-c', '''{command}''', 'sh', '{{node}}']");
    let (head, _) = SWARM.split_once("command =").unwrap();
    let file = home.write("swarm.toml", &format!("{head}{table}\n"));
    let output = home.run(&["run", &file, "--set", "swarm.nodes=3", "--set", "completion_len=16"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let starts = |node: u32| std::fs::read_to_string(home.path(&format!("starts-{node}"))).unwrap().lines().count();
    assert_eq!([starts(0), starts(1), starts(2)], [1, 2, 1]);
    assert_eq!(home.last()["result"]["cost"]["attempts"], 4);
}

#[test]
fn a_lease_lets_one_node_in_at_a_time() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let home = Home::new("swarm-lease");
    let script = r#"
import os, time, tonnage_guard
def say(text):
    with open("said", "a") as file: file.write(text + "\n")
for _ in range(5):
    with tonnage_guard.lease():
        say("in"); time.sleep(0.02); say("out")
"#;
    let script = home.write("node.py", script);
    let (head, _) = SWARM.split_once("command =").unwrap();
    let file = home.write("swarm.toml", &format!("{head}command = ['python3', '{script}']\n"));
    let output = home.run(&["run", &file, "--set", "swarm.nodes=4", "--set", "swarm.lease=1"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said = std::fs::read_to_string(home.path("said")).unwrap();
    let said: Vec<_> = said.lines().collect();
    assert_eq!(said.len(), 40);
    assert!(said.chunks(2).all(|pair| pair == ["in", "out"]), "{said:?}");
}

#[test]
fn a_crash_names_its_node_and_records_compare_a_node_with_a_node() {
    let home = Home::new("swarm-crash");
    let command = "if [ $1 = 1 ]; then echo ValueError: no >&2; exit 3; fi; \
                   printf '{\"peak_allocated_bytes\": 5, \"peak_reserved_bytes\": 7000000000}' > $TONNAGE_ATTEMPT_DIR/allocator-1.json";
    let table = format!("command = ['sh', '-c', \'\'\'{command}\'\'\', 'sh', '{{node}}']");
    let (head, _) = SWARM.split_once("command =").unwrap();
    let file = home.write("swarm.toml", &format!("{head}{table}\n"));
    let output = home.run(&["run", &file, "--set", "swarm.nodes=3"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("tonnage: node-1: a crash at start"), "{said}");
    assert!(said.contains("result node-1: a crash at start"), "{said}");
    let run = home.last();
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("node-1: "), "{}", run["result"]);
    let predicted = &run["attempts"][0]["attempt"]["predicted"];
    assert_eq!(predicted["processes"], 3);
    let one = predicted["peak_reserved_bytes"].as_u64().unwrap();
    assert!(one * 2 < predicted["total_bytes"].as_u64().unwrap(), "{predicted}");
    let each = format!("predicted {:.2} GiB reserved (the GPU's 3 nodes: ", one as f64 / (1_u64 << 30) as f64);
    assert!(said.contains(&each) && said.contains("; measured 6.52 GiB reserved"), "{each}: {said}");
}

#[test]
fn what_a_waiting_node_holds_is_said() {
    let home = Home::new("swarm-waits");
    let file = home.write("swarm.toml", SWARM);
    let lease = ["--set", "swarm.lease=1"];
    let estimate = home.run(&[&["estimate", &file, "--json"], &lease[..]].concat());
    let estimate: serde_json::Value = serde_json::from_slice(&estimate.stdout).unwrap();
    let room = estimate["deployment"]["room"].as_array().or(estimate["room"].as_array()).unwrap();
    let row = room.iter().find(|row| row["lease"] == 1).unwrap();
    let bytes = |key: &str| row[key].as_u64().unwrap();
    assert_eq!(bytes("total_bytes"), bytes("training_bytes") + 7 * bytes("resting_bytes"), "{row}");
    let text = home.run(&[&["estimate", &file], &lease[..]].concat());
    let text = String::from_utf8_lossy(&text.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / (1_u64 << 30) as f64);
    let waits = format!("{} while it waits for the lease", gib(bytes("resting_bytes")));
    assert!(text.contains(&waits), "{waits}: {text}");
    home.run(&[&["run", &file], &lease[..]].concat());
    let preflight = home.last()["preflight"].as_str().unwrap().to_owned();
    assert!(preflight.contains(&format!("7 wait with {} each", gib(bytes("resting_bytes")))), "{preflight}");
}

#[test]
fn fewer_nodes_are_the_most_that_fit() {
    let home = Home::new("swarm-fewer");
    let file = home.write("swarm.toml", SWARM);
    let refused = home.run(&["run", &file, "--set", "swarm.nodes=12"]);
    assert_eq!(refused.status.code(), Some(1));
    let reason = home.last()["result"]["reason"].as_str().unwrap().to_owned();
    let plan = home.run(&["plan", &file, "--set", "swarm.nodes=12", "--json"]);
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let (_, after) = plan.split_once("\"fewer_nodes\"").unwrap_or_else(|| panic!("{plan}"));
    let nodes: String = after
        .split_once("swarm.nodes")
        .unwrap()
        .1
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    assert!(reason.contains(&format!("; {nodes} would fit")), "{nodes}: {reason}");
}
