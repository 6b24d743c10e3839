//! Tests: every optimizer's allocations against `testdata/optimizers/steps.json`, event by event.

use std::rc::Rc;

use serde::Deserialize;

use super::decayed::Decay;
use super::{GradScaler, Told, build_kind, clip_grad_norm};
use crate::dtype::DType;
use crate::job::{Key, Kind, LowRankSpec, OptimizerKind, PreconditionerSpec, keys};
use crate::op::full;
use crate::op::scratch::Device;
use crate::tensor::{Context, Shape, Tensor};
use crate::trace::{Category, Event, Trace};

#[derive(Deserialize)]
struct Case {
    optimizer: OptimizerKind,
    /// Sizes, dtype, whether it has a gradient.
    parameters: Vec<(Vec<u64>, String, bool)>,
    #[serde(default)]
    optim_args: String,
    #[serde(default)]
    clip: bool,
    #[serde(default)]
    scaler: bool,
    /// Whether `weight_decay` is above 0.
    #[serde(default)]
    decay: bool,
    #[serde(default = "two")]
    steps: u64,
    events: Vec<i64>,
}

fn two() -> u64 {
    2
}

/// An allocation, by its bytes, and what was freed since the one before it; the order of frees makes no difference.
type Events = Vec<(u64, Vec<usize>)>;

fn dtype(name: &str) -> DType {
    match name {
        "fp32" => DType::Float32,
        "bf16" => DType::Bfloat16,
        "fp16" => DType::Float16,
        other => panic!("unknown dtype {other}"),
    }
}

fn context() -> Rc<Context> {
    Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 })
}

fn parameters(context: &Rc<Context>, case: &Case) -> Vec<Tensor> {
    let make = |sizes: &[u64], name: &str| Tensor::empty(context, "empty", Shape::new(sizes), dtype(name));
    case.parameters
        .iter()
        .map(|(sizes, name, has_gradient)| {
            let parameter = make(sizes, name).into_parameter();
            parameter.set_grad(has_gradient.then(|| make(sizes, name)));
            parameter
        })
        .collect()
}

/// Its steps; the trace and the number of events before them.
fn run_case(case: &Case) -> (Trace, usize) {
    let context = context();
    let parameters = parameters(&context, case);
    let loss = full(&context, "zeros.default", &[], DType::Float32);
    // Every matrix is a linear layer's weight.
    context.note_linear(0);
    let (mut low_rank, mut preconditioner) = (LowRankSpec::default(), PreconditionerSpec::default());
    if case.optimizer.preconditions() {
        preconditioner = preconditioner.with_arguments(case.optimizer, &case.optim_args).unwrap();
    } else {
        low_rank = low_rank.with_arguments(&case.optim_args).unwrap();
    }
    let decay = if case.decay { Decay::Added } else { Decay::Off };
    let told = Told { low_rank: &low_rank, preconditioner, by_trainer: false, decay };
    let mut optimizer = build_kind(case.optimizer, told, &parameters);
    // What is made with the optimizer is not recorded.
    let before = context.read_trace(|trace| trace.events.len());
    let mut scaler = case.scaler.then(|| GradScaler::new(&context));
    let gradients: Vec<Option<Tensor>> = parameters.iter().map(Tensor::grad).collect();
    for _ in 0..case.steps {
        parameters.iter().zip(&gradients).for_each(|(parameter, gradient)| parameter.set_grad(gradient.clone()));
        if let Some(scaler) = &mut scaler {
            scaler.scale(&loss);
        }
        if case.clip {
            if let Some(scaler) = &mut scaler {
                scaler.unscale();
            }
            clip_grad_norm(&parameters);
        }
        match &mut scaler {
            Some(scaler) => {
                scaler.step(optimizer.as_mut());
                scaler.update();
            }
            None => optimizer.step(),
        }
    }
    context.end();
    (context.take_trace(), before)
}

fn grouped_frees(events: impl Iterator<Item = Result<u64, usize>>) -> Events {
    let mut groups = Events::new();
    let mut frees = Vec::new();
    for event in events {
        match event {
            Ok(bytes) => groups.push((bytes, std::mem::take(&mut frees))),
            Err(freed) => frees.push(freed),
        }
    }
    groups.push((0, frees));
    groups.iter_mut().for_each(|(_, frees)| frees.sort_unstable());
    groups
}

fn predicted_events(case: &Case) -> Events {
    let (trace, before) = run_case(case);
    let first = trace.events[..before].iter().filter(|event| matches!(event, Event::Alloc(_))).count();
    grouped_frees(trace.events[before..].iter().filter_map(|event| match *event {
        Event::Alloc(id) => Some(Ok(trace.allocations[id as usize].bytes)),
        // Of what was there before, as weights that move, nothing is recorded.
        Event::Free(id) => (id as usize).checked_sub(first).map(Err),
        Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => None,
    }))
}

fn measured_events(case: &Case) -> Events {
    grouped_frees(case.events.iter().map(|&event| u64::try_from(event).map_err(|_| event.unsigned_abs() as usize - 1)))
}

fn measured_cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../../testdata/optimizers/steps.json")).unwrap()
}

#[test]
fn measured_steps_are_reproduced() {
    let mut wrong = Vec::new();
    for (at, case) in measured_cases().iter().enumerate() {
        let (predicted, measured) = (predicted_events(case), measured_events(case));
        let first = (0..predicted.len().max(measured.len())).find(|&i| predicted.get(i) != measured.get(i));
        if let Some(i) = first {
            let name = format!(
                "case {at} {:?} clip {} scaler {} decay {}",
                case.optimizer, case.clip, case.scaler, case.decay
            );
            wrong.push(format!("{name} #{i}: {:?} measured {:?}", predicted.get(i), measured.get(i)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The optimizers that a job file can name.
fn all_kinds() -> Vec<OptimizerKind> {
    let Kind::Choice(words) = &Key::find(keys::OPTIMIZER).unwrap().kind else { panic!("no choice") };
    words.iter().map(|(word, _)| serde_json::from_value((*word).into()).unwrap()).collect()
}

#[test]
fn every_optimizer_is_measured_in_both_dtypes() {
    let cases = measured_cases();
    for kind in all_kinds() {
        // bitsandbytes' RMSprop has no kernels for gradients in bf16.
        let half = if kind.takes_bf16() { "bf16" } else { "fp16" };
        for name in ["fp32", half] {
            let of = |case: &&Case| case.optimizer == kind && case.parameters.iter().all(|(_, dtype, _)| dtype == name);
            assert!(cases.iter().any(|case| of(&case)), "{kind:?} {name}");
        }
    }
}

/// Bytes of state of a matrix of 1000 x 1000 in bf16.
const STATES: &[(OptimizerKind, u64)] = &[
    (OptimizerKind::Adamw, 4_000_000),
    (OptimizerKind::AdamwFused, 4_000_004),
    (OptimizerKind::AdamwForloop, 4_000_000),
    (OptimizerKind::Adam, 4_000_000),
    (OptimizerKind::Sgd, 0),
    (OptimizerKind::SgdMomentum, 2_000_000),
    (OptimizerKind::Adafactor, 4_000),
    (OptimizerKind::Adamw8bit, 2_000_000 + 2 * 3907 * 4 + 2048),
    (OptimizerKind::PagedAdamw8bit, 2 * 3907 * 4 + 2048),
    (OptimizerKind::PagedAdamw32bit, 0),
    // A million is no multiple of a block: moments are kept whole.
    (OptimizerKind::AdamwTorch8bit, 4_000_000),
    (OptimizerKind::AdamwTorch4bit, 4_000_000),
    (OptimizerKind::AoAdamw4bit, 4_000_000),
    (OptimizerKind::Lion, 2_000_000),
    (OptimizerKind::ScheduleFreeAdamw, 4_000_000),
    (OptimizerKind::AdamAtan2, 4_000_004),
    (OptimizerKind::Muon, 2_000_000),
    // 128 x 1000 of the projection and of each moment, in bf16; APOLLO's norm, anew in each of two steps.
    // Both moments, and of each side the statistics and their eigenvectors.
    (OptimizerKind::Soap, 12_000_000),
    // Of each side the preconditioner, its root and an identity matrix in fp32, which goes; the direction, anew in each of two steps.
    (OptimizerKind::Shampoo, 8_000_000 + 8_000_000 + 4_000_000),
    (OptimizerKind::GaloreAdamw, 3 * 128 * 1000 * 2),
    (OptimizerKind::ApolloAdamw, 3 * 128 * 1000 * 2 + 2 * 2),
    // The root mean square of the weights is a number, anew in each step.
    (OptimizerKind::TransformersAdafactor, 2 * 1000 * 4 + 2 * 4),
    (OptimizerKind::Rmsprop, 2_000_000),
    (OptimizerKind::Adagrad, 2_000_000),
    (OptimizerKind::Lion8bit, 1_000_000 + 3907 * 4 + 1024),
    (OptimizerKind::Lion32bit, 4_000_000),
    (OptimizerKind::PagedLion8bit, 3907 * 4 + 1024),
    (OptimizerKind::PagedLion32bit, 0),
    (OptimizerKind::Ademamix, 12_000_000),
    (OptimizerKind::Ademamix8bit, 3_000_000 + 3 * 3907 * 4 + 2048),
    (OptimizerKind::PagedAdemamix32bit, 0),
    (OptimizerKind::PagedAdemamix8bit, 3 * 3907 * 4 + 2048),
    (OptimizerKind::RmspropBnb8bit, 1_000_000 + 3907 * 4 + 1024),
    (OptimizerKind::RmspropBnb32bit, 4_000_000),
    (OptimizerKind::ScheduleFreeRadam, 4_000_000),
    (OptimizerKind::ScheduleFreeSgd, 2_000_000),
    (OptimizerKind::StableAdamw, 6_000_000 + 2 + 4),
    (OptimizerKind::Grokadamw, 0),
    (OptimizerKind::Lomo, 0),
    (OptimizerKind::Adalomo, 2 * 1000 * 4),
    (OptimizerKind::GaloreAdamw8bit, 128 * 1000 * 2 + 2 * 128 * 1000 + 2 * 500 * 4 + 2048 + 4),
    // Of an fp32 gradient all singular vectors of a side are kept.
    (OptimizerKind::GaloreAdafactor, 1000 * 1000 * 4 + (128 + 1000) * 4 + 2 * 4),
];

#[test]
fn state_per_parameter() {
    for kind in all_kinds() {
        assert!(STATES.iter().any(|(known, _)| *known == kind), "{kind:?} has no bytes of state here");
    }
    for (optimizer, bytes) in STATES {
        let parameters = vec![(vec![1000, 1000], "bf16".to_owned(), true)];
        let (optim_args, events) = (String::new(), Vec::new());
        let case = Case {
            optimizer: *optimizer,
            parameters,
            optim_args,
            clip: false,
            scaler: false,
            decay: false,
            steps: 2,
            events,
        };
        let (trace, _) = run_case(&case);
        let state = trace.allocations.iter().filter(|allocation| allocation.category == Category::OptimizerState);
        assert_eq!(state.map(|allocation| allocation.bytes).sum::<u64>(), *bytes, "{optimizer:?}");
    }
}
