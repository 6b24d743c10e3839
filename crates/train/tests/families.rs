//! Models of every family beside what transformers computes with the same weights (testdata/train/families.py): logits, loss, the
//! gradient of every parameter, decoding over a KV cache, and how weights begin.

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tonnage_core::job::{Attention, Fields, JobSource, JobSpec, LoraSpec, ModelSpec};
use tonnage_torch::{Argument, Device, Operator, Tensor, Torch, operator};
use tonnage_train::store::weights::Reader;
use tonnage_train::{Call, LanguageModel, TrainError, Weights};

/// The same operators on the same numbers: what may differ is a rounding of another processor's vector units.
const TOLERANCE: f64 = 1e-6;
const PROMPT: i64 = 8;

fn torch() -> &'static Torch {
    support::load_torch(false)
}

/// The cases, made anew by the Python whose torch this is.
fn cases() -> &'static [PathBuf] {
    static MADE: OnceLock<Vec<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| {
        let python = std::env::var_os("TONNAGE_TORCH").expect("TONNAGE_TORCH names a Python");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/train/families.py");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("families");
        let ended = Command::new(python).arg(script).arg("--out").arg(&folder).status().expect("the script starts");
        assert!(ended.success(), "the script failed");
        let files = std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
        let mut found: Vec<_> = files.filter(|file| file.extension().is_some_and(|ending| ending == "json")).collect();
        found.sort();
        assert!(found.len() > 40, "{} cases", found.len());
        found
    })
}

struct Case {
    name: String,
    job: JobSpec,
    reader: Reader,
    initial: Value,
    drops_out: bool,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text: Value = serde_json::from_slice(&std::fs::read(path).expect("it is there")).expect("it is JSON");
        let text_of = |key: &str| text[key].as_str().expect("a text").to_owned();
        let config = text["config"].as_object().expect("an object").clone();
        let drops_out = match text_of("model_type").as_str() {
            "gpt2" => !config.contains_key("resid_pdrop"),
            model_type => model_type == "bert",
        };
        let mut job = JobSource::model("gpt2").set("gpu", "h100").resolve(&[]).expect("a job").job;
        job.model = ModelSpec {
            name: text_of("name"),
            model_type: text_of("model_type"),
            config: Fields(config),
            ..job.model.clone()
        };
        job.seq_len = 12;
        job.attention = if text_of("attention") == "eager" { Attention::Eager } else { Attention::Sdpa };
        job.lora = text["lora"].as_object().map(|lora| LoraSpec {
            r: lora["r"].as_u64().expect("a rank"),
            alpha: lora["alpha"].as_f64().expect("a number"),
            dropout: 0.0,
            targets: serde_json::from_value(lora["targets"].clone()).expect("texts"),
            use_dora: false,
            modules_to_save: Vec::new(),
        });
        let reader = Reader::open(&path.with_extension("safetensors")).expect("weights");
        Self { name: text_of("name"), job, reader, initial: text["initial"].clone(), drops_out }
    }

    fn tensor(&mut self, name: &str) -> Option<Tensor> {
        self.reader.tensor(torch(), name).expect("it can be read")
    }

    fn model(&mut self) -> LanguageModel {
        let reader = &mut self.reader;
        let mut named = |name: &str| reader.tensor(torch(), &format!("weight.{name}"));
        LanguageModel::build_model(torch(), Device::Cpu, &self.job, Weights::Named(&mut named))
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The largest difference of two tensors.
fn difference(found: &Tensor, wanted: &Tensor) -> f64 {
    assert_eq!(found.sizes(), wanted.sizes());
    let [found, wanted] = [found, wanted].map(|tensor| tensor.to_vec::<f32>().expect("floats"));
    assert!(found.iter().all(|number| number.is_finite()));
    found.iter().zip(&wanted).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
}

fn assert_close(what: &str, found: &Tensor, wanted: &Tensor) {
    let (worst, largest) = (difference(found, wanted), difference(wanted, &zeros_like(wanted)));
    assert!(worst <= TOLERANCE * largest.max(0.1), "{what}: differs by {worst:e} of {largest}");
}

fn zeros_like(tensor: &Tensor) -> Tensor {
    torch().call(operator!("zeros_like"), &[tensor.into()]).and_then(|made| made.tensor()).expect("zeros")
}

/// Columns of a matrix.
fn columns(tensor: &Tensor, from: i64, to: i64) -> Tensor {
    let arguments = [tensor.into(), Argument::Int(1), Argument::Int(from), Argument::Int(to)];
    torch().call(operator!("slice", "Tensor"), &arguments).and_then(|made| made.tensor()).expect("columns")
}

/// The loss of a model whose loop takes it: of the logits of all tokens but the last.
fn next_token_loss(logits: &Tensor, ids: &Tensor) -> Tensor {
    let run = |operator: &'static Operator, arguments: &[Argument<'_>]| {
        torch().call(operator, arguments).and_then(|made| made.tensor()).expect("it runs")
    };
    let tokens = ids.sizes()[1];
    let logits = run(operator!("reshape"), &[(&columns(logits, 0, tokens - 1)).into(), [-1, logits.sizes()[2]].into()]);
    let targets = run(operator!("reshape"), &[(&columns(ids, 1, tokens)).into(), [-1].into()]);
    run(operator!("cross_entropy_loss"), &[(&logits).into(), (&targets).into()])
}

fn compare_gradients(case: &mut Case, model: &LanguageModel, how: &str) {
    for parameter in model.parameters() {
        let wanted = case.tensor(&format!("gradient.{}", parameter.name));
        let found = parameter.tensor.grad().expect("a gradient or none");
        assert_eq!(found.is_some(), wanted.is_some(), "{} {how}: gradient of {}", case.name, parameter.name);
        assert_eq!(parameter.is_trained, parameter.tensor.requires_grad());
        if let (Some(found), Some(wanted)) = (found, wanted) {
            assert_close(&format!("{} {how}: gradient of {}", case.name, parameter.name), &found, &wanted);
        }
        parameter.tensor.set_grad(None).expect("it is a leaf");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names its Python"]
fn logits_losses_and_gradients_are_those_of_transformers() {
    for path in cases() {
        let mut case = Case::read(path);
        let model = case.model();
        model.train(false);
        let names: Vec<_> = model.parameters().iter().map(|one| format!("weight.{}", one.name)).collect();
        let unread: Vec<_> = case.reader.names().into_iter().filter(|name| name.starts_with("weight.")).collect();
        let unread: Vec<_> = unread.into_iter().filter(|name| !names.contains(name)).collect();
        assert!(unread.is_empty(), "{}: no parameter is called {unread:?}", case.name);
        let ids = case.tensor("ids").expect("ids");
        let mask = case.tensor("mask");
        let labels = case.tensor("labels").unwrap_or_else(|| ids.clone());
        let call = Call { attention_mask: mask.as_ref(), labels: Some(&labels), ..Call::of_tokens(&ids) };
        let mut passes = vec![("plain", false)];
        passes.extend((!case.drops_out && case.job.lora.is_none()).then_some(("checkpointed", true)));
        for (how, checkpointed) in passes {
            model.train(checkpointed);
            model.set_checkpointing(checkpointed);
            let output = model.forward(call).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let logits = output.logits.expect("logits");
            let loss = output.loss.unwrap_or_else(|| next_token_loss(&logits, &ids));
            assert_close(&format!("{} {how}: logits", case.name), &logits, &case.tensor("logits").expect("logits"));
            assert_close(&format!("{} {how}: loss", case.name), &loss, &case.tensor("loss").expect("a loss"));
            torch().backward(&loss).unwrap_or_else(|error| panic!("{} {how}: {error}", case.name));
            compare_gradients(&mut case, &model, how);
        }
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names its Python"]
fn decoding_over_a_cache_gives_the_logits_of_transformers() {
    let mut decoded = 0;
    for path in cases() {
        let mut case = Case::read(path);
        let Some(wanted) = case.tensor("decoded") else { continue };
        let model = case.model();
        model.train(false);
        let _no_grad = torch().no_grad();
        let (ids, mask) = (case.tensor("ids").expect("ids"), case.tensor("mask"));
        let positions = mask.as_ref().map(|mask| {
            let summed = torch().call(operator!("cumsum"), &[mask.into(), Argument::Int(1)]).expect("a sum");
            let summed = summed.tensor().expect("a tensor");
            let before = torch().call(operator!("sub", "Scalar"), &[(&summed).into(), Argument::Int(1)]);
            let before = before.and_then(|made| made.tensor()).expect("a tensor");
            let clamped = torch().call(operator!("clamp"), &[(&before).into(), Argument::Int(0)]);
            clamped.and_then(|made| made.tensor()).expect("a tensor")
        });
        let cache = model.new_cache();
        let mut steps = Vec::new();
        let tokens = ids.sizes()[1];
        for (start, end) in [(0, PROMPT)].into_iter().chain((PROMPT..tokens).map(|at| (at, at + 1))) {
            let (part, mask) = (columns(&ids, start, end), mask.as_ref().map(|mask| columns(mask, 0, end)));
            let positions = positions.as_ref().map(|positions| columns(positions, start, end));
            let call = Call {
                attention_mask: mask.as_ref(),
                position_ids: positions.as_ref(),
                cache: Some(&cache),
                logits_to_keep: Some(1),
                ..Call::of_tokens(&part)
            };
            let output = model.forward(call).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            steps.push(output.logits.expect("logits"));
        }
        assert_eq!(cache.tokens(), u64::try_from(tokens).expect("a count"));
        let joined = torch().call(operator!("cat"), &[Argument::tensors(&steps), Argument::Int(1)]).expect("logits");
        assert_close(&format!("{}: decoding", case.name), &joined.tensor().expect("a tensor"), &wanted);
        decoded += 1;
    }
    assert!(decoded > 30, "{decoded} models decoded");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names its Python"]
fn weights_begin_as_those_of_transformers() {
    for path in cases() {
        let case = Case::read(path);
        let job = JobSpec { lora: None, ..case.job.clone() };
        let model = LanguageModel::build_model(torch(), Device::Cpu, &job, Weights::Initial).expect("it is built");
        let wanted: BTreeMap<String, [f64; 2]> = serde_json::from_value(case.initial).expect("means and deviations");
        // How the guide's model begins is its own.
        for parameter in model.parameters().iter().filter(|_| !wanted.is_empty()) {
            let numbers: Vec<f64> =
                parameter.tensor.to_vec::<f32>().expect("floats").into_iter().map(f64::from).collect();
            let count = numbers.len() as f64;
            let mean = numbers.iter().sum::<f64>() / count;
            let deviation = (numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt();
            let [wanted_mean, wanted_deviation] = wanted[&parameter.name];
            // Two samples of one distribution: five of their deviations apart, which a handful of numbers says badly.
            let apart = if count < 30.0 { 20.0 } else { 5.0 };
            let room = apart * deviation.max(wanted_deviation) * (2.0 / count).sqrt();
            assert!((mean - wanted_mean).abs() <= room, "{}: mean of {}", case.name, parameter.name);
            assert!((deviation - wanted_deviation).abs() <= room, "{}: deviation of {}", case.name, parameter.name);
        }
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names its Python"]
fn what_cannot_be_computed_is_refused_with_its_key() {
    let llama = cases().iter().find(|path| path.ends_with("llama.json")).expect("it is there");
    let error = |change: &dyn Fn(&mut JobSpec)| {
        let mut case = Case::read(llama);
        change(&mut case.job);
        let built = LanguageModel::build_model(torch(), Device::Cpu, &case.job, Weights::Initial);
        built.err().map(|error: TrainError| error.to_string()).unwrap_or_default()
    };
    let rope = |kind: &str| serde_json::json!({"rope_type": kind, "factor": 4.0});
    for (kind, wanted) in [("longrope", "0 numbers in `short_factor`"), ("something", "`something` are not computed")] {
        let text = error(&|job| drop(job.model.config.0.insert("rope_scaling".to_owned(), rope(kind))));
        assert!(text.contains("rope_parameters") && text.contains(wanted), "{text}");
    }
    assert!(error(&|job| job.model.model_type = "falcon".to_owned()).contains("`falcon` is not trained here"));
    assert!(error(&|job| job.attention = Attention::FlashAttention2).contains("`attention`"));
    let lora = |targets: &[&str]| LoraSpec {
        r: 2,
        alpha: 4.0,
        dropout: 0.0,
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
        use_dora: false,
        modules_to_save: Vec::new(),
    };
    assert!(error(&|job| job.lora = Some(lora(&["nothing"]))).contains("no module is called nothing"));
    assert!(error(&|job| job.lora = Some(lora(&["mlp"]))).contains("is no linear layer"));
    let mut none = |_: &str| Ok(None);
    let missing = LanguageModel::build_model(torch(), Device::Cpu, &Case::read(llama).job, Weights::Named(&mut none));
    assert!(
        missing
            .err()
            .expect("nothing is there")
            .to_string()
            .contains("weights are missing, the first is `lm_head.weight`")
    );
}
