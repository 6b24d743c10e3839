//! What an optimizer keeps for its parameters: made when a step first finds a gradient, as PyTorch does.

use crate::tensor::Tensor;
use crate::trace::Category;

/// Parameters, and the state of those that have been stepped.
pub(super) struct States<S> {
    parameters: Vec<Tensor>,
    states: Vec<Option<S>>,
}

/// A parameter with a gradient, and its state.
pub(super) struct Active<'a, S> {
    pub parameter: &'a Tensor,
    pub gradient: Tensor,
    pub state: &'a S,
}

impl<S> States<S> {
    pub(super) fn new(parameters: Vec<Tensor>) -> Self {
        let states = parameters.iter().map(|_| None).collect();
        Self { parameters, states }
    }

    /// Makes the missing state of every parameter that has a gradient, given the parameter and its gradient.
    pub(super) fn initialize(&mut self, make: impl Fn(&Tensor, &Tensor) -> S) {
        for at in 0..self.parameters.len() {
            self.initialize_one(at, &make);
        }
    }

    /// Makes the state of one parameter, if it has a gradient and no state yet.
    pub(super) fn initialize_one(&mut self, at: usize, make: impl Fn(&Tensor, &Tensor) -> S) {
        let (Some(parameter), Some(state)) = (self.parameters.get(at), self.states.get_mut(at)) else { return };
        if let (Some(gradient), None) = (parameter.grad(), &state) {
            let context = parameter.context();
            let _module = context.enter_module(parameter.module());
            let _category = context.enter_category(Category::OptimizerState);
            *state = Some(make(parameter, &gradient));
        }
    }

    pub(super) fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// The parameter at a position, if it has a gradient and state.
    pub(super) fn active_at(&self, at: usize) -> Option<Active<'_, S>> {
        let parameter = self.parameters.get(at)?;
        Some(Active { parameter, gradient: parameter.grad()?, state: self.states.get(at)?.as_ref()? })
    }

    /// The parameters that have a gradient and state, with the state.
    pub(super) fn stepped(&self) -> impl Iterator<Item = (&Tensor, &S)> {
        let both = self.parameters.iter().zip(&self.states).filter(|(parameter, _)| parameter.has_grad());
        both.filter_map(|(parameter, state)| Some((parameter, state.as_ref()?)))
    }

    /// The parameters that have a gradient and state, in order.
    pub(super) fn active(&self) -> impl Iterator<Item = Active<'_, S>> {
        (0..self.parameters.len()).filter_map(|at| self.active_at(at))
    }
}

/// `zeros_like(tensor)`
pub(super) fn zeros_like(tensor: &Tensor) -> Tensor {
    tensor.unary("zeros_like.default", tensor.dtype())
}
