//! In which order a rank runs forward and backward passes of its stages (torch/distributed/pipelining/schedules.py, PyTorch 2.11).

use crate::job::{Parallel, Schedule, Strategy};

/// One pass of a micro-batch through a stage of the rank, both counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Forward { stage: usize, micro_batch: usize },
    Backward { stage: usize, micro_batch: usize },
}

/// All passes of a step.
pub(super) fn order_of_passes(parallel: Parallel, micro_batches: usize) -> Vec<Action> {
    let Strategy::PipelineParallel { schedule, .. } = parallel.strategy else { return Vec::new() };
    let (ranks, rank) = (parallel.world_size as usize, parallel.rank as usize);
    let of_rank = parallel.stages_of_rank().count();
    match schedule {
        Schedule::GPipe => alternate(micro_batches, [1, micro_batches, micro_batches]),
        Schedule::OneForwardOneBackward => {
            alternate(micro_batches, [1, micro_batches, micro_batches.min(ranks - rank)])
        }
        Schedule::Interleaved => {
            let of_round = micro_batches / (micro_batches / ranks).max(1);
            let warmup = (of_rank - 1) * of_round + 2 * (ranks - 1 - rank);
            // The first backward pass comes behind the forward pass that it alternates with.
            alternate(micro_batches, [of_rank, of_round, (warmup + 1).min(of_rank * micro_batches)])
        }
    }
}

/// So many forward passes, then a backward and a forward pass in turn, then the other backward passes. A rank's stages take turns
/// after as many micro-batches as a round has, in backward from the last on.
fn alternate(micro_batches: usize, [stages, of_round, first]: [usize; 3]) -> Vec<Action> {
    let passes = stages * micro_batches;
    let place = |pass: usize| (pass / of_round % stages, pass / (of_round * stages) * of_round + pass % of_round);
    let forward = |pass: usize| {
        let (stage, micro_batch) = place(pass);
        Action::Forward { stage, micro_batch }
    };
    let backward = |pass: usize| {
        let (stage, micro_batch) = place(pass);
        Action::Backward { stage: stages - 1 - stage, micro_batch }
    };
    let ahead = (0..first).map(forward);
    let in_turn = (first..passes).flat_map(|pass| [backward(pass - first), forward(pass)]);
    ahead.chain(in_turn).chain((passes - first..passes).map(backward)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(schedule: Schedule, [world_size, rank, of_rank]: [u64; 3], micro_batches: usize) -> String {
        let strategy = Strategy::PipelineParallel { stages: world_size * of_rank, schedule };
        let action = |action: &Action| match action {
            Action::Forward { stage, micro_batch } => {
                format!("{}F{micro_batch}", stage * world_size as usize + rank as usize)
            }
            Action::Backward { stage, micro_batch } => {
                format!("{}B{micro_batch}", stage * world_size as usize + rank as usize)
            }
        };
        let actions = order_of_passes(Parallel { world_size, rank, strategy }, micro_batches);
        actions.iter().map(action).collect::<Vec<_>>().join(" ")
    }

    /// Beside `pipeline_order` of the schedules of PyTorch 2.11.
    #[test]
    fn passes_come_in_pytorchs_order() {
        assert_eq!(written(Schedule::GPipe, [2, 0, 1], 3), "0F0 0F1 0F2 0B0 0B1 0B2");
        assert_eq!(written(Schedule::OneForwardOneBackward, [3, 0, 1], 4), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
        assert_eq!(
            written(Schedule::Interleaved, [2, 0, 2], 4),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
        );
        assert_eq!(
            written(Schedule::Interleaved, [2, 0, 3], 3),
            "0F0 0F1 0F2 2F0 2F1 2F2 4F0 4F1 4F2 4B0 4B1 4B2 2B0 2B1 2B2 0B0 0B1 0B2"
        );
        assert_eq!(written(Schedule::Interleaved, [3, 1, 2], 2), "1F0 1F1 4F0 4F1 4B0 4B1 1B0 1B1");
        assert_eq!(
            written(Schedule::Interleaved, [2, 1, 2], 6),
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1F4 1B2 1F5 1B3 3F4 3B4 3F5 3B5 1B4 1B5"
        );
        // What `_step_microbatches` runs on the last stage.
        assert_eq!(written(Schedule::OneForwardOneBackward, [3, 2, 1], 3), "2F0 2B0 2F1 2B1 2F2 2B2");
    }
}
