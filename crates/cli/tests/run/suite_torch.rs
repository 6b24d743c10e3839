//! Real PyTorch under a suite, over a GPU that is not there: twelve runs on one GPU of 24 GiB.

use std::time::Instant;

use serde_json::Value;

use super::suites::{made, status, text};
use super::torch_python;

const GIB: u64 = 1 << 30;

/// Every run trains GPT-2 on the phantom, and sleeps as long as a GPU would work: twelve trainings at once would else wait for the
/// cores of the machine. `TONNAGE_SUITE_SECONDS` says how long that is.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn twelve_trainings_share_a_gpu() {
    let preload = std::env::var("TONNAGE_TORCH_PRELOAD").expect("TONNAGE_TORCH_PRELOAD names libtonnage_phantom.so");
    let seconds = std::env::var("TONNAGE_SUITE_SECONDS").unwrap_or_else(|_| "20".to_owned());
    let devices = "TONNAGE_PHANTOM_DEVICES=name=Phantom,total=25769803776,cc=8.6,sms=82";
    let python = torch_python();
    let suite = |name: &str, seeds: usize| {
        format!(
            "name = \"{name}\"\njob = \"gpt2\"\nseeds = {seeds}\n\
             command = [\"env\", \"LD_PRELOAD={preload}\", \"{devices}\", \"{python}\", \"t.py\", \"{{micro_batch_size}}\", \
             \"{{seed}}\", \"{seconds}\"]\n[run]\nmax_attempts = 1\n\
             [set]\ngpu = \"24GiB,sm_86,multiprocessors=82\"\nseq_len = 512\nprecision = \"fp32\"\nframework = \"loop\"\nsteps = 3\n\
             [[configuration]]\nname = \"c\"\nmicro_batch_size = [2, 4, 6]\n"
        )
    };
    let home = made("suite-torch", &suite("s", 4), "");
    home.write("alone.toml", &suite("alone", 1));
    home.write("t.py", include_str!("suite_torch.py"));
    let began = Instant::now();
    let alone = home.run(&["suite", "run", "alone.toml", "--gpus", "0", "--slots", "1"]);
    assert!(alone.status.success(), "{}", text(&alone));
    let alone = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let output = home.run(&["suite", "run", "s.toml", "--gpus", "0"]);
    let wall = began.elapsed().as_secs_f64();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(status(&home)["succeeded"], 12);
    let journal = std::fs::read_to_string(home.path("home/suites/s/journal.log")).unwrap();
    let (mut now, mut most, mut highest) = (Vec::<(String, u64)>::new(), 0, 0);
    for line in journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let id = line["id"].as_str().unwrap_or_default().to_owned();
        match line["event"].as_str() {
            Some("started") => now.push((id, line["bytes"].as_u64().unwrap())),
            Some("ended") => {
                assert!(
                    line["end"]["class"].is_null() && line["end"]["attempts"] == 1,
                    "none was out of memory: {line}"
                );
                let measured = line["end"]["measured_bytes"].as_u64().expect("its allocator told");
                let own = now.iter().find(|one| one.0 == id).expect("it was started").1;
                assert!(measured <= own, "{measured} of {own} promised");
                now.retain(|one| one.0 != id);
            }
            _ => {}
        }
        let promised = now.iter().map(|one| one.1).sum::<u64>();
        assert!(promised <= 24 * GIB, "{promised}");
        (most, highest) = (most.max(now.len()), highest.max(promised));
    }
    assert!(most >= 3, "{most} at once");
    // Three runs one after the other are a quarter of twelve.
    let one_after_the_other = 4.0 * alone;
    println!(
        "12 runs: {wall:.0} s, one after the other {one_after_the_other:.0} s: {:.2}; at most {most} at once, {:.1} GiB promised",
        wall / one_after_the_other,
        highest as f64 / GIB as f64
    );
}
