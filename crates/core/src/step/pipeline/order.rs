//! In which order a rank runs forward and backward passes of its stages (torch/distributed/pipelining/schedules.py, PyTorch 2.11).

use crate::job::{Parallel, Schedule, Strategy};

/// What a schedule does with a stage of the rank: a pass of a micro-batch, both counted from 0, or what comes between passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Forward {
        stage: usize,
        micro_batch: usize,
    },
    Backward {
        stage: usize,
        micro_batch: usize,
    },
    /// `REDUCE_GRAD`, behind the last pass of a step.
    Reduce {
        stage: usize,
    },
    /// `UNSHARD` and `RESHARD`, of interleaved stages alone.
    Unshard {
        stage: usize,
    },
    Reshard {
        stage: usize,
    },
}

impl Action {
    /// The stage of a pass.
    const fn stage(self) -> usize {
        match self {
            Self::Forward { stage, .. }
            | Self::Backward { stage, .. }
            | Self::Reduce { stage }
            | Self::Unshard { stage }
            | Self::Reshard { stage } => stage,
        }
    }
}

/// All of a step: its passes, and what comes between them.
pub(super) fn order_of_actions(parallel: Parallel, micro_batches: usize) -> Vec<Action> {
    let passes = order_of_passes(parallel, micro_batches);
    match parallel.strategy {
        Strategy::PipelineParallel { schedule: Schedule::Interleaved, .. } => {
            with_shards(&passes, parallel.stages_of_rank().count(), micro_batches)
        }
        // A schedule of one stage reduces when all is over.
        _ => passes.into_iter().chain([Action::Reduce { stage: 0 }]).collect(),
    }
}

/// Stages whose passes come next and which are gathered for them (`max_active_stages`).
const GATHERED_AHEAD: usize = 3;

/// `_add_unshard_reshard` and `_add_reduce_grad`.
fn with_shards(passes: &[Action], of_rank: usize, micro_batches: usize) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut gathered: Vec<usize> = Vec::new();
    for (at, pass) in passes.iter().enumerate() {
        let next = next_stages(&passes[at..], GATHERED_AHEAD.min(of_rank));
        let is_over = |stage: &usize| !next.contains(stage);
        actions.extend(gathered.extract_if(.., |stage| is_over(stage)).map(|stage| Action::Reshard { stage }));
        let ahead: Vec<usize> = next.iter().filter(|stage| !gathered.contains(stage)).copied().collect();
        actions.extend(ahead.iter().map(|&stage| Action::Unshard { stage }));
        gathered.extend(ahead);
        actions.push(*pass);
        if let Action::Backward { stage, micro_batch } = *pass
            && micro_batch + 1 == micro_batches
        {
            actions.push(Action::Reduce { stage });
        }
    }
    actions.extend(gathered.into_iter().map(|stage| Action::Reshard { stage }));
    actions
}

/// The first stages that passes run through, at most so many.
fn next_stages(passes: &[Action], most: usize) -> Vec<usize> {
    let mut stages = Vec::new();
    for pass in passes {
        if stages.len() == most {
            break;
        }
        if !stages.contains(&pass.stage()) {
            stages.push(pass.stage());
        }
    }
    stages
}

/// All passes of a step.
fn order_of_passes(parallel: Parallel, micro_batches: usize) -> Vec<Action> {
    let Strategy::PipelineParallel { schedule, .. } = parallel.strategy else { return Vec::new() };
    let (ranks, rank) = parallel.place_in_pipeline();
    let (ranks, rank) = (ranks as usize, rank as usize);
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
        let strategy = Strategy::PipelineParallel { stages: world_size * of_rank, schedule, replicas: None };
        let passes = order_of_passes(Parallel { world_size, rank, strategy }, micro_batches);
        words(&passes, [world_size, rank])
    }

    fn words(actions: &[Action], [world_size, rank]: [u64; 2]) -> String {
        let word = |action: &Action| {
            let stage = action.stage() * world_size as usize + rank as usize;
            match action {
                Action::Forward { micro_batch, .. } => format!("{stage}F{micro_batch}"),
                Action::Backward { micro_batch, .. } => format!("{stage}B{micro_batch}"),
                Action::Reduce { .. } => format!("{stage}REDUCE_GRAD"),
                Action::Unshard { .. } => format!("{stage}UNSHARD"),
                Action::Reshard { .. } => format!("{stage}RESHARD"),
            }
        };
        actions.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Beside what `_add_unshard_reshard` and `_add_reduce_grad` of PyTorch 2.11 make of the same passes.
    #[test]
    fn stages_are_gathered_before_they_are_needed_and_reduced_behind_their_last_pass() {
        let all = |of_rank: u64, rank, micro_batches| {
            let strategy =
                Strategy::PipelineParallel { stages: 2 * of_rank, schedule: Schedule::Interleaved, replicas: None };
            let parallel = Parallel { world_size: 2, rank, strategy };
            words(&order_of_actions(parallel, micro_batches), [2, rank])
        };
        assert_eq!(
            all(2, 0, 4),
            "0UNSHARD 2UNSHARD 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 2REDUCE_GRAD 2RESHARD 0B2 0B3 \
             0REDUCE_GRAD 0RESHARD"
        );
        assert_eq!(
            all(4, 1, 2),
            "1UNSHARD 3UNSHARD 5UNSHARD 1F0 1F1 1RESHARD 7UNSHARD 3F0 3F1 5F0 5F1 7F0 7B0 7F1 7B1 7REDUCE_GRAD 7RESHARD 1UNSHARD \
             5B0 5B1 5REDUCE_GRAD 5RESHARD 3B0 3B1 3REDUCE_GRAD 3RESHARD 1B0 1B1 1REDUCE_GRAD 1RESHARD"
        );
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
