//! `tonnage watch` on the scripted NVML library, and on recordings.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use super::{check, command, folder, json, tonnage};

/// The shared library that cargo builds of the phantom, beside the test itself.
fn library() -> String {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libtonnage_phantom.so").to_string_lossy().into_owned()
}

fn script(name: &str) -> String {
    let path: PathBuf = folder("../../../testdata/nvml").join(format!("{name}.jsonl"));
    path.to_string_lossy().into_owned()
}

/// The command on the scripted library, whose time stands still.
fn scripted(name: &str, args: &[&str]) -> std::process::Command {
    let mut command = command(&[&["watch", "--nvml", &library()], args].concat());
    command.env("TONNAGE_NVML_SCRIPT", script(name)).env("TONNAGE_NVML_SPEED", "0");
    command.env("TONNAGE_PHANTOM_QUIET", "1").env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    command
}

#[test]
fn help() {
    check("help_watch", &["watch", "-h"]);
}

#[test]
fn one_look_without_a_terminal() {
    let output = scripted("node", &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1 + 8 * 5, "{text}");
    assert!(text.contains("54.5 GiB of 79.6 GiB (68 %)") && text.contains("13.0 GiB"), "{text}");
}

#[test]
fn json_says_what_is_absent_and_why() {
    let output = scripted("lost", &["--json", "--samples", "1"]).env("TONNAGE_NVML_START", "50").output().unwrap();
    let sample: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &sample["devices"][0];
    assert!(device["memory_used_bytes"].is_null() && device["temperature_celsius"].is_null());
    assert_eq!(device["absent"]["memory"], "gpu_is_lost");
    assert_eq!(sample["devices"][1]["absent"]["power"], "no_permission");
    assert_eq!(sample["alerts"][0]["kind"], "lost");
}

#[test]
fn a_job_is_compared_with_its_prediction() {
    let leak = script("leak");
    let output = tonnage(&["watch", "gpt2", "-b8", "--replay", &leak, "--json"]).stdout;
    let text = String::from_utf8(output).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let estimate = json(&["estimate", "gpt2", "-b8", "--json"]);
    assert_eq!(last["prediction"]["peak_bytes"], estimate["total_bytes"]);
    let process = &last["devices"][0]["processes"][0];
    assert_eq!(process["predicted_peak_bytes"], estimate["total_bytes"]);
    let kinds: Vec<_> = last["alerts"].as_array().unwrap().iter().map(|alert| alert["kind"].clone()).collect();
    assert_eq!(kinds, ["leak", "above_prediction"]);
}

#[test]
fn an_estimate_serves_as_well_as_its_job() {
    let path = std::env::temp_dir().join(format!("tonnage-estimate-{}.json", std::process::id()));
    std::fs::write(&path, tonnage(&["estimate", "gpt2", "--json"]).stdout).unwrap();
    let args = ["watch", "--estimate", path.to_str().unwrap(), "--replay", &script("leak"), "--once"];
    let text = String::from_utf8(tonnage(&args).stdout).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(text.contains("predicted: 15.5 GiB a process (15.3 GiB to 15.9 GiB), openai-community/gpt2"), "{text}");
}

#[test]
fn a_replay_prints_csv() {
    let output = tonnage(&["watch", "--replay", &script("neighbour"), "--csv"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == columns[0]), "{text}");
    assert!(text.contains(",62900,session 900,,vllm serve,25769803776,") && text.contains("neighbour"));
}

#[test]
fn a_replay_is_thinned_to_the_interval() {
    let times = |more: &[&str]| -> Vec<f64> {
        let output = tonnage(&[&["watch", "--replay", &script("leak"), "--json"], more].concat()).stdout;
        let time = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["time"].as_f64().unwrap();
        String::from_utf8(output).unwrap().lines().map(time).collect()
    };
    let (all, thinned) = (times(&[]), times(&["-n", "3"]));
    assert!(all.len() > 2 * thinned.len() && thinned.len() > 1, "{} of {}", thinned.len(), all.len());
    assert!(thinned.windows(2).all(|pair| pair[1] - pair[0] >= 2.999), "{thinned:?}");
}

#[test]
fn a_recording_of_the_library_is_replayed() {
    let path = std::env::temp_dir().join(format!("tonnage-recording-{}.jsonl", std::process::id()));
    let file = path.to_str().unwrap();
    assert!(scripted("swarm", &["--record", file, "--samples", "2", "-n", "0.05"]).status().unwrap().success());
    let output = tonnage(&["watch", "--replay", file, "--json"]).stdout;
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["devices"][0]["processes"][2]["memory_used_bytes"], 11_u64 << 30);
}

#[test]
fn what_cannot_be_is_said() {
    check("watch_no_library", &["watch", "--nvml", "/nonexistent/libnvidia-ml.so.1"]);
    check("watch_no_job", &["watch", "--seq-len", "5"]);
    check("watch_hook_elsewhere", &["watch", "--alert-hook", "http://192.0.2.1/x"]);
    check("watch_bad_recording", &["watch", "--replay", "job.toml"]);
}

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(name: &str, args: &[&str]) -> Self {
        let mut child = scripted(name, args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().trim_end_matches(['/', '\n']).to_owned();
        Self { child, address }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{request}\r\nHost: {}\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn metrics_are_served() {
    let server = Server::start("lost", &["--prometheus", "127.0.0.1:0", "-n", "0.05"]);
    let answer = server.ask("GET /metrics HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("Content-Type: text/plain; version=0.0.4"));
    for (request, status) in
        [("POST /metrics HTTP/1.1", "405"), ("GET /data.json HTTP/1.1", "404"), ("nonsense", "400")]
    {
        assert!(server.ask(request).starts_with(&format!("HTTP/1.1 {status}")), "{request}");
    }
}

#[test]
fn idle_connections_shut_nobody_out() {
    let server = Server::start("lost", &["--prometheus", "127.0.0.1:0"]);
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let began = std::time::Instant::now();
    assert!(server.ask("GET /metrics HTTP/1.1").starts_with("HTTP/1.1 200"));
    assert!(began.elapsed().as_secs() < 2, "{:?}", began.elapsed());
    drop(idle);
}

#[test]
fn samples_end_a_server_too() {
    let home = std::env::temp_dir().join(format!("tonnage-watch-home-{}", std::process::id()));
    let mut command = scripted("swarm", &["--web", ":0", "--samples", "2", "-n", "0.05"]);
    let output = command.env("TONNAGE_HOME", &home).output().unwrap();
    assert!(output.status.success());
    let segment = home.join("watch/00000001.jsonl");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&home.join("watch")), mode(&segment)], [0o700, 0o600]);
    std::fs::remove_dir_all(home).unwrap();
}

#[test]
fn the_page_is_served_with_its_policy() {
    let state = std::env::temp_dir().join(format!("tonnage-state-{}", std::process::id()));
    let server = Server::start("swarm", &["--web", "127.0.0.1:0", "-n", "0.05", "--history", state.to_str().unwrap()]);
    let page = server.ask("GET / HTTP/1.1");
    assert!(
        page.contains("Content-Security-Policy: default-src 'none'; script-src 'self'") && page.contains("page.js")
    );
    assert!(!page.contains("style=") && !page.contains("<script>"), "nothing inline");
    assert!(server.ask("GET /data.json HTTP/1.1\r\nHost: evil.example").starts_with("HTTP/1.1 403"));
    for _ in 0..100 {
        let answer = server.ask("GET /data.json HTTP/1.1");
        let data: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        if data["series"].as_object().unwrap().len() == 5 {
            drop(server);
            assert!(state.join("00000001.jsonl").metadata().unwrap().len() > 100);
            std::fs::remove_dir_all(state).unwrap();
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no sample in five seconds");
}
