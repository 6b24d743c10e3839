//! `tonnage train` of jobs of HRM over a real PyTorch, on the CPU and over a GPU that is not there. Ignored unless asked for:
//! `TONNAGE_TORCH_PYTHON` names a Python with PyTorch.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::Home;
use super::train::{command, rehearsed, repository, run, same_files, succeeded};
use super::train_ranks::{newest, rank_of, rehearsed_ranks, wait_until};

/// Twelve segments of boards of 4 x 4, of which a row has at most four.
const SHORT: &[&str] = &[
    "--max-steps=12",
    "--micro-batch-size=16",
    "--save-steps=5",
    "--save-total-limit=9",
    "--eval-steps=6",
    "--logging-steps=2",
    "--warmup-steps=2",
    "--seq-len=16",
    "--set=hrm.side=4",
    "--set=hrm.clues_min=5",
    "--set=hrm.clues_max=7",
    "--set=hrm.train_puzzles=60",
    "--set=hrm.eval_puzzles=12",
    "--set=hrm.eval_views=5",
    "--set=hrm.augmentations=3",
    "--set=model.halt_max_steps=4",
];

fn home(name: &str) -> Home {
    let home = Home::new(name);
    let job = fs::read_to_string(repository().join("examples/hrm-sudoku.toml")).expect("the example is there");
    home.write("job.toml", &job);
    home
}

fn train(home: &Home, output: &str, more: &[&str]) -> std::process::Output {
    let words = ["train", "job.toml", "--no-rehearsal", "--output-dir", output];
    run(home, &[&words, SHORT, more].concat())
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn going_on_in_the_middle_of_thoughts_is_never_having_stopped() {
    let home = home("hrm-resume");
    succeeded(&train(&home, "whole", &[]));
    // Rows of step 5 are in the middle of their segments; a folder with that checkpoint alone goes on from there.
    fs::create_dir_all(home.path("again/checkpoint-5")).unwrap();
    for file in fs::read_dir(home.path("whole/checkpoint-5")).unwrap().flatten() {
        fs::copy(file.path(), home.path("again/checkpoint-5").join(file.file_name())).unwrap();
    }
    succeeded(&train(&home, "again", &["--resume"]));
    for step in [10, 12] {
        let [whole, again] = ["whole", "again"].map(|folder| home.path(&format!("{folder}/checkpoint-{step}")));
        same_files(&whole, &again);
    }
    let weights = |step| fs::read(home.path(&format!("whole/checkpoint-{step}/model.safetensors"))).unwrap();
    assert!(weights(5) != weights(12), "what came after the checkpoint changed the model");
    let text = fs::read_to_string(home.path("whole/metrics.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |name: &str| records.iter().any(|record| record["metrics"][name].as_f64().is_some_and(f64::is_finite));
    for name in
        ["loss", "exact_accuracy", "segments", "q_continue_loss", "eval/accuracy", "eval/exact_accuracy", "eval/pass@5"]
    {
        assert!(has(name), "{name}");
    }
    let items: Vec<&Value> = records.iter().filter(|record| record["record"] == "item").collect();
    assert_eq!(items.len(), 12);
    assert!(items.iter().all(|item| item["samples"] == 5 && item["difficulty"].as_str().unwrap().contains("guesses")));
    // Another rate of the puzzle table is another training.
    let other = train(&home, "again", &["--resume", "--set=hrm.puzzle_emb_lr=0.5"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned() + &String::from_utf8_lossy(&other.stdout);
    assert!(!other.status.success() && said.contains("another training"), "{said}");
}

/// Twelve rows a step in any number of processes, none of which explores: what each draws is its own.
fn in_ranks(home: &Home, ranks: u64, output: &str, steps: u64) -> Command {
    let own = ["--max-steps", "--micro-batch-size", "--save-steps", "--eval-steps", "--logging-steps"];
    let short = SHORT.iter().filter(|word| !own.contains(&word.split('=').next().unwrap_or_default()));
    let more = ["--save-steps=1", "--eval-steps=4", "--logging-steps=1", "--set=model.halt_exploration_prob=0"];
    let table = ["--set=model.puzzle_emb_ndim=32", "--set=hrm.puzzle_emb_lr=1e-2"];
    let mut command = command(home, &["trainer", "job.toml", "--output-dir", output]);
    command.args(short).args(more).args(table).args([
        format!("--max-steps={steps}"),
        format!("--micro-batch-size={}", 12 / ranks),
        format!("--world-size={ranks}"),
    ]);
    command
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn ranks_learn_what_one_process_learns_and_lose_nothing_by_one_that_dies() {
    let home = home("hrm-ranks");
    let mut endless = in_ranks(&home, 2, "killed", 1_000_000);
    let mut launcher = endless.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut has_ended = || launcher.try_wait().unwrap().is_some();
    wait_until("a checkpoint is written", || newest(&home.path("killed")) > 1 || has_ended());
    kill(rank_of(launcher.id(), 1).expect("the rank runs"), Signal::SIGKILL).unwrap();
    let output = launcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("rank 1 of 2 was killed by SIGKILL; the others were ended"));
    let last = newest(&home.path("killed")) + 3;
    // Goes on in the middle of both ranks' thoughts.
    for (ranks, output) in [(2, "killed"), (2, "whole"), (3, "three"), (1, "alone")] {
        succeeded(&in_ranks(&home, ranks, output, last).output().unwrap());
    }
    let [killed, whole] = ["killed", "whole"].map(|folder| home.path(&format!("{folder}/checkpoint-{last}")));
    same_files(&killed, &whole);
    let [of_killed, of_whole] = [killed, whole].map(|folder| fs::read(folder.join("thoughts.safetensors")).unwrap());
    assert!(of_killed == of_whole);
    for name in ["whole", "three"] {
        check_beside_alone(&home, name);
    }
}

/// What ranks tell, beside one process: of all rows, equal until the first update, which rounds each rank's share of a gradient to half
/// precision by itself (`ranks_sum_gradients_and_gather_the_table_as_the_twin` has the same rounding on both sides).
fn check_beside_alone(home: &Home, name: &str) {
    for metric in ["loss", "q_continue_loss", "segments", "epoch", "eval/loss"] {
        let (together, alone) = (metrics(home, name, metric), metrics(home, "alone", metric));
        assert!(together.len() == alone.len() && !alone.is_empty(), "{name}: {metric}");
        for (at, (together, alone)) in together.iter().zip(&alone).enumerate() {
            // The learning rate rises from 0: the first update changes nothing.
            let most = if metric == "loss" && at < 2 { 1e-6 } else { 1e-2 };
            assert!(
                (together - alone).abs() <= most * alone.abs().max(1e-6),
                "{name}, {metric} {at}: {together} for {alone}"
            );
        }
    }
    let text = fs::read_to_string(home.path(&format!("{name}/metrics.jsonl"))).unwrap();
    let items = text.lines().filter(|line| line.contains("\"item\"") && line.contains("sudoku-")).count();
    assert_eq!(items, 12, "{name}: every held-out puzzle once");
}

fn metrics(home: &Home, name: &str, metric: &str) -> Vec<f64> {
    let text = fs::read_to_string(home.path(&format!("{name}/metrics.jsonl"))).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter_map(|record| record["metrics"][metric].as_f64()).collect()
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_is_estimated_of_hrm_is_what_runs_to_the_byte() {
    let home = home("hrm-rehearsed");
    let variants: [&[&str]; 5] = [
        &[],
        &["--set=model.halt_max_steps=1", "--set=model.H_cycles=1", "--set=model.L_cycles=1"],
        &["--set=model.puzzle_emb_ndim=64", "--set=model.pos_encodings=rope"],
        &["--set=model.loss_type=stablemax_cross_entropy", "--micro-batch-size=200"],
        &["--seq-len=81", "--set=hrm.side=9", "--set=model.vocab_size=11", "--set=model.hidden_size=256"],
    ];
    let few = ["job.toml", "--set=hrm.train_puzzles=20", "--set=hrm.eval_puzzles=2", "--set=hrm.clues_max=60"];
    for variant in variants {
        rehearsed(&home, &[&few, variant].concat());
    }
    // What is gathered of the puzzle table; without one gradients are summed where they lie.
    let table = ["--ranks=2", "--set=model.puzzle_emb_ndim=64", "--set=model.num_puzzle_identifiers=900"];
    let wide =
        ["--ranks=3", "--set=model.puzzle_emb_ndim=512", "--set=model.halt_max_steps=1", "--micro-batch-size=200"];
    for (variant, ranks) in [(&table[..], 2), (&wide[..], 3), (&table[..1], 2)] {
        rehearsed_ranks(&home, &[&few, variant].concat(), ranks);
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn puzzles_are_read_from_files_and_what_does_not_suit_the_model_is_said() {
    let home = home("hrm-files");
    let said = |words: &[&str]| {
        let output = run(&home, &[&["train", "job.toml", "--dry-run"], words].concat());
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    home.write("boards.csv", "source,question,answer,rating\nx,12..34..........,1234341221434321,7\n");
    let boards = ["--seq-len=16", "--set=hrm.side=4", "--data-train-files=boards.csv"];
    assert!(said(&boards).contains("1 Sudokus of 4 x 4, 0 held out"), "{}", said(&boards));
    assert!(said(&boards[1..]).contains("seq_len` is 36, and these puzzles need 16"), "{}", said(&boards[1..]));
    let small = said(&["--set=model.vocab_size=5"]);
    assert!(small.contains("vocab_size` is 5, and these puzzles need 8"), "{small}");
    fs::create_dir_all(home.path("tasks")).unwrap();
    home.write(
        "tasks/a.json",
        r#"{"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]], "output": [[4]]}]}"#,
    );
    let arc = ["--set=hrm.puzzles=arc", "--seq-len=900", "--set=model.vocab_size=12", "--data-train-files=tasks"];
    assert!(said(&arc).contains("num_puzzle_identifiers` is 1, and these puzzles need 2"), "{}", said(&arc));
    let with_rows = [&arc[..], &["--set=model.num_puzzle_identifiers=2"]].concat();
    assert!(said(&with_rows).contains("1 pairs of 1 tasks of ARC, 1 held out"), "{}", said(&with_rows));
    let none = said(&["--set=hrm.puzzles=arc"]);
    assert!(none.contains("tasks of ARC are not made") && none.contains("data.train_files"), "{none}");
    let impossible = said(&["--set=hrm.clues_min=30", "--set=hrm.clues_max=20"]);
    assert!(impossible.contains("hrm.clues_min` = 30 is above"), "{impossible}");
}
