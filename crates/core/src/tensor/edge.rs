//! Edges of the tape: where a gradient goes, and how gradients meet there.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use super::autograd::{Node, edge_of};
use super::handle::{Detached, Tensor};
use super::shape::Shape;
use crate::dtype::DType;

/// Where a gradient goes: a node and which of its forward outputs the gradient belongs to.
pub(super) struct Edge {
    pub node: Rc<Node>,
    pub(super) output: u32,
}

impl Edge {
    pub fn output(&self) -> &Output {
        match &self.node.more_outputs {
            Some(more) if self.output > 0 => &more[self.output as usize - 1],
            _ => &self.node.output,
        }
    }
}

/// A node's edges in the order of the forward op's inputs.
///
/// An array, not a vector that may grow: the compiler then writes a node where it will lie, instead of moving it there.
pub(super) enum Edges {
    None,
    One([Option<Edge>; 1]),
    Two([Option<Edge>; 2]),
    Three([Option<Edge>; 3]),
    Many(Box<[Option<Edge>]>),
}

impl Edges {
    #[inline]
    pub fn to(inputs: &[&Tensor]) -> Self {
        match inputs {
            [] => Self::None,
            [a] => Self::One([edge_of(a)]),
            [a, b] => Self::Two([edge_of(a), edge_of(b)]),
            [a, b, c] => Self::Three([edge_of(a), edge_of(b), edge_of(c)]),
            many => Self::Many(many.iter().map(|input| edge_of(input)).collect()),
        }
    }

    pub fn take(&mut self) -> impl DoubleEndedIterator<Item = Edge> {
        let edges = match self {
            Self::None => &mut [],
            Self::One(edges) => &mut edges[..],
            Self::Two(edges) => edges,
            Self::Three(edges) => edges,
            Self::Many(edges) => edges,
        };
        edges.iter_mut().filter_map(Option::take)
    }
}

impl Deref for Edges {
    type Target = [Option<Edge>];

    fn deref(&self) -> &[Option<Edge>] {
        match self {
            Self::None => &[],
            Self::One(edges) => edges,
            Self::Two(edges) => edges,
            Self::Three(edges) => edges,
            Self::Many(edges) => edges,
        }
    }
}

/// An output of the forward op: what its gradient must look like, and the gradient that has arrived.
pub(super) struct Output {
    pub sizes: Shape,
    pub dtype: DType,
    gradient: Cell<Option<Detached>>,
}

impl Output {
    pub fn new(tensor: &Tensor) -> Self {
        Self { sizes: *tensor.sizes(), dtype: tensor.dtype(), gradient: Cell::new(None) }
    }

    /// Whether a gradient looks as it must.
    pub fn fits(&self, gradient: &Detached) -> bool {
        gradient.looks_like(&self.sizes, self.dtype)
    }

    /// Gradients of the same output meet by addition.
    pub fn deliver(&self, gradient: Detached) {
        let sum = match self.gradient.take() {
            None => gradient,
            Some(old) => add_up(old.into(), &gradient.into()).into(),
        };
        self.gradient.set(Some(sum));
    }

    /// The gradient that has arrived.
    pub fn take(&self) -> Option<Tensor> {
        self.gradient.take().map(Tensor::from)
    }
}

/// Adds in place where nobody would notice.
fn add_up(old: Tensor, gradient: &Tensor) -> Tensor {
    if !old.can_accumulate_in_place() {
        return old.add(gradient);
    }
    old.context().count_bytes(old.bytes().saturating_mul(IN_PLACE_ADDITION));
    old
}

/// An addition in place reads both operands and writes one.
pub(super) const IN_PLACE_ADDITION: u64 = 3;
