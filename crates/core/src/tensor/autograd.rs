//! The tape: nodes that ops leave behind in the forward pass, and the engine that runs them.
//!
//! Mirrors torch/csrc/autograd (PyTorch 2.11): `engine.cpp` for the order and for when things die, `input_buffer.cpp`
//! and `accumulate_grad.h` for how gradients meet.

use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::rc::Rc;

use smallvec::SmallVec;

use super::checkpoint::Holder;
use super::context::{Context, Thread};
use super::layout::Shape;
use super::tensor::{History, Leaf, Tensor};
use crate::dtype::DType;
use crate::trace::Category;

/// Gradients that a node hands to its inputs, in the order of the forward op's inputs; `None` is undefined.
pub(crate) type Gradients = SmallVec<[Option<Tensor>; 3]>;

/// [`Gradients`] from a list of tensors and options.
macro_rules! gradients {
    ($($gradient:expr),* $(,)?) => { smallvec::smallvec![$(Option::from($gradient)),*] };
}
pub(crate) use gradients;

type BackwardFn = Box<dyn Fn(&[Option<Tensor>]) -> Gradients>;

/// Where a gradient goes: a node and which of its forward outputs the gradient belongs to.
#[derive(Clone)]
pub(super) struct Edge {
    pub node: Rc<Node>,
    pub output: u8,
}

/// What a gradient must look like: the forward output's sizes and dtype.
#[derive(Clone, Copy)]
struct Metadata {
    sizes: Shape,
    dtype: DType,
}

enum Apply {
    Backward(RefCell<Option<BackwardFn>>),
    /// Holds the leaf, as PyTorch's does: a graph keeps its leaves alive.
    AccumulateGrad(Tensor),
}

/// One entry of the tape.
pub(super) struct Node {
    name: &'static str,
    module: u32,
    /// Later nodes run first; `AccumulateGrad` runs as soon as it can.
    sequence: u64,
    edges: SmallVec<[Option<Edge>; 3]>,
    outputs: SmallVec<[Metadata; 1]>,
    apply: Apply,
    /// Gradients that have arrived, one slot per forward output.
    buffer: RefCell<SmallVec<[Option<Tensor>; 1]>>,
    dependencies: Cell<u32>,
    discovered: Cell<bool>,
}

impl Node {
    fn accumulate_grad(leaf: &Tensor) -> Self {
        Self {
            name: "AccumulateGrad",
            module: 0,
            sequence: u64::MAX,
            edges: SmallVec::new(),
            outputs: smallvec::smallvec![Metadata { sizes: *leaf.sizes(), dtype: leaf.dtype() }],
            apply: Apply::AccumulateGrad(leaf.clone()),
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
            discovered: Cell::new(false),
        }
    }
}

/// Long chains of nodes are taken apart in a loop: recursion would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut pending: Vec<Edge> = self.edges.drain(..).flatten().collect();
        while let Some(edge) = pending.pop() {
            if let Ok(mut node) = Rc::try_unwrap(edge.node) {
                pending.extend(node.edges.drain(..).flatten());
            }
        }
    }
}

/// A tensor that a node keeps for its backward, as itself or through checkpointing's hooks.
pub(crate) enum Saved {
    Tensor(Tensor),
    Packed(Rc<Holder>),
}

impl Saved {
    /// The tensor; recomputes the checkpointed region when that is where it comes from.
    pub(crate) fn unpack(&self) -> Tensor {
        match self {
            Self::Tensor(tensor) => tensor.clone(),
            Self::Packed(holder) => holder.unpack(),
        }
    }
}

/// Collects what an op's node needs while the op runs; does nothing when no input requires grad.
pub(crate) struct NodeBuilder {
    active: bool,
    name: &'static str,
    module: u32,
    sequence: u64,
    edges: SmallVec<[Option<Edge>; 3]>,
}

impl NodeBuilder {
    /// Begins the node of an op over `inputs`, in the order of the gradients that its backward returns.
    pub(crate) fn new(name: &'static str, inputs: &[&Tensor]) -> Self {
        let context = inputs.first().map(|input| input.context());
        let active = context.is_some_and(|context| context.grad_enabled.get())
            && inputs.iter().any(|input| input.requires_grad());
        let Some(context) = context.filter(|_| active) else {
            return Self { active: false, name, module: 0, sequence: 0, edges: SmallVec::new() };
        };
        let sequence = context.next_sequence.get();
        context.next_sequence.set(sequence + 1);
        let edges = inputs.iter().map(|input| edge_of(input)).collect();
        Self { active: true, name, module: context.current_module(), sequence, edges }
    }

    /// Whether the gradient of input `at` is asked for.
    pub(crate) fn needs(&self, at: usize) -> bool {
        self.edges.get(at).is_some_and(Option::is_some)
    }

    /// Saves an input, a view of one, or an output for backward.
    pub(crate) fn save(&self, tensor: &Tensor) -> Saved {
        if !self.active {
            return Saved::Tensor(tensor.without_history());
        }
        match Holder::pack(tensor) {
            Some(saved) => saved,
            None => Saved::Tensor(tensor.without_history()),
        }
    }

    /// Saves the input for the gradient of another one, when that is asked for.
    pub(crate) fn save_for(&self, at: usize, tensor: &Tensor) -> Option<Saved> {
        self.needs(at).then(|| self.save(tensor))
    }

    /// Ends an op with one output, a fresh tensor.
    pub(crate) fn finish(self, output: Tensor, backward: impl Fn(&Tensor) -> Gradients + 'static) -> Tensor {
        if !self.active {
            return output;
        }
        let apply = move |grads: &[Option<Tensor>]| match grads.first() {
            Some(Some(grad)) => backward(grad),
            _ => Gradients::new(),
        };
        let metadata = smallvec::smallvec![Metadata { sizes: *output.sizes(), dtype: output.dtype() }];
        let node = self.into_node(metadata, Box::new(apply));
        output.with_history(node, 0)
    }

    /// Ends an op with several differentiable outputs, fresh tensors or views.
    pub(crate) fn finish_many<const N: usize>(
        self,
        outputs: [Tensor; N],
        backward: impl Fn(&[Option<Tensor>]) -> Gradients + 'static,
    ) -> [Tensor; N] {
        if !self.active {
            return outputs;
        }
        let metadata =
            outputs.iter().map(|output| Metadata { sizes: *output.sizes(), dtype: output.dtype() }).collect();
        let node = self.into_node(metadata, Box::new(backward));
        let mut at = 0;
        outputs.map(|output| {
            at += 1;
            output.with_history(Rc::clone(&node), at - 1)
        })
    }

    fn into_node(self, outputs: SmallVec<[Metadata; 1]>, backward: BackwardFn) -> Rc<Node> {
        Rc::new(Node {
            name: self.name,
            module: self.module,
            sequence: self.sequence,
            edges: self.edges,
            outputs,
            apply: Apply::Backward(RefCell::new(Some(backward))),
            buffer: RefCell::default(),
            dependencies: Cell::new(0),
            discovered: Cell::new(false),
        })
    }
}

fn edge_of(tensor: &Tensor) -> Option<Edge> {
    match &tensor.history {
        History::None => None,
        History::Leaf(leaf) => Some(Edge { node: accumulator_of(tensor, leaf), output: 0 }),
        History::Output(node, output) => Some(Edge { node: Rc::clone(node), output: *output }),
    }
}

/// The leaf's `AccumulateGrad`, shared by all that lead to it as long as one of them lives.
fn accumulator_of(tensor: &Tensor, leaf: &Leaf) -> Rc<Node> {
    if let Some(node) = leaf.accumulator.borrow().upgrade() {
        return node;
    }
    let node = Rc::new(Node::accumulate_grad(tensor));
    leaf.accumulator.replace(Rc::downgrade(&node));
    node
}

/// A node that has all its gradients, ordered by sequence number.
struct Ready(Rc<Node>);

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.0.sequence == other.0.sequence
    }
}
impl Eq for Ready {}
impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}

impl Tensor {
    /// `loss.backward()`: the caller's reference to the loss stays; saved tensors go as their nodes finish.
    pub fn backward(&self) {
        let context = Rc::clone(self.context());
        let Some(root) = edge_of(self) else { return };
        let seed = self.ones_like();
        let _no_grad = context.set_grad_enabled(false);
        let _thread = context.enter_thread(Thread::Autograd);
        let _autocast = context.disable_autocast();
        let _module = context.enter_module(0);
        count_dependencies(&root.node);
        deliver(&root, seed.clone());
        let mut ready = BinaryHeap::from([Ready(root.node)]);
        while let Some(Ready(node)) = ready.pop() {
            evaluate(&context, &node, &mut ready);
        }
    }
}

fn count_dependencies(root: &Rc<Node>) {
    let mut stack = vec![Rc::clone(root)];
    while let Some(node) = stack.pop() {
        for edge in node.edges.iter().flatten() {
            let next = &edge.node;
            next.dependencies.set(next.dependencies.get() + 1);
            if !next.discovered.replace(true) {
                stack.push(Rc::clone(next));
            }
        }
        node.discovered.set(!node.edges.is_empty());
    }
}

fn evaluate(context: &Rc<Context>, node: &Rc<Node>, ready: &mut BinaryHeap<Ready>) {
    node.discovered.set(false);
    let grads = node.buffer.take();
    let backward = match &node.apply {
        Apply::AccumulateGrad(leaf) => {
            if let (Some(leaf), Some(Some(grad))) = (leaf.leaf(), grads.into_iter().next()) {
                accumulate_grad(leaf, grad);
            }
            return;
        }
        Apply::Backward(backward) => backward.take(),
    };
    let _module = context.enter_module(node.module);
    let _node = context.enter_node(Some(node.name));
    let mut outputs = Gradients::new();
    if let Some(backward) = backward {
        outputs = backward(&grads);
        for (grad, edge) in outputs.iter_mut().zip(&node.edges) {
            if let (Some(tensor), Some(edge)) = (grad.take(), edge) {
                *grad = Some(conform(tensor, &edge.node.outputs[edge.output as usize]));
            }
        }
        drop(grads);
    }
    outputs.resize(node.edges.len(), None);
    for (grad, edge) in outputs.iter_mut().zip(&node.edges) {
        let Some(edge) = edge else { continue };
        if let Some(grad) = grad.take() {
            deliver(edge, grad);
        }
        let next = &edge.node;
        next.dependencies.set(next.dependencies.get().saturating_sub(1));
        if next.dependencies.get() == 0 {
            ready.push(Ready(Rc::clone(next)));
        }
    }
}

/// What `validate_outputs` does to a gradient: reduce what was broadcast, cast what was promoted.
fn conform(grad: Tensor, expected: &Metadata) -> Tensor {
    let grad = if *grad.sizes() == expected.sizes { grad } else { grad.sum_to(&expected.sizes) };
    if grad.dtype() == expected.dtype { grad } else { grad.to(expected.dtype) }
}

fn deliver(edge: &Edge, grad: Tensor) {
    let mut buffer = edge.node.buffer.borrow_mut();
    if buffer.is_empty() {
        buffer.resize(edge.node.outputs.len(), None);
    }
    let Some(slot) = buffer.get_mut(edge.output as usize) else { return };
    *slot = Some(match slot.take() {
        None => grad,
        Some(old) if old.can_accumulate_in_place() => old,
        Some(old) => old.add(&grad),
    });
}

/// `AccumulateGrad`: steals the gradient if nobody else holds it and its layout is the parameter's, else copies it;
/// a gradient that is already there is added to in place.
fn accumulate_grad(leaf: &Leaf, grad: Tensor) {
    let mut slot = leaf.grad.borrow_mut();
    if slot.is_some() {
        return;
    }
    let stealable = grad.is_unique() && grad.is_contiguous();
    let grad = if stealable { grad } else { grad.clone_contiguous() };
    grad.set_category(Category::Gradient);
    *slot = Some(grad);
}
