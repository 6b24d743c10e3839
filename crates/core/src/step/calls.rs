//! Equal calls of `generate`: one is run, the others of its step and of later steps are copied.

use std::rc::Rc;
use std::slice;

use crate::tensor::{Context, TraceSlice};

/// Calls that left nothing but workspaces, by their rows, which are all that tells them apart.
#[derive(Default)]
pub(super) struct Calls(Vec<(u64, TraceSlice)>);

impl Calls {
    /// Runs `call` for so many rows, `times` times.
    pub(super) fn run(&mut self, context: &Rc<Context>, rows: u64, times: u64, call: impl Fn()) {
        if let Some((_, known)) = self.0.iter().find(|(other, _)| *other == rows) {
            return context.repeat_whole(known, times);
        }
        for left in (0..times).rev() {
            let beginning = context.moment();
            call();
            let recorded = context.slice_since(&beginning);
            if context.left_by(slice::from_ref(&recorded)).is_some_and(|left| left.is_empty()) {
                context.repeat_whole(&recorded, left);
                // A call that found what an earlier one left (autocast's copies of the weights) is none to begin a step with.
                if left + 1 == times {
                    self.0.push((rows, recorded));
                }
                return;
            }
            // What autocast cast of the weights is left for the other calls of the step.
            if left > 0 && context.repeat_since(&beginning, left) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::dtype::DType;
    use crate::gpu::Gpu;
    use crate::op::full;
    use crate::trace::{Event, PhaseKind};
    use crate::work::PhaseWork;

    const STEPS: u32 = 3;
    const TIMES: u64 = 4;

    /// What a step's calls allocate (`Some`) and free, by bytes and phase.
    type Events = Vec<(Option<u64>, u32)>;

    /// How often a call ran, what it did, and the work; the first call of a process needs a workspace.
    fn generate(run: impl Fn(&Rc<Context>, &dyn Fn())) -> (usize, Events, Vec<PhaseWork>) {
        let context = Context::new(Gpu::parse("h100").unwrap().device());
        let ran = Cell::new(0);
        let call = || {
            ran.set(ran.get() + 1);
            let ids = full(&context, "full.default", &[64], DType::Int64);
            context.need_cublas_workspace("mm.default");
            let _logits = &ids + &full(&context, "full.default", &[64], DType::Int64);
        };
        for step in 1..=STEPS {
            context.begin_step(step);
            context.phase(PhaseKind::Generate);
            run(&context, &call);
        }
        context.end();
        let work = context.take_work();
        let trace = context.take_trace().unrolled();
        let mut phase = 0;
        let mut events = Events::new();
        for event in &trace.events {
            match *event {
                Event::Phase(begun) => phase = begun,
                Event::Alloc(id) => {
                    let allocation = trace.allocations[id as usize];
                    assert_eq!(allocation.phase, phase);
                    events.push((Some(allocation.bytes), phase));
                }
                _ => events.push((None, phase)),
            }
        }
        (ran.get(), events, work)
    }

    #[test]
    fn one_call_stands_for_all_that_are_equal() {
        let calls = RefCell::new(Calls::default());
        let copied = generate(|context, call| calls.borrow_mut().run(context, 1, TIMES, call));
        let every = generate(|_, call| (0..TIMES).for_each(|_| call()));
        assert_eq!((copied.0, every.0), (1, STEPS as usize * TIMES as usize));
        assert_eq!((copied.1, copied.2), (every.1, every.2));
    }
}
