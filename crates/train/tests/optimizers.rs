//! Optimizers, clipping, the scaler and schedules beside what PyTorch and transformers compute (testdata/train/optimizers.py).

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::Value;
use tonnage_torch::{Device, Tensor, Torch};
use tonnage_train::clip::clip_grad_norm;
use tonnage_train::optimizer::{Adam, AdamOptions, Implementation, Optimizer, Sgd, SgdOptions};
use tonnage_train::scaler::GradScaler;
use tonnage_train::schedule::Schedule;

const SHAPES: [&[i64]; 3] = [&[3, 4], &[5], &[2, 2, 2]];

fn torch() -> &'static Torch {
    support::load_torch(false)
}

fn expected() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/train/optimizers.json");
    serde_json::from_slice(&std::fs::read(path).expect("the file is there")).expect("it is JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number")).collect()
}

/// As `values` of the script.
fn values(shape: &[i64], seed: usize, scale: f64) -> Tensor {
    let count: i64 = shape.iter().product();
    let numbers: Vec<f32> = (0..count)
        .map(|at| {
            let one = (seed as f64 * 1.7 + at as f64 * 0.31).sin() as f32;
            (f64::from(one) * scale) as f32
        })
        .collect();
    torch().tensor(&numbers, shape).expect("the shape holds them")
}

fn parameters() -> Vec<Tensor> {
    let made = SHAPES.iter().enumerate().map(|(at, shape)| values(shape, at, 1.0).requiring_grad());
    made.collect::<Result<_, _>>().expect("floats have gradients")
}

fn give_gradients(made: &[Tensor], step: usize, scale: f64) {
    for (at, parameter) in made.iter().enumerate() {
        let gradient = values(SHAPES[at], 10 + step * 3 + at, scale);
        let left_out = at == 1 && [3, 4].contains(&step);
        parameter.set_grad((!left_out).then_some(&gradient)).expect("shapes agree");
    }
}

fn flat(made: &[Tensor]) -> Vec<f64> {
    made.iter().flat_map(|parameter| parameter.to_vec::<f32>().expect("floats")).map(f64::from).collect()
}

/// The same operators on the same numbers: what may differ is a rounding of another processor's vector units.
fn assert_close(what: &str, found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{what}, number {at}: {found} is not {wanted}");
    }
}

fn implementation(name: &str) -> Implementation {
    match name.rsplit(' ').next() {
        Some("fused") => Implementation::Fused,
        Some("for-loop") => Implementation::ForLoop,
        _ => Implementation::Foreach,
    }
}

fn optimizer(name: &str, made: Vec<Tensor>) -> Box<dyn Optimizer> {
    let implementation = implementation(name);
    let kind: &str = name.rsplit_once(' ').map_or(name, |(kind, _)| kind);
    let mut adam = AdamOptions::default();
    adam.implementation = implementation;
    adam.learning_rate = 0.01;
    let mut sgd = SgdOptions::default();
    sgd.implementation = implementation;
    sgd.learning_rate = 0.1;
    match (name, kind) {
        ("adamw settings", _) => {
            adam.learning_rate = 0.003;
            adam.betas = (0.8, 0.95);
            adam.eps = 1e-6;
            adam.weight_decay = 0.1;
        }
        (_, "adamw") => {}
        (_, "adam") => {
            adam.decoupled = false;
            adam.weight_decay = 0.05;
        }
        (_, "sgd") => sgd.weight_decay = 0.01,
        (_, "sgd momentum") => {
            sgd.momentum = 0.9;
            sgd.dampening = 0.1;
        }
        (_, "sgd nesterov") => {
            sgd.momentum = 0.9;
            sgd.nesterov = true;
            sgd.weight_decay = 0.01;
        }
        other => panic!("no optimizer {other:?}"),
    }
    if kind.starts_with("sgd") {
        Box::new(Sgd::new(torch(), made, sgd))
    } else {
        Box::new(Adam::new(torch(), made, adam))
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn optimizers_move_parameters_as_pytorch_does() {
    let expected = expected();
    let steps = expected["steps"].as_u64().expect("a number") as usize;
    for (name, wanted) in expected["optimizers"].as_object().expect("by name") {
        let made = parameters();
        let mut optimizer = optimizer(name, made.clone());
        for step in 0..steps {
            give_gradients(&made, step, 1.0);
            optimizer.step().expect("it steps");
        }
        assert_close(name, &flat(&made), &numbers(wanted));
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn a_restored_optimizer_goes_on_as_if_it_had_not_stopped() {
    for (name, wanted) in expected()["optimizers"].as_object().expect("by name") {
        let made = parameters();
        let mut optimizer = optimizer(name, made.clone());
        for step in 0..5 {
            give_gradients(&made, step, 1.0);
            optimizer.step().expect("it steps");
        }
        let kept: Vec<_> = optimizer
            .state()
            .iter()
            .map(|entry| {
                let bytes = entry.tensor.to_bytes().expect("bytes");
                let kind = entry.tensor.scalar_type().expect("a dtype");
                (
                    entry.parameter,
                    entry.name,
                    torch().tensor_of_bytes(&bytes, &entry.tensor.sizes(), kind).expect("a copy"),
                )
            })
            .collect();
        let mut second = self::optimizer(name, made.clone());
        for (parameter, name, tensor) in kept {
            second.restore(torch(), parameter, name, tensor).expect("a state of its own");
        }
        for step in 5..12 {
            give_gradients(&made, step, 1.0);
            second.step().expect("it steps");
        }
        assert_close(name, &flat(&made), &numbers(wanted));
        let stranger = torch().tensor(&[0.0_f32], &[]).expect("a number");
        assert!(second.restore(torch(), 0, "no_such_state", stranger.clone()).is_err());
        assert!(second.restore(torch(), 99, "exp_avg", stranger).is_err());
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn clipping_scales_as_pytorch_does() {
    let wanted = expected()["clipping"].clone();
    let made = parameters();
    let mut norms = Vec::new();
    for (step, most) in numbers(&wanted["max_norms"]).into_iter().enumerate() {
        give_gradients(&made, step, 1.0);
        let norm = clip_grad_norm(torch(), &made, most).expect("it clips").expect("there are gradients");
        norms.push(f64::from(norm.to_vec::<f32>().expect("a number")[0]));
        let mut options = SgdOptions::default();
        options.learning_rate = 0.1;
        Sgd::new(torch(), made.clone(), options).step().expect("it steps");
    }
    assert_close("norms", &norms, &numbers(&wanted["norms"]));
    assert_close("parameters", &flat(&made), &numbers(&wanted["parameters"]));
    made.iter().for_each(|parameter| parameter.set_grad(None).expect("none"));
    assert!(clip_grad_norm(torch(), &made, 1.0).expect("nothing to do").is_none());
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn the_scaler_skips_what_overflowed() {
    for (name, wanted) in expected()["scaler"].as_object().expect("by name") {
        let made = parameters();
        let mut options = AdamOptions::default();
        options.learning_rate = 0.01;
        options.implementation = implementation(name);
        let mut optimizer = Adam::new(torch(), made.clone(), options);
        let mut scaler = GradScaler::new(torch(), Device::Cpu);
        let one = torch().tensor(&[1.0_f32], &[]).expect("a number");
        let mut scales = Vec::new();
        for step in 0..6 {
            let scale = f64::from(scaler.scale(&one).expect("a loss").to_vec::<f32>().expect("a number")[0]);
            give_gradients(&made, step, if step == 2 { f64::INFINITY } else { scale });
            scaler.step(&mut optimizer).expect("it steps or not");
            scaler.update().expect("it updates");
            scales.push(f64::from(scaler.state().expect("a scale").0.to_vec::<f32>().expect("a number")[0]));
        }
        assert_close(name, &scales, &numbers(&wanted["scales"]));
        assert_close(name, &flat(&made), &numbers(&wanted["parameters"]));
    }
}

#[test]
fn schedules_are_those_of_transformers() {
    for wanted in expected()["schedules"].as_array().expect("a list") {
        let number = |key: &str| wanted[key].as_u64().expect("a number");
        let name = wanted["name"].as_str().expect("a name");
        let schedule: Schedule = name.parse().expect("a schedule");
        let shares = numbers(&wanted["shares"]);
        for (step, share) in shares.iter().enumerate().take(number("steps") as usize + 1) {
            let found = schedule.share(step as u64, number("warmup"), number("steps"));
            assert!((found - share).abs() < 1e-9, "{name} {wanted} step {step}: {found} is not {share}");
        }
    }
}
