//! The hierarchical reasoning model beside a twin in PyTorch (testdata/train/hrm.py): five segments with both optimizers, the gradients of
//! the first, and an evaluation; by several ranks too.

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use tonnage_core::job::{Fields, JobSource, JobSpec, ModelSpec};
use tonnage_torch::{Argument, Device, ScalarType, Tensor, Torch, operator};
use tonnage_train::optimizer::{AdamAtan2, AdamAtan2Options, SparseSignSgd, SparseSignSgdOptions};
use tonnage_train::ranks::{Alone, Joined, Place, Ranks, ServedBy};
use tonnage_train::reasoning::{Puzzles, ReasoningModel, Segment, SegmentTrainer, Thoughts};
use tonnage_train::store::weights::Reader;
use tonnage_train::{TrainError, Weights};

/// A rounding of another processor's vector units; the models compute in half precision.
const TOLERANCE: f64 = 1e-6;

fn torch() -> &'static Torch {
    support::load_torch(false)
}

/// For tests that draw: all threads of a process draw from one generator of PyTorch's.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cases, made anew by the Python whose torch this is.
fn folder() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let python = std::env::var_os("TONNAGE_TORCH").expect("TONNAGE_TORCH names a Python");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/train/hrm.py");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hrm");
        let ended = Command::new(python).arg(script).arg("--out").arg(&folder).status().expect("the script starts");
        assert!(ended.success(), "the script failed");
        folder
    })
}

struct Case {
    name: &'static str,
    told: Value,
    reader: Reader,
}

impl Case {
    fn read(name: &'static str) -> Self {
        let path = folder().join(name);
        let text = std::fs::read(path.with_extension("json")).expect("it is there");
        let told = serde_json::from_slice(&text).expect("it is JSON");
        Self { name, told, reader: Reader::open(&path.with_extension("safetensors")).expect("tensors") }
    }

    fn rows(&self) -> u64 {
        self.told["rows"].as_u64().expect("a number")
    }

    fn job(&self) -> JobSpec {
        let mut job = JobSource::model("gpt2").set("gpu", "h100").resolve(&[]).expect("a job").job;
        let config = Fields(self.told["config"].as_object().expect("an object").clone());
        job.model = ModelSpec { name: self.name.to_owned(), model_type: "hrm".to_owned(), config, ..job.model.clone() };
        job.micro_batch_size = self.rows();
        job.seq_len = self.told["tokens"].as_u64().expect("a number");
        job
    }

    fn tensor(&mut self, name: &str) -> Option<Tensor> {
        self.reader.tensor(torch(), name).expect("it can be read")
    }

    fn model(&mut self) -> ReasoningModel {
        let job = self.job();
        let mut first = |name: &str| self.reader.tensor(torch(), &format!("first.{name}"));
        ReasoningModel::build(torch(), Device::Cpu, &job, Weights::Named(&mut first)).expect("the model")
    }

    fn batch(&mut self, at: usize) -> Puzzles {
        let mut part = |key: &str| self.tensor(&format!("batch.{at}.{key}")).expect("a batch");
        Puzzles { inputs: part("inputs"), labels: part("labels"), puzzle_identifiers: part("puzzle_identifiers") }
    }

    /// The trainer with the rates of the script.
    fn trainer<'a>(&self, model: &'a ReasoningModel, ranks: &'a dyn Ranks) -> SegmentTrainer<'a> {
        let rate = |key: &str| self.told["rates"][key].as_f64().expect("a rate");
        let mut options = AdamAtan2Options::default();
        options.betas = (0.9, 0.95);
        options.weight_decay = rate("decay");
        let table = model.puzzle_table().map(|table| {
            let mut options = SparseSignSgdOptions::default();
            options.weight_decay = rate("decay");
            SparseSignSgd::new(torch(), table, options)
        });
        let optimizer = Box::new(AdamAtan2::new(torch(), model.trained(), options));
        let trainer = SegmentTrainer::new(torch(), model, table, optimizer, self.rows(), ranks);
        let mut trainer = trainer.expect("all ranks are there");
        trainer.set_learning_rates(rate("weights"), rate("table"));
        trainer
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let exact = torch().call(operator!("to", "dtype"), &[tensor.into(), ScalarType::Float64.into()]);
    let flat = exact.and_then(|made| made.tensor()).expect("numbers");
    flat.to_vec().expect("they are here")
}

/// The largest difference, in shares of the largest number.
fn difference(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len());
    let largest = other.iter().fold(1e-3, |most: f64, number| most.max(number.abs()));
    one.iter()
        .zip(other)
        .fold(0.0, |most: f64, (a, b)| if (a - b).is_nan() { f64::INFINITY } else { most.max((a - b).abs()) })
        / largest
}

fn told(segment: &Value) -> Vec<f64> {
    segment["metrics"].as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number")).collect()
}

/// Segments of a training of the script.
const SEGMENTS: usize = 5;

const CASES: [&str; 6] = ["rope", "more_cycles", "short_table", "long_table", "learned", "one_segment"];

/// The gradients of the first segment.
fn check_gradients(case: &mut Case) {
    let model = case.model();
    let puzzles = case.batch(0);
    torch().seed(100).expect("a generator");
    let carry: Thoughts = model.initial_carry(&puzzles).expect("room");
    let (_, segment): (_, Segment) = model.forward(&carry, &puzzles, false).expect("a segment");
    let loss = numbers(&segment.loss)[0];
    let wanted = case.told["segments"][0]["loss"].as_f64().expect("a loss");
    assert!((loss / wanted - 1.0).abs() < TOLERANCE, "{}: loss {loss}, the twin's is {wanted}", case.name);
    let share = Argument::from(1.0 / case.rows() as f64);
    let loss = torch().call(operator!("mul", "Scalar"), &[(&segment.loss).into(), share]).expect("a loss");
    torch().backward(&loss.tensor().expect("one")).expect("gradients");
    let mut compared = 0;
    for (name, weight) in model.named() {
        let gradient = weight.grad().expect("a leaf");
        let wanted = case.tensor(&format!("grad.{name}"));
        let Some((gradient, wanted)) = gradient.as_ref().zip(wanted.as_ref()) else {
            assert!(gradient.is_none() && wanted.is_none(), "{}: only one has a gradient of {name}", case.name);
            continue;
        };
        compared += 1;
        let off = difference(&numbers(gradient), &numbers(wanted));
        assert!(off < TOLERANCE, "{}: the gradient of {name} differs by {off}", case.name);
    }
    assert!(compared > 10, "{}: {compared} gradients", case.name);
    if let Some(table) = model.puzzle_table() {
        let gradient = table.local_weights.grad().expect("a leaf").expect("a gradient");
        let off = difference(&numbers(&gradient), &numbers(&case.tensor("table_grad").expect("the twin's")));
        assert!(off < TOLERANCE, "{}: the gradient of the puzzle table differs by {off}", case.name);
    }
}

/// The steps of a rank.
fn check_steps(case: &mut Case, model: &ReasoningModel, ranks: &dyn Ranks) {
    let mut trainer = case.trainer(model, ranks);
    let segments = case.told["segments"].as_array().expect("a list").clone();
    for at in 0..SEGMENTS {
        let of_rank = ranks.rank() as usize * SEGMENTS + at;
        let (puzzles, segment) = (case.batch(of_rank), &segments[of_rank]);
        torch().seed(100 + at as u64).expect("a generator");
        let metrics = trainer.step(&puzzles).expect("a step");
        let off = difference(&metrics, &told(segment));
        assert!(off < TOLERANCE, "{}, segment {of_rank}: {metrics:?}, the twin has {:?}", case.name, told(segment));
    }
    for (name, weight) in model.named() {
        let wanted = case.tensor(&format!("last.{name}")).unwrap_or_else(|| panic!("{name}"));
        let off = difference(&numbers(&weight), &numbers(&wanted));
        assert!(off < TOLERANCE, "{}: after five steps {name} differs by {off}", case.name);
    }
}

/// Five steps: what halts, what is explored, both losses of halting, and where both optimizers lead.
fn check_training(case: &mut Case) {
    let model = case.model();
    check_steps(case, &model, &Alone);
    // An evaluation goes through the same weights without exploring.
    model.train(false);
    let puzzles = case.batch(SEGMENTS - 1);
    let _no_grad = torch().no_grad();
    let carry = model.initial_carry(&puzzles).expect("room");
    let (_, segment) = model.forward(&carry, &puzzles, true).expect("a segment");
    let off = difference(
        &numbers(&segment.logits.expect("asked for")),
        &numbers(&case.tensor("logits").expect("the twin's")),
    );
    assert!(off < TOLERANCE, "{}: logits of an evaluation differ by {off}", case.name);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names a Python that has it"]
fn segments_and_gradients_are_the_twins() {
    let _generator = generator();
    for name in CASES {
        check_gradients(&mut Case::read(name));
        check_training(&mut Case::read(name));
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names a Python that has it"]
fn ranks_sum_gradients_and_gather_the_table_as_the_twin() {
    let _generator = generator();
    let (found, shim) = support::compile_shim();
    let library = shim.ranks(&found, &mut |report| eprintln!("{report}")).expect("what ranks need compiles");
    torch();
    for (name, ranks) in [("two_ranks", 2), ("three_ranks", 3)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let served = listener.into_raw_fd();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let library = &library;
                scope.spawn(move || {
                    let served_by = if rank == 0 { ServedBy::Listener(served) } else { ServedBy::FirstRank };
                    let host = "127.0.0.1".to_owned();
                    let place =
                        Place { rank, ranks, local_rank: rank, local_ranks: ranks, host, port, served_by, restarts: 0 };
                    let joined = Joined::join_ranks(library, place, Device::Cpu, name).expect("they meet");
                    let mut case = Case::read(name);
                    // Whatever a rank begins with, it goes on with what rank 0 has.
                    let model = if rank == 0 {
                        case.model()
                    } else {
                        ReasoningModel::build(torch(), Device::Cpu, &case.job(), Weights::Initial).expect("the model")
                    };
                    check_steps(&mut case, &model, &joined);
                });
            }
        });
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names a Python that has it"]
fn weights_begin_as_the_program_has_them() {
    let _generator = generator();
    let case = Case::read("rope");
    torch().seed(5).expect("a generator");
    let model = ReasoningModel::build(torch(), Device::Cpu, &case.job(), Weights::Initial).expect("the model");
    for (name, weight) in model.named() {
        let numbers = numbers(&weight);
        let deviation = (numbers.iter().map(|x| x * x).sum::<f64>() / numbers.len() as f64).sqrt();
        let inputs = *weight.sizes().last().expect("a dimension") as f64;
        let most = numbers.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        if name.contains("q_head.bias") {
            assert_eq!(numbers, [-5.0, -5.0]);
        } else if name.contains("q_head") || name.contains("puzzle_emb") {
            assert_eq!(most, 0.0, "{name}");
        } else {
            let wanted = if name.ends_with("_init") { 1.0 } else { 1.0 / inputs.sqrt() };
            assert!((deviation / wanted - 1.0).abs() < 0.2, "{name}: {deviation}, {wanted} was wanted");
            // Cut at two deviations of what is cut, which is 1.137 of what is left.
            assert!(most <= 2.0 * 1.138 * wanted, "{name}: {most}");
        }
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names a Python that has it"]
fn what_is_wrong_names_its_key() {
    let case = Case::read("rope");
    let error = |change: &dyn Fn(&mut JobSpec)| {
        let mut job = case.job();
        change(&mut job);
        let built = ReasoningModel::build(torch(), Device::Cpu, &job, Weights::Initial);
        built.err().map(|error: TrainError| error.to_string()).unwrap_or_default()
    };
    assert!(error(&|job| job.model.model_type = "gpt2".to_owned()).contains("no hierarchical reasoning model"));
    let dtype = error(&|job| drop(job.model.config.0.insert("forward_dtype".to_owned(), "float32".into())));
    assert!(dtype.contains("forward_dtype"), "{dtype}");
    let eps = error(&|job| drop(job.model.config.0.insert("rms_norm_eps".to_owned(), (-1.0).into())));
    assert!(eps.contains("rms_norm_eps"), "{eps}");
}
