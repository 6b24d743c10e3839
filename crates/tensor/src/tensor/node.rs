//! Nodes of the tape and the edges between them: where a gradient goes, and what waits there. Nothing here runs.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use smallvec::SmallVec;

use super::object::Detached;
use super::shape::Shape;
use crate::dtype::DType;

/// Gradients that a node hands to its inputs, in the order of the forward op's inputs; `None` is undefined.
pub type Gradients = SmallVec<[Option<Detached>; 3]>;

/// What a node does in the backward pass.
pub(super) trait Backward {
    /// The gradients of the forward op's inputs, from those of its outputs.
    fn apply(&self, gradients: &mut [Option<Detached>]) -> Gradients;

    /// Lets go of what was saved for it.
    fn release(&self);
}

/// The sequence number of `AccumulateGrad`: it runs as soon as it can.
pub(super) const AT_ONCE: u32 = u32::MAX;

/// The names of the nodes of a chain, behind one pointer.
pub type Delivered = &'static &'static [&'static str];

/// A node that stands for itself alone.
pub(super) const NO_CHAIN: Delivered = &(&[] as &[&str]);

/// The ends of the tape behind a node.
pub(super) type Leaves = Rc<RefCell<Vec<Rc<Node>>>>;

/// What few nodes have.
#[derive(Default)]
pub(super) struct Rare {
    /// The outputs after the first.
    pub more_outputs: Box<[Output]>,
    /// Runs when the gradients of the outputs are there, before the node does.
    pub pre_hook: Cell<Option<Box<dyn Fn()>>>,
    /// Of a node that somebody holds when it has run: what it keeps in the place of its edges.
    pub leaves: Cell<Option<Leaves>>,
}

/// One entry of the tape. A loop over tokens leaves a million of them, so that every eight bytes count.
pub(super) struct Node<B: ?Sized = dyn Backward> {
    head: NodeHead,
    pub backward: B,
}

/// All of a node but its formula, which is of another type in every op: what is compiled for the head is compiled once.
pub(super) struct NodeHead {
    pub name: Option<&'static str>,
    pub module: u32,
    /// Whether it runs on the device that is simulated.
    pub is_here: bool,
    /// The CUDA stream that its op ran on: its backward runs there, and gradients that meet at it are added there.
    pub stream: u8,
    /// Later nodes run first. Four billion are far more than a simulation records.
    pub sequence: u32,
    /// Gone when the node has run, except to leaves: no other pass runs through nodes whose saved tensors are released.
    pub edges: Cell<Edges>,
    /// Most nodes have one.
    pub output: Output,
    pub rare: OnceCell<Box<Rare>>,
    /// A node that stands for a chain of nodes delivers each gradient as a node of its own would, of the name that is
    /// given here: between two, what became ready at a leaf runs.
    pub deliver: Delivered,
    pub dependencies: Cell<u32>,
    pub discovered: Cell<bool>,
    /// Of the nodes that led to it, those that keep the leaves behind it.
    pub held_by: Cell<u8>,
}

impl<B> Node<B> {
    pub fn new(head: NodeHead, backward: B) -> Self {
        Self { head, backward }
    }
}

impl<B: ?Sized> Deref for Node<B> {
    type Target = NodeHead;

    fn deref(&self) -> &NodeHead {
        &self.head
    }
}

impl NodeHead {
    /// In the order in which the op returned them.
    pub fn outputs(&self) -> impl Iterator<Item = &Output> {
        [&self.output].into_iter().chain(self.more_outputs())
    }

    pub fn more_outputs(&self) -> &[Output] {
        self.rare.get().map_or(&[], |rare| &rare.more_outputs)
    }

    /// Puts a hook in the place of what is there, which it gets.
    pub fn wrap_hook<H: Fn() + 'static>(&self, wrap: impl FnOnce(Option<Box<dyn Fn()>>) -> H) {
        let slot = &self.rare.get_or_init(Box::default).pre_hook;
        let earlier = slot.take();
        slot.set(Some(Box::new(wrap(earlier))));
    }

    pub fn take_hook(&self) -> Option<Box<dyn Fn()>> {
        self.rare.get()?.pre_hook.take()
    }
}

impl Drop for NodeHead {
    fn drop(&mut self) {
        let last = |edge: &Edge| Rc::strong_count(&edge.node) == 1;
        self.edges.get_mut().drain().rev().for_each(|edge| if last(&edge) { take_apart(edge) } else { drop(edge) });
    }
}

/// Drops an edge. A long chain of nodes goes in a loop: recursion would overflow the stack.
fn take_apart(edge: Edge) {
    let mut rest: SmallVec<[Edge; 4]> = SmallVec::new();
    let mut next = Some(edge);
    while let Some(mut edge) = next {
        next = Rc::get_mut(&mut edge.node).and_then(|node| {
            let mut edges = node.head.edges.get_mut().drain();
            let last = edges.next_back();
            edges.for_each(|edge| rest.push(edge));
            last
        });
        next = next.or_else(|| rest.pop());
    }
}

/// Where a gradient goes: a node and which of its forward outputs the gradient belongs to.
pub(super) struct Edge {
    pub node: Rc<Node>,
    pub(super) output: u32,
}

impl Edge {
    pub fn output(&self) -> &Output {
        let more = self.output.checked_sub(1).and_then(|at| self.node.more_outputs().get(at as usize));
        more.unwrap_or(&self.node.output)
    }
}

/// A node's edges in the order of the forward op's inputs.
///
/// An array, not a vector: most nodes need no allocation for them.
#[derive(Default)]
pub(super) enum Edges {
    #[default]
    None,
    One([Option<Edge>; 1]),
    Two([Option<Edge>; 2]),
    Many(Box<[Option<Edge>]>),
}

impl Edges {
    /// Those that there are, taken out.
    pub fn drain(&mut self) -> impl DoubleEndedIterator<Item = Edge> {
        let edges = match self {
            Self::None => &mut [],
            Self::One(edges) => &mut edges[..],
            Self::Two(edges) => edges,
            Self::Many(edges) => edges,
        };
        edges.iter_mut().filter_map(Option::take)
    }

    pub fn lead_to_leaves_only(&self) -> bool {
        self.iter().flatten().all(|edge| edge.node.sequence == AT_ONCE)
    }
}

impl Deref for Edges {
    type Target = [Option<Edge>];

    fn deref(&self) -> &[Option<Edge>] {
        match self {
            Self::None => &[],
            Self::One(edges) => edges,
            Self::Two(edges) => edges,
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
    pub fn new(sizes: Shape, dtype: DType) -> Self {
        Self { sizes, dtype, gradient: Cell::new(None) }
    }

    /// Whether a gradient looks as it must.
    pub fn fits(&self, gradient: &Detached) -> bool {
        gradient.looks_like(&self.sizes, self.dtype)
    }

    /// The gradient that has arrived.
    pub fn take_gradient(&self) -> Option<Detached> {
        self.gradient.take()
    }

    pub fn set_gradient(&self, gradient: Detached) {
        self.gradient.set(Some(gradient));
    }
}
