//! Equal calls of `generate`: one is run, the others of its step and of later steps are copied.

use std::rc::Rc;
use std::slice;

use crate::tensor::{Context, Part};

/// Calls that left nothing but workspaces, by their rows, which are all that tells them apart.
#[derive(Default)]
pub(super) struct Calls(Vec<(u64, Part)>);

impl Calls {
    /// Runs `call` for so many rows, `times` times.
    pub(super) fn run(&mut self, context: &Rc<Context>, rows: u64, times: u64, call: impl Fn()) {
        if let Some((_, known)) = self.0.iter().find(|(other, _)| *other == rows) {
            context.copy_whole(known);
            context.repeat_whole(known, times - 1);
            return;
        }
        for left in (0..times).rev() {
            let beginning = context.moment();
            call();
            let part = context.part_since(&beginning);
            if context.left_by(slice::from_ref(&part)).is_some_and(|left| left.is_empty()) {
                context.repeat_whole(&part, left);
                return self.0.push((rows, part));
            }
            // What autocast cast of the weights is left for the other calls of the step.
            if left > 0 && context.repeat_since(&beginning, left) {
                return;
            }
        }
    }
}
