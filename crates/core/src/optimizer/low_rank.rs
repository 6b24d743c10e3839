//! Adam on gradients that are projected into a low rank (galore_torch 1.0, adamw.py; apollo_torch 1.0.3, apollo.py): linear layers' moments
//! are as small as the projected gradient, those of other parameters are whole. Every so many steps a projection is made anew. It goes from
//! parameter to parameter, and its variables stay until the next one's replace them.

use crate::job::LowRankSpec;
use crate::tensor::Tensor;
use crate::trace::Category;

use super::state::zeros_like;
use super::{Optimizer, Traffic};

/// How a gradient is projected, and what becomes of the direction that Adam finds in the low rank.
pub(super) trait Projection {
    /// The matrix that projects a gradient: [rank, columns] of a tall one, else [rows, rank].
    fn orthogonal(&self, gradient: &Tensor, rank: u64) -> Tensor;

    /// The direction in the gradient's own sizes.
    fn update(&mut self, stepped: Stepped<'_>);

    /// The step is over: its variables go.
    fn end_step(&mut self) {}
}

/// A parameter's gradient, and what the step has made of it in the low rank.
pub(super) struct Stepped<'a> {
    pub gradient: &'a Tensor,
    pub projected: &'a Tensor,
    pub matrix: &'a Tensor,
    /// The variable `norm_grad`.
    pub direction: &'a mut Option<Tensor>,
    /// The norm of the parameter's last update, where one is kept (APOLLO).
    pub norm: &'a mut Option<Tensor>,
}

/// What a gradient is in the low rank.
fn project(gradient: &Tensor, matrix: &Tensor) -> Tensor {
    if is_tall(gradient) { gradient.mm(&matrix.t()) } else { matrix.t().mm(gradient) }
}

/// Whether a gradient has at least as many rows as columns, whose columns are then projected (`proj_type=std`).
pub(super) fn is_tall(gradient: &Tensor) -> bool {
    gradient.size(0) >= gradient.size(1)
}

/// What is kept to project a parameter's gradients.
#[derive(Default)]
pub(super) struct Projected {
    steps: u64,
    matrix: Option<Tensor>,
}

impl Projected {
    pub(super) fn matrix(&self) -> Option<&Tensor> {
        self.matrix.as_ref()
    }

    /// A gradient in the low rank; every so many steps the projection is made anew.
    pub(super) fn project(&mut self, gradient: &Tensor, spec: &LowRankSpec, projection: &impl Projection) -> Tensor {
        if self.matrix.is_none() || self.steps.is_multiple_of(spec.update_proj_gap) {
            let made = projection.orthogonal(gradient, spec.rank);
            made.set_category(Category::OptimizerState);
            self.matrix = Some(made);
        }
        self.steps += 1;
        self.matrix.as_ref().map_or_else(|| gradient.clone(), |matrix| project(gradient, matrix))
    }
}

/// What is kept of a parameter.
#[derive(Default)]
struct State {
    projected: Projected,
    moments: Option<[Tensor; 2]>,
    norm: Option<Tensor>,
}

pub(super) struct LowRankAdamW<P> {
    /// Those that are not projected come first, as transformers groups them.
    parameters: Vec<(Tensor, State)>,
    first_projected: usize,
    spec: LowRankSpec,
    projection: P,
}

impl<P: Projection> LowRankAdamW<P> {
    pub(super) fn new(parameters: Vec<Tensor>, spec: &LowRankSpec, projection: P) -> Self {
        let (parameters, first_projected) = others_first(parameters, spec);
        let parameters = parameters.into_iter().map(|parameter| (parameter, State::default())).collect();
        Self { parameters, first_projected, spec: spec.clone(), projection }
    }
}

/// Parameters in the order of their groups, and where those begin that are projected.
pub(super) fn others_first(parameters: Vec<Tensor>, spec: &LowRankSpec) -> (Vec<Tensor>, usize) {
    let (projected, mut all): (Vec<_>, Vec<_>) = parameters.into_iter().partition(|one| is_projected(one, spec));
    let first_projected = all.len();
    all.extend(projected);
    (all, first_projected)
}

/// Whether a parameter is the weight of a linear layer that is named (`_setup_low_rank_optimizer`, transformers 5.17).
fn is_projected(parameter: &Tensor, spec: &LowRankSpec) -> bool {
    let (context, module) = (parameter.context(), parameter.module());
    parameter.sizes().len() == 2
        && context.is_linear(module)
        && context.read_trace(|trace| trace.modules.get(module as usize).is_some_and(|path| spec.names(path)))
}

impl<P: Projection> Optimizer for LowRankAdamW<P> {
    fn step(&mut self) {
        let (mut gradient, mut root, mut direction): (_, Option<Tensor>, Option<Tensor>) = (None, None, None);
        for (at, (parameter, state)) in self.parameters.iter_mut().enumerate() {
            let Some(whole) = parameter.grad() else { continue };
            let is_projected = at >= self.first_projected;
            gradient = Some(whole.clone());
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            if is_projected {
                gradient = Some(state.projected.project(&whole, &self.spec, &self.projection));
            }
            let Some(stepped) = &gradient else { continue };
            let [_, squares] = state.moments.get_or_insert_with(|| {
                let _category = context.enter_category(Category::OptimizerState);
                [zeros_like(stepped), zeros_like(stepped)]
            });
            let denominators = squares.unary("sqrt.default", squares.dtype());
            let denominators = &*root.insert(denominators);
            direction = Some(squares.binary("div.Tensor", denominators, squares.dtype()));
            if let (true, Some(matrix)) = (is_projected, state.projected.matrix()) {
                let (direction, norm) = (&mut direction, &mut state.norm);
                self.projection.update(Stepped { gradient: &whole, projected: stepped, matrix, direction, norm });
            }
        }
        drop((gradient, root, direction));
        self.projection.end_step();
    }

    fn traffic(&self) -> Traffic {
        // The update added to the parameter 3, decay 2; moments are small.
        Traffic::of_passes(5)
    }
}
