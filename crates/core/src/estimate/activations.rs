//! Names activations: a forward tensor becomes one by still being alive when backward begins.

use crate::trace::{AllocationId, Category, Event, PhaseKind, Trace};

/// Marks every temporary that was born in a forward pass and lives when the next backward begins.
pub(super) fn mark_activations(trace: &mut Trace) {
    let mut freed = vec![false; trace.allocations.len()];
    let mut candidates: Vec<AllocationId> = Vec::new();
    let mut rest = trace.events.as_slice();
    while let Some((phase, events, others)) = next_phase(rest) {
        rest = others;
        let kind = trace.phases[phase as usize].kind;
        if kind == PhaseKind::Backward {
            for id in candidates.drain(..).filter(|id| !freed[*id as usize]) {
                promote_category(&mut trace.allocations[id as usize].category);
            }
        }
        if matches!(kind, PhaseKind::Forward | PhaseKind::Loss | PhaseKind::ForwardTail) {
            candidates.extend(events.iter().filter_map(allocated_id));
        }
        // Most events are not those of candidates: generation, backward.
        if !candidates.is_empty() {
            events.iter().filter_map(released_id).for_each(|id| freed[id as usize] = true);
        }
    }
}

/// The next phase, its events, and those that come after it.
fn next_phase(events: &[Event]) -> Option<(u32, &[Event], &[Event])> {
    let is_phase = |event: &Event| matches!(event, Event::Phase(_));
    let (Event::Phase(phase), rest) = events[events.iter().position(is_phase)?..].split_first()? else { return None };
    let (events, others) = rest.split_at(rest.iter().position(is_phase).unwrap_or(rest.len()));
    Some((*phase, events, others))
}

fn allocated_id(event: &Event) -> Option<AllocationId> {
    if let Event::Alloc(id) = event { Some(*id) } else { None }
}

fn released_id(event: &Event) -> Option<AllocationId> {
    if let Event::Free(id) = event { Some(*id) } else { None }
}

fn promote_category(category: &mut Category) {
    if *category == Category::Temporary {
        *category = Category::Activation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Allocation, Phase};

    fn allocation(phase: u32, category: Category) -> Allocation {
        Allocation { bytes: 8, origin: 0, module: 0, phase, category, stream: 0, other_size: 0 }
    }

    #[test]
    fn only_what_backward_finds_alive_is_an_activation() {
        let phase = |kind| Phase { kind, step: 1 };
        let mut trace = Trace {
            events: vec![
                Event::Phase(0),
                Event::Alloc(0),
                Event::Alloc(1),
                Event::Alloc(2),
                Event::Free(0),
                Event::Phase(1),
                Event::Alloc(3),
            ],
            allocations: vec![
                allocation(0, Category::Temporary),
                allocation(0, Category::Temporary),
                allocation(0, Category::WeightCast),
                allocation(1, Category::Temporary),
            ],
            origins: Vec::new(),
            modules: vec![String::new()],
            phases: vec![phase(PhaseKind::Forward), phase(PhaseKind::Backward)],
            repeats: Vec::new(),
            growing: Vec::new(),
        };
        mark_activations(&mut trace);
        let categories: Vec<_> = trace.allocations.iter().map(|allocation| allocation.category).collect();
        assert_eq!(categories, [Category::Temporary, Category::Activation, Category::WeightCast, Category::Temporary]);
    }
}
