//! GaLore's AdamW8bit (galore_torch 1.0, adamw8bit.py, over bitsandbytes 0.50): a weight's memory is a projected gradient's while bitsandbytes
//! steps in it, and the weight goes on in a copy that was made before.

use crate::dtype::DType;
use crate::job::LowRankSpec;
use crate::op::full;
use crate::tensor::Tensor;
use crate::trace::Category;

use super::bitsandbytes::{Moments, Storage};
use super::galore::Galore;
use super::low_rank::{Projected, Projection, Stepped, others_first};
use super::{Optimizer, Traffic};

const STORAGE: Storage = Storage { moments: Moments::Two, eight_bits: true, paged: false };

#[derive(Default)]
struct State {
    projected: Projected,
    moments: Option<Vec<Tensor>>,
}

pub(super) struct GaloreAdamW8bit {
    parameters: Vec<(Tensor, State)>,
    /// Those from here on are projected.
    first_projected: usize,
    spec: LowRankSpec,
    tables: Option<Vec<Tensor>>,
}

impl GaloreAdamW8bit {
    pub(super) fn new(parameters: Vec<Tensor>, spec: &LowRankSpec) -> Self {
        let (parameters, first_projected) = others_first(parameters, spec);
        let parameters = parameters.into_iter().map(|parameter| (parameter, State::default())).collect();
        Self { parameters, first_projected, spec: spec.clone(), tables: None }
    }
}

impl Optimizer for GaloreAdamW8bit {
    fn step(&mut self) {
        let mut gradient = None;
        for (at, (parameter, state)) in self.parameters.iter_mut().enumerate() {
            let Some(whole) = parameter.grad() else { continue };
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            if at < self.first_projected {
                state.moments.get_or_insert_with(|| init_state(&mut self.tables, parameter));
                take_norm(parameter);
                continue;
            }
            let projected = &*gradient.insert(state.projected.project(&whole, &self.spec, &Galore));
            let saved = parameter.unary("clone.default", parameter.dtype());
            saved.set_category(Category::Parameter);
            let low_rank = projected.unary("clone.default", projected.dtype());
            parameter.set_data(&saved);
            parameter.set_grad(Some(projected.clone()));
            state.moments.get_or_insert_with(|| init_state(&mut self.tables, &low_rank));
            take_norm(&low_rank);
            if let Some(matrix) = state.projected.matrix() {
                let (mut direction, norm) = (Some(low_rank), &mut None);
                Galore.update(Stepped { gradient: &whole, projected, matrix, direction: &mut direction, norm });
            }
        }
    }

    fn traffic(&self) -> Traffic {
        // The copy's add_ 3, decay 2; moments are small.
        Traffic::of_passes(5)
    }
}

/// What limits an update in 32 bits: `torch.norm(p.data.float())` (bitsandbytes/functional.py, `optimizer_update_32bit`).
fn take_norm(stepped: &Tensor) {
    if STORAGE.quantizes(stepped) {
        return;
    }
    let in_fp32 = stepped.dtype().is_half().then(|| stepped.unary("_to_copy.default", DType::Float32));
    drop(in_fp32.as_ref().unwrap_or(stepped).norm());
}

/// `init_state`; arguments that were for older versions of bitsandbytes limit updates by a norm, for which a number is kept.
fn init_state(tables: &mut Option<Vec<Tensor>>, stepped: &Tensor) -> Vec<Tensor> {
    let context = stepped.context();
    let _category = context.enter_category(Category::OptimizerState);
    if STORAGE.quantizes(stepped) {
        tables.get_or_insert_with(|| STORAGE.tables(context));
    }
    let mut kept = STORAGE.moments_of(stepped);
    kept.push(full(context, "zeros.default", &[1], DType::Float32));
    kept
}
