//! SOAP (pytorch_optimizer 4.1, soap.py): Adam in the eigenvectors of Shampoo's preconditioners, a square matrix for each dimension that is not
//! too large. The first step makes them and moves no weight; every so many steps they are turned by an orthogonal factor. It goes from
//! parameter to parameter, and its variables stay until the next one's replace them.

use crate::dtype::DType;
use crate::job::PreconditionerSpec;
use crate::op::{UNTOLD, empty, eye};
use crate::tensor::Tensor;
use crate::trace::Category;

use super::state::zeros_like;
use super::{Optimizer, Traffic};

/// What is kept of a parameter: lists have a place for each dimension, which is empty where it is not preconditioned.
struct State {
    average: Tensor,
    squares: Tensor,
    statistics: Vec<Option<Tensor>>,
    bases: Vec<Option<Tensor>>,
}

/// Python variables of the step's loop.
#[derive(Default)]
struct Variables {
    projected: Option<Tensor>,
    squares: Option<Tensor>,
    denominators: Option<Tensor>,
    average: Option<Tensor>,
    update: Option<Tensor>,
}

pub(super) struct Soap {
    parameters: Vec<(Tensor, Option<State>)>,
    spec: PreconditionerSpec,
    /// The group's count of steps.
    steps: u64,
}

impl Soap {
    pub(super) fn new(parameters: Vec<Tensor>, spec: PreconditionerSpec) -> Self {
        Self { parameters: parameters.into_iter().map(|parameter| (parameter, None)).collect(), spec, steps: 0 }
    }
}

impl Optimizer for Soap {
    fn step(&mut self) {
        for (parameter, state) in &mut self.parameters {
            let (Some(gradient), None) = (parameter.grad(), &state) else { continue };
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            *state = Some(State::new(&gradient, &self.spec));
        }
        self.steps += 1;
        if self.steps == 1 {
            return;
        }
        let turns = (self.steps - 1).is_multiple_of(self.spec.frequency);
        let mut variables = Variables::default();
        for (parameter, state) in &mut self.parameters {
            let (Some(gradient), Some(state)) = (parameter.grad(), state) else { continue };
            let _module = parameter.context().enter_module(parameter.module());
            variables.update(&gradient, state);
            state.precondition(&gradient, turns);
        }
    }

    fn traffic(&self) -> Traffic {
        // Two averages 3 each, the root's add_ 2, the weights' add_ 3, decay 2.
        Traffic::of_passes(13)
    }
}

impl Variables {
    /// The gradient's direction in the preconditioners' eigenvectors, and back.
    fn update(&mut self, gradient: &Tensor, state: &State) {
        self.projected = Some(project(gradient.clone(), &state.bases, false));
        let squares = &*self.squares.insert(state.squares.clone());
        drop(self.projected.as_ref().map(|projected| projected.unary("square.default", projected.dtype())));
        self.denominators = Some(squares.unary("sqrt.default", squares.dtype()));
        self.average = Some(project(state.average.clone(), &state.bases, false));
        let (Some(average), Some(denominators)) = (&self.average, &self.denominators) else { return };
        self.update = Some(project(average.div_by(denominators), &state.bases, true));
    }
}

impl State {
    /// `init_group`: the statistics of the first gradient, and their eigenvectors.
    fn new(gradient: &Tensor, spec: &PreconditionerSpec) -> Self {
        let is_tensor = gradient.sizes().len() != 1;
        let [average, squares] = [zeros_like(gradient), zeros_like(gradient)];
        let square = |&size: &u64| {
            let has_one = is_tensor && size <= spec.max_dimension;
            has_one.then(|| zeros(gradient, size))
        };
        let statistics: Vec<_> = gradient.sizes().iter().map(square).collect();
        let mut state = Self { average, squares, statistics, bases: Vec::new() };
        let last = state.add_statistics(gradient);
        state.bases = eigenvectors(&state.statistics);
        drop(last);
        state.mark();
        state
    }

    /// `update_pre_conditioner`
    fn precondition(&mut self, gradient: &Tensor, turns: bool) {
        let last = self.add_statistics(gradient);
        if turns {
            self.turn();
            self.mark();
        }
        drop(last);
    }

    /// All of it is the optimizer's.
    fn mark(&self) {
        let matrices = self.statistics.iter().chain(&self.bases).flatten();
        matrices.chain([&self.average, &self.squares]).for_each(|tensor| tensor.set_category(Category::OptimizerState));
    }

    /// Adds what a gradient says of each dimension; the last of the products stays.
    fn add_statistics(&self, gradient: &Tensor) -> Option<Tensor> {
        let mut product = None;
        for (at, statistic) in self.statistics.iter().enumerate() {
            if let Some(statistic) = statistic {
                product = Some(gradient.gram_along(at));
                gradient.context().count_bytes(statistic.bytes().saturating_mul(3));
            }
        }
        product
    }

    /// `get_orthogonal_matrix_qr`: a step of the power iteration turns each basis, and the squares are put in its order.
    fn turn(&mut self) {
        let (mut turned, mut ordered) = (Vec::new(), self.squares.clone());
        let mut loop_of = Turn::default();
        for pair in self.statistics.iter().zip(&self.bases) {
            turned.push(match pair {
                (Some(statistic), Some(basis)) => Some(loop_of.turn(statistic, basis, &mut ordered)),
                _ => None,
            });
        }
        self.squares = ordered;
        drop(loop_of);
        self.bases = turned;
    }
}

/// Python variables of a loop over dimensions.
#[derive(Default)]
struct Turn {
    product: Option<Tensor>,
    values: Option<Tensor>,
    order: Option<Tensor>,
    iterated: Option<Tensor>,
    triangular: Option<Tensor>,
}

impl Turn {
    fn turn(&mut self, statistic: &Tensor, basis: &Tensor, squares: &mut Tensor) -> Tensor {
        let product = &*self.product.insert(statistic.mm(basis));
        self.values = Some({
            let scaled = basis.binary("mul.Tensor", product, basis.dtype());
            scaled.sum_along(0)
        });
        self.order = self.values.as_ref().map(|values| values.sort_places().1);
        *squares = selected(squares);
        let iterated = &*self.iterated.insert(selected(product));
        let wide = iterated.float();
        let [orthogonal, triangular] = wide.qr();
        drop(wide);
        self.triangular = Some(triangular);
        orthogonal.to(basis.dtype())
    }
}

/// `index_select` of as many as there are, in another order.
fn selected(tensor: &Tensor) -> Tensor {
    let selected = empty(tensor.context(), tensor.sizes(), tensor.dtype());
    tensor.context().count_bytes(tensor.bytes());
    selected
}

/// A square of zeros in a tensor's dtype.
fn zeros(like: &Tensor, size: u64) -> Tensor {
    crate::op::zeros(like.context(), &[size, size], like.dtype())
}

/// `project`: a tensor times each matrix in turn, which brings the dimensions round to their order.
fn project(mut tensor: Tensor, matrices: &[Option<Tensor>], back: bool) -> Tensor {
    for matrix in matrices {
        tensor = match matrix {
            Some(matrix) => tensor.dot_first(matrix, back),
            None => tensor.moved_last(0),
        };
    }
    tensor
}

/// `get_orthogonal_matrix`: of 16-bit matrices in fp64, for no kernel takes theirs.
fn eigenvectors(matrices: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
    let mut last_values = None;
    let mut found = |matrix: &Tensor| {
        let [values, vectors] = of_regularized(matrix.clone()).or_else(|| of_regularized(matrix.to(DType::Float64)))?;
        last_values = Some(values);
        let narrow = vectors.to(matrix.dtype());
        drop(vectors);
        Some(narrow.unary("flip.default", narrow.dtype()))
    };
    matrices.iter().map(|matrix| matrix.as_ref().and_then(&mut found)).collect()
}

/// `torch.linalg.eigh` of a matrix to whose diagonal a little is added.
fn of_regularized(matrix: Tensor) -> Option<[Tensor; 2]> {
    let scaled = {
        let ones = eye(matrix.context(), matrix.size(0), matrix.dtype());
        ones.mul_scalar(UNTOLD)
    };
    let regularized = matrix.binary("add.Tensor", &scaled, matrix.dtype());
    drop((matrix, scaled));
    regularized.eigh()
}
