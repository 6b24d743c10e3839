//! The tape: nodes that ops leave behind in the forward pass.
//!
//! Mirrors torch/csrc/autograd (PyTorch 2.11): `input_buffer.cpp` and `accumulate_grad.h` for how gradients meet.

use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::rc::{Rc, Weak};

use smallvec::SmallVec;

use super::context::Context;
use super::handle::{History, Leaf, Tensor};
use super::node::{AT_ONCE, Backward, Delivered, Edge, Edges, Gradients, NO_CHAIN, Node, NodeHead, Output, Rare};
use super::object::Detached;
use super::saved::Saved;
use super::shape::Shape;
use tonnage_alloc::trace::Category;

/// [`Gradients`] from a list of tensors and options.
#[macro_export]
macro_rules! gradients {
    ($($gradient:expr),* $(,)?) => {
        smallvec::smallvec![$(Option::<$crate::tensor::Tensor>::from($gradient).map(Into::into)),*]
    };
}
pub use gradients;

/// An op's backward formula, until it is released.
struct Formula<F>(RefCell<Option<F>>);

impl<F: Fn(&mut [Option<Detached>]) -> Gradients> Backward for Formula<F> {
    fn apply(&self, gradients: &mut [Option<Detached>]) -> Gradients {
        self.0.borrow().as_ref().map_or_else(Gradients::new, |formula| formula(gradients))
    }

    /// One that saved nothing stays, as PyTorch's does, and runs for every pass that comes to it: those of micro-batches under one
    /// autocast meet at the same casts of weights.
    fn release(&self) {
        if needs_drop::<F>() {
            *self.0.borrow_mut() = None;
        }
    }
}

/// With the counts of an `Rc` the node of a view, which keeps a shape, is no larger than an allocator's class of 256 bytes.
const _: () = assert!(size_of::<Node<Formula<Shape>>>() <= 240);

/// The end of the tape at a leaf, which it holds as PyTorch's does: a graph keeps its leaves alive.
struct AccumulateGrad(Tensor);

impl Backward for AccumulateGrad {
    fn apply(&self, gradients: &mut [Option<Detached>]) -> Gradients {
        if let (Some(leaf), Some(Some(gradient))) = (self.0.leaf(), gradients.first_mut().map(Option::take)) {
            let hook = leaf.arrival.borrow().clone();
            if let Some(hook) = hook {
                hook();
            }
            // A hook runs while the engine still holds what arrived.
            let _arrived = accumulate_grad(leaf, gradient.into());
            let hook = leaf.post_accumulate.borrow().clone();
            if let Some(hook) = hook {
                hook();
            }
        }
        Gradients::new()
    }

    fn release(&self) {}
}

/// Collects what an op's node needs while the op runs; does nothing when no input requires grad.
pub struct NodeBuilder<'a, I: AsRef<[&'a Tensor]>> {
    active: bool,
    name: &'static str,
    module: u32,
    is_here: bool,
    stream: u8,
    sequence: u32,
    inputs: I,
    _inputs: PhantomData<&'a Tensor>,
}

impl<'a, I: AsRef<[&'a Tensor]>> NodeBuilder<'a, I> {
    /// Begins the node of an op over `inputs`, in the order of the gradients that its backward returns.
    #[inline]
    pub fn new(name: &'static str, inputs: I) -> Self {
        let mut node = Self {
            active: false,
            name,
            module: 0,
            is_here: true,
            stream: 0,
            sequence: 0,
            inputs,
            _inputs: PhantomData,
        };
        let wanted = node.inputs.as_ref().iter().find(|input| input.requires_grad());
        let Some(context) = wanted.map(|input| input.context()) else { return node };
        if context.grad_enabled.get() {
            node.module = context.current_module();
            node.is_here = context.is_here();
            node.stream = context.stream.get();
            node.sequence = context.next_sequence.get();
            context.next_sequence.set(node.sequence.saturating_add(1));
            node.active = true;
        }
        node
    }

    /// Whether the gradient of input `at` is asked for.
    pub fn needs(&self, at: usize) -> bool {
        self.active && self.inputs.as_ref().get(at).is_some_and(|input| input.requires_grad())
    }

    /// Saves an input, a view of one, or an output for backward.
    pub fn save(&self, tensor: &Tensor) -> Saved {
        if self.active { Saved::packed(tensor) } else { Saved::Tensor(tensor.detached()) }
    }

    /// Saves the input for the gradient of another one, when that is asked for.
    pub fn save_for(&self, at: usize, tensor: &Tensor) -> Option<Saved> {
        self.needs(at).then(|| self.save(tensor))
    }

    /// Ends an op with one output, a fresh tensor.
    pub fn finish(self, output: Tensor, backward: impl Fn(&Tensor) -> Gradients + 'static) -> Tensor {
        if !self.active {
            return output;
        }
        let node = self.into_node(output_of(&output), None, NO_CHAIN, move |gradients| match gradients {
            [gradient] => lend(gradient, |gradient| gradient.as_ref().map_or_else(Gradients::new, &backward)),
            _ => Gradients::new(),
        });
        output.with_history(node, 0)
    }

    /// Ends an op that stands for a chain of nodes (see `deliver` in `engine.rs`); its formula may replace the gradient that
    /// arrived.
    pub fn finish_chain(
        self,
        output: Tensor,
        deliver: Delivered,
        backward: impl Fn(&mut Option<Tensor>) -> Gradients + 'static,
    ) -> Tensor {
        if !self.active {
            return output;
        }
        let node = self.into_node(output_of(&output), None, deliver, move |gradients| {
            gradients.first_mut().map_or_else(Gradients::new, |gradient| lend(gradient, &backward))
        });
        output.with_history(node, 0)
    }

    /// Ends an op with several differentiable outputs, fresh tensors or views.
    pub fn finish_many<const N: usize>(
        self,
        outputs: [Tensor; N],
        backward: impl Fn(&[Option<Tensor>]) -> Gradients + 'static,
    ) -> [Tensor; N] {
        let Some((first, more)) = outputs.split_first().filter(|_| self.active) else { return outputs };
        let more = Some(more.iter().map(output_of).collect());
        let node = self.into_node(output_of(first), more, NO_CHAIN, move |gradients| lend_all(gradients, &backward));
        let mut at = 0;
        outputs.map(|output| {
            at += 1;
            output.with_history(Rc::clone(&node), at - 1)
        })
    }

    /// Ends an op with any number of differentiable outputs.
    pub fn finish_list(
        self,
        outputs: Vec<Tensor>,
        backward: impl Fn(&[Option<Tensor>]) -> Gradients + 'static,
    ) -> Vec<Tensor> {
        if !self.active {
            return outputs;
        }
        let Some((first, more)) = outputs.split_first() else { return outputs };
        let more = Some(more.iter().map(output_of).collect());
        let node = self.into_node(output_of(first), more, NO_CHAIN, move |gradients| lend_all(gradients, &backward));
        (0..).zip(outputs).map(|(at, output)| output.with_history(Rc::clone(&node), at)).collect()
    }

    fn into_node(
        self,
        output: Output,
        more_outputs: Option<Box<[Output]>>,
        deliver: Delivered,
        formula: impl Fn(&mut [Option<Detached>]) -> Gradients + 'static,
    ) -> Rc<Node> {
        let watched = self.watched();
        let head = self.into_head(output, more_outputs, deliver);
        let node: Rc<Node> = Rc::new(Node::new(head, Formula(RefCell::new(Some(formula)))));
        if let Some(context) = watched {
            context.latest_node.replace(Some(Box::new(Rc::downgrade(&node))));
        }
        node
    }

    /// Compiled once for each number of inputs, not for each formula.
    #[inline]
    fn into_head(self, output: Output, more_outputs: Option<Box<[Output]>>, deliver: Delivered) -> NodeHead {
        NodeHead {
            name: Some(self.name),
            module: self.module,
            is_here: self.is_here,
            stream: self.stream,
            sequence: self.sequence,
            edges: Cell::new(edges_to(self.inputs.as_ref())),
            output,
            rare: more_outputs.map_or_else(OnceCell::new, |more_outputs| {
                OnceCell::from(Box::new(Rare { more_outputs, ..Rare::default() }))
            }),
            deliver,
            dependencies: Cell::new(0),
            discovered: Cell::new(false),
            held_by: Cell::new(0),
        }
    }

    /// The process, where it keeps the latest node in mind.
    fn watched(&self) -> Option<Rc<Context>> {
        let context = self.inputs.as_ref().first()?.context();
        context.watches_nodes.get().then(|| Rc::clone(context))
    }
}

impl Context {
    /// A hook on the result of the latest op, if that is none before `since`: it runs before hooks that are there.
    pub fn hook_latest_node(&self, since: u32, hook: impl Fn() + 'static) {
        let latest = self.latest_node.borrow();
        let latest = latest.as_ref().and_then(|latest| latest.downcast_ref::<Weak<Node>>()).and_then(Weak::upgrade);
        let Some(node) = latest.filter(|node| node.sequence >= since) else { return };
        node.wrap_hook(|earlier| {
            move || {
                hook();
                earlier.iter().for_each(|earlier| earlier());
            }
        });
    }
}

/// Lends a gradient as a tensor. It is moved, not shared: what is held once may be stolen or added to in place.
fn lend(slot: &mut Option<Detached>, formula: impl FnOnce(&mut Option<Tensor>) -> Gradients) -> Gradients {
    let mut tensor = slot.take().map(Tensor::from);
    let gradients = formula(&mut tensor);
    *slot = tensor.map(Detached::from);
    gradients
}

/// The same of all gradients of a node.
fn lend_all(slots: &mut [Option<Detached>], formula: impl FnOnce(&[Option<Tensor>]) -> Gradients) -> Gradients {
    let tensors: SmallVec<[Option<Tensor>; 3]> = slots.iter_mut().map(|slot| slot.take().map(Tensor::from)).collect();
    let gradients = formula(&tensors);
    slots.iter_mut().zip(tensors).for_each(|(slot, tensor)| *slot = tensor.map(Detached::from));
    gradients
}

fn output_of(tensor: &Tensor) -> Output {
    Output::new(*tensor.sizes(), tensor.dtype())
}

fn edges_to(inputs: &[&Tensor]) -> Edges {
    match inputs {
        [] => Edges::None,
        [a] => Edges::One([edge_of(a)]),
        [a, b] => Edges::Two([edge_of(a), edge_of(b)]),
        many => Edges::Many(many.iter().map(|input| edge_of(input)).collect()),
    }
}

#[inline]
pub(super) fn edge_of(tensor: &Tensor) -> Option<Edge> {
    match &tensor.history {
        History::None => None,
        History::Leaf(leaf) => {
            let computed = leaf.computed.borrow().clone();
            let (node, output) = computed.unwrap_or_else(|| (accumulator_of(tensor, leaf), 0));
            Some(Edge { node, output })
        }
        History::Output(node, output) => Some(Edge { node: Rc::clone(node), output: *output }),
    }
}

/// The leaf's `AccumulateGrad`, shared by all that lead to it as long as one of them lives.
fn accumulator_of(tensor: &Tensor, leaf: &Leaf) -> Rc<Node> {
    let mut accumulator = leaf.accumulator.borrow_mut();
    if let Some(node) = accumulator.as_ref().and_then(Weak::upgrade) {
        return node;
    }
    let head = NodeHead {
        name: None,
        module: 0,
        is_here: true,
        stream: tensor.context().stream.get(),
        sequence: AT_ONCE,
        edges: Cell::default(),
        output: output_of(tensor),
        rare: OnceCell::new(),
        deliver: NO_CHAIN,
        dependencies: Cell::new(0),
        discovered: Cell::new(false),
        held_by: Cell::new(0),
    };
    let node: Rc<Node> = Rc::new(Node::new(head, AccumulateGrad(tensor.clone())));
    *accumulator = Some(Rc::downgrade(&node));
    node
}

impl Tensor {
    /// `tensor.register_hook(hook)` on the result of an op: runs in the next backward pass, when its gradient is there.
    pub fn register_hook(&self, hook: impl Fn() + 'static) {
        if let History::Output(node, _) = &self.history {
            node.wrap_hook(|earlier| {
                move || {
                    earlier.iter().for_each(|earlier| earlier());
                    hook();
                }
            });
        }
    }

    /// `output.requires_grad_(True)` in a forward hook of the module that made it, before hooks that an engine has put there.
    pub fn require_grad_in_hook(self) -> Tensor {
        // Nothing changes where an embedding is trained.
        if self.requires_grad() {
            return self;
        }
        let leaf = self.into_parameter();
        let hook = leaf.context().output_hook.borrow().clone();
        let Some(hook) = hook else { return leaf };
        let module = leaf.module();
        leaf.with_backward_hook("PreBackwardFunctionForModuleBackward", move || hook(module))
    }

    /// The result of an `autograd.Function` that returns its input: a view, whose backward runs `hook` and hands the
    /// gradient on. Itself where no gradient is asked for.
    pub fn with_backward_hook(&self, name: &'static str, hook: impl Fn() + 'static) -> Tensor {
        self.with_gradient_hook(name, move |_| hook())
    }

    /// The same, whose hook gets the gradient.
    pub fn with_gradient_hook(&self, name: &'static str, hook: impl Fn(&Tensor) + 'static) -> Tensor {
        let node = NodeBuilder::new(name, [self]);
        if !node.active {
            return self.clone();
        }
        node.finish(self.alias(self.layout().clone()), move |gradient| {
            hook(gradient);
            gradients![gradient.clone()]
        })
    }
}

/// `AccumulateGrad`: steals the gradient if nobody else holds it and its layout is the parameter's, else copies it;
/// a gradient that is already there is added to in place. Returns what was added.
fn accumulate_grad(leaf: &Leaf, grad: Tensor) -> Option<Tensor> {
    let mut slot = leaf.grad.borrow_mut();
    if slot.is_some() {
        grad.context().count_bytes(grad.bytes().saturating_mul(IN_PLACE_ADDITION));
        return Some(grad);
    }
    let stealable = grad.is_unique() && grad.is_contiguous();
    let grad = if stealable { grad } else { grad.clone_contiguous() };
    grad.set_category(Category::Gradient);
    *slot = Some(grad);
    None
}

/// An addition in place reads both operands and writes one.
pub(super) const IN_PLACE_ADDITION: u64 = 3;
