//! The engine that runs the tape backward (torch/csrc/autograd/engine.cpp, PyTorch 2.11): in which order nodes run, and
//! when what they hold dies.

use std::collections::BinaryHeap;
use std::rc::Rc;

use super::autograd::{IN_PLACE_ADDITION, edge_of};
use super::context::{Context, Thread};
use super::handle::Tensor;
use super::kept_leaves::KeptLeaves;
use super::node::{AT_ONCE, Edge, Node, Output};
use super::object::Detached;

/// The nodes that have all their gradients; the one of the highest sequence number is next.
#[derive(Default)]
struct ReadyQueue {
    /// A node later than all others waits outside of the heap: along a chain of nodes the heap stays untouched.
    next: Option<Rc<Node>>,
    /// Orders equals as `std::priority_queue` does, as long as they arrive one after the other.
    heap: BinaryHeap<Ready>,
    /// The ends of the tape that have run.
    leaves: KeptLeaves,
}

impl ReadyQueue {
    fn push(&mut self, node: Rc<Node>) {
        let first = self.next.take();
        if first.is_none() && self.heap.peek().is_none_or(|top| top.0.sequence < node.sequence) {
            self.next = Some(node);
        } else {
            first.into_iter().chain([node]).for_each(|node| self.heap.push(Ready(node)));
        }
    }

    /// The end of the tape at a leaf, if one is next.
    fn pop_leaf(&mut self) -> Option<Rc<Node>> {
        let next = self.next.as_ref().or_else(|| self.heap.peek().map(|Ready(node)| node));
        next.is_some_and(|node| node.sequence == AT_ONCE).then(|| self.pop()).flatten()
    }

    fn pop(&mut self) -> Option<Rc<Node>> {
        self.next.take().or_else(|| self.heap.pop().map(|Ready(node)| node))
    }
}

/// A node ordered by its sequence number.
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
        self.run_backward(false);
    }

    /// The same by an engine that runs what hooks put off when `backward()` has returned, and the first gradient is gone.
    pub fn backward_of_engine(&self) {
        self.run_backward(true);
    }

    /// `torch.autograd.backward(self, gradient)`: the caller's references to both stay.
    pub fn backward_from(&self, gradient: &Tensor) {
        self.run_tape(gradient);
        self.run_put_off(|| ());
    }

    /// `torch.autograd.backward(self, gradient)` by a node that runs: an engine within the engine.
    pub(super) fn backward_within(&self, gradient: &Tensor) {
        self.run_tape(gradient);
    }

    /// Runs the nodes behind it, if there are any.
    fn run_tape(&self, gradient: &Tensor) {
        let context = self.context();
        let Some(root) = edge_of(self) else { return };
        let _no_grad = context.set_grad_enabled(false);
        let _thread = context.enter_thread(Thread::Autograd);
        let _autocast = context.enter_backward_autocast();
        let _module = context.enter_module(0);
        count_dependencies(&root.node);
        deliver(&root, gradient.detached(), true);
        let mut ready = ReadyQueue { next: Some(root.node), ..Default::default() };
        while let Some(node) = ready.pop() {
            evaluate_node(context, &node, &mut ready);
        }
    }

    fn run_backward(&self, ends_before_callbacks: bool) {
        if edge_of(self).is_none() {
            return;
        }
        let mut seed = Some(self.ones_like());
        if let Some(seed) = &seed {
            self.run_tape(seed);
        }
        self.run_put_off(|| {
            if ends_before_callbacks {
                seed = None;
            }
        });
        drop(seed);
    }

    /// What hooks put off to the end of the pass, after `first`.
    fn run_put_off(&self, first: impl FnOnce()) {
        let context = self.context();
        let _no_grad = context.set_grad_enabled(false);
        let _thread = context.enter_thread(Thread::Autograd);
        let _autocast = context.enter_backward_autocast();
        let _module = context.enter_module(0);
        first();
        context.run_callbacks();
    }
}

impl Context {
    /// Keeps a tensor, of which the running node returns a part as a `DTensor`, until that has been added to other gradients.
    pub fn keep_for_delivery(&self, tensor: &Tensor) {
        self.kept_for_delivery.set(Some(Box::new(tensor.detached())));
    }
}

fn count_dependencies(root: &Rc<Node>) {
    let mut stack = vec![Rc::clone(root)];
    while let Some(node) = stack.pop() {
        let edges = node.edges.take();
        for edge in edges.iter().flatten() {
            let next = &edge.node;
            next.dependencies.set(next.dependencies.get() + 1);
            if !next.discovered.replace(true) {
                stack.push(Rc::clone(next));
            }
        }
        node.discovered.set(!edges.is_empty());
        node.edges.set(edges);
    }
}

fn evaluate_node(context: &Rc<Context>, node: &Rc<Node>, ready: &mut ReadyQueue) {
    node.discovered.set(false);
    let _module = context.enter_module(node.module);
    let _node = context.enter_node(node.name);
    let _device = node.name.map(|_| context.enter_device(node.is_here));
    let _stream = context.enter_stream(node.stream);
    if let Some(hook) = node.take_hook() {
        hook();
    }
    let (mut one, mut several);
    let arrived: &mut [Option<Detached>] = if node.more_outputs().is_empty() {
        one = [node.output.take_gradient()];
        &mut one
    } else {
        several = node.outputs().map(Output::take_gradient).collect::<Vec<_>>();
        &mut several
    };
    if context.keeps_running_node.get() {
        context.running_node.replace(Some(Rc::new(Rc::clone(node))));
    }
    let mut gradients = node.backward.apply(arrived);
    let edges = node.edges.take();
    for (gradient, edge) in gradients.iter_mut().zip(edges.iter()) {
        match (gradient.as_ref(), edge) {
            (Some(tensor), Some(edge)) if edge.output().fits(tensor) => {}
            (_, None) => *gradient = None,
            (_, Some(edge)) => {
                *gradient = gradient.take().map(|tensor| conform_gradient(tensor.into(), edge.output()).into())
            }
        }
    }
    context.run_node_hooks();
    context.running_node.take();
    arrived.fill_with(|| None);
    node.backward.release();
    let kept = context.kept_for_delivery.take();
    let holders = ready.leaves.holders(node, &edges);
    for (at, edge) in edges.iter().enumerate() {
        let Some(edge) = edge else { continue };
        let name = node.deliver.get(at);
        let _node = name.map(|name| context.enter_node(Some(name)));
        if let Some(gradient) = gradients.get_mut(at).and_then(Option::take) {
            deliver(edge, gradient, kept.is_none());
        }
        let next = &edge.node;
        next.held_by.set(next.held_by.get() | holders);
        next.dependencies.set(next.dependencies.get().saturating_sub(1));
        if next.dependencies.get() == 0 {
            ready.push(Rc::clone(next));
            while let Some(leaf) = name.and_then(|_| ready.pop_leaf()) {
                evaluate_node(context, &leaf, ready);
            }
        }
    }
    if edges.lead_to_leaves_only() {
        node.edges.set(edges);
    }
}

/// Gradients of the same output meet by addition (input_buffer.cpp), those of tensors of a class of their own never `in_place`.
fn deliver(edge: &Edge, gradient: Detached, in_place: bool) {
    let output = edge.output();
    let sum = match output.take_gradient() {
        None => gradient,
        Some(old) => {
            let old = Tensor::from(old);
            let context = Rc::clone(old.context());
            let _stream = context.enter_stream(edge.node.stream);
            add_up(old, &gradient.into(), in_place).into()
        }
    };
    output.set_gradient(sum);
}

/// Adds in place where nobody would notice.
fn add_up(old: Tensor, gradient: &Tensor, in_place: bool) -> Tensor {
    if !in_place || !old.can_accumulate_in_place() {
        return old.add(gradient);
    }
    old.context().count_bytes(old.bytes().saturating_mul(IN_PLACE_ADDITION));
    old
}

/// What `validate_outputs` does to a gradient: reduce what was broadcast, cast what was promoted.
#[cold]
fn conform_gradient(mut gradient: Tensor, expected: &Output) -> Tensor {
    if *gradient.sizes() != expected.sizes {
        // What was summed goes before the cast.
        gradient = gradient.sum_to(&expected.sizes);
    }
    if gradient.dtype() == expected.dtype { gradient } else { gradient.to(expected.dtype) }
}
