//! What is left of a graph that ran backward: the leaves that it keeps alive, with their gradients, as long as anybody holds a node of it.
//! PyTorch's graph keeps all of its nodes until then. They hold no memory of the device any more, and a loop over tokens leaves a million.

use std::rc::Rc;

use super::node::{AT_ONCE, Edges, Leaves, Node};

/// Held nodes that are told apart by a bit each; the last stands for all that come later, which keep one another's leaves.
const TOLD_APART: usize = u8::BITS as usize;

/// The leaves that the held nodes of one backward pass lead to.
#[derive(Default)]
pub(super) struct KeptLeaves {
    of_held: Vec<Leaves>,
}

impl KeptLeaves {
    /// A node has run, and all that led to it: the nodes that keep what its edges lead to.
    pub fn holders(&mut self, node: &Rc<Node>, edges: &Edges) -> u8 {
        let holders = node.held_by.take();
        if node.sequence == AT_ONCE {
            let of_holders = self.of_held.iter().enumerate().filter(|(at, _)| holders & 1 << at != 0);
            of_holders.for_each(|(_, leaves)| leaves.borrow_mut().push(Rc::clone(node)));
        }
        let is_held = Rc::strong_count(node) > 1;
        if !is_held || edges.lead_to_leaves_only() { holders } else { holders | 1 << self.keep_for(node) }
    }

    fn keep_for(&mut self, held: &Node) -> usize {
        if self.of_held.len() < TOLD_APART {
            self.of_held.push(Leaves::default());
        }
        let at = self.of_held.len() - 1;
        held.rare.get_or_init(Box::default).leaves.set(Some(Rc::clone(&self.of_held[at])));
        at
    }
}

#[cfg(test)]
mod tests {
    use tonnage_alloc::trace::Event;

    use super::*;
    use crate::Device;
    use crate::dtype::DType;
    use crate::tensor::handle::History;
    use crate::tensor::{Context, Shape, Tensor};

    /// A leaf that only the graph behind the result holds.
    fn branch(context: &Rc<Context>) -> Tensor {
        let leaf = Tensor::empty(context, "empty.default", Shape::new(&[8]), DType::Float32).into_parameter();
        leaf.mul_scalar(2.0).mul_scalar(2.0)
    }

    fn context() -> Rc<Context> {
        Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 })
    }

    fn alive(context: &Context) -> usize {
        let count =
            |is_it: fn(&Event) -> bool| context.trace_so_far().events.iter().filter(|event| is_it(event)).count();
        count(|event| matches!(event, Event::Alloc(_))) - count(|event| matches!(event, Event::Free(_)))
    }

    #[test]
    fn a_node_that_has_run_goes_though_the_loss_is_held() {
        let context = context();
        let middle = branch(&context);
        let History::Output(node, _) = &middle.history else { panic!("an op left no node") };
        let node = Rc::downgrade(node);
        let loss = middle.mul_scalar(1.0);
        drop(middle);
        assert!(node.upgrade().is_some());
        loss.backward();
        assert!(node.upgrade().is_none());
    }

    #[test]
    fn the_loss_keeps_leaves_and_gradients_when_what_was_made_of_it_ran_backward() {
        let context = context();
        let loss = branch(&context).mul_scalar(1.0);
        loss.mul_scalar(65536.0).backward();
        // The loss, the leaf and its gradient.
        assert_eq!(alive(&context), 3);
        drop(loss);
        assert_eq!(alive(&context), 0);
    }

    #[test]
    fn a_held_node_keeps_the_leaves_behind_itself_alone() {
        let context = context();
        let [a, b] = [branch(&context), branch(&context)];
        (&a + &b).backward();
        assert_eq!(alive(&context), 6);
        drop(a);
        assert_eq!(alive(&context), 3);
        drop(b);
        assert_eq!(alive(&context), 0);
    }

    #[test]
    fn many_held_nodes_keep_all_that_they_lead_to() {
        let context = context();
        let held: Vec<Tensor> = (0..2 * TOLD_APART).map(|_| branch(&context)).collect();
        held.iter().skip(1).fold(held[0].clone(), |sum, next| &sum + next).backward();
        assert_eq!(alive(&context), 3 * held.len());
        drop(held);
        assert_eq!(alive(&context), 0);
    }
}
