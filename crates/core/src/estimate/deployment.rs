//! [`Deployment`]: a job's processes on its GPUs. Processes share neither cache nor context, so what they need adds up.

use super::verdict::safety_margin;
use super::{Estimate, EstimateError, NO_SIZE, SimulatedJob, Verdict};
use crate::job::{GrpoSpec, JobSpec, ModelSpec, Parallel, Rollout, Strategy, SwarmSpec};
use crate::trace::PhaseKind;

/// The processes of a job, and the GPUs they are on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Deployment {
    /// Kinds of processes; those that need the same are one entry.
    pub processes: Vec<Process>,
    /// GPUs; those that carry the same are one entry.
    pub gpus: Vec<GpuLoad>,
    /// How many processes one GPU could hold, where they share it.
    pub room: Vec<Room>,
}

/// Processes that need the same.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Process {
    /// What it is called: `process`, `rank`, `node`, `judge`.
    pub name: &'static str,
    /// How many there are.
    pub count: u64,
    /// What one needs.
    pub estimate: Estimate,
}

/// GPUs that carry the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuLoad {
    /// The first one's index.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// Index into [`Deployment::processes`], and how many of them.
    pub processes: Vec<(usize, u64)>,
    /// What they need together, contexts included.
    pub total_bytes: u64,
    /// What surely is enough for them together.
    pub safe_bytes: u64,
    /// What the GPU has.
    pub usable_bytes: u64,
    /// Whether that fits.
    pub fit: Fit,
}

/// A verdict on a GPU; where a single process fails, its own [`Verdict`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It fits with room to spare.
    Fits,
    /// It fits with less room than the margin.
    Tight,
    /// What is known of it fits, and what is left out or unchecked has no bound.
    NotKnown,
    /// It does not fit.
    DoesNotFit,
}

/// How many processes a GPU could hold under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// How many may train at once; `None` is all.
    pub lease: Option<u64>,
    /// How many fit.
    pub processes: u64,
    /// What the job's own number of them on the fullest GPU needs.
    pub total_bytes: u64,
    /// What one of them holds.
    pub each: NodeBytes,
}

/// What a process holds that shares its GPU: `total_bytes` of a GPU is the sum of the expected, how many fit follows from what is
/// surely enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeBytes {
    /// While it trains, as expected.
    pub training: u64,
    /// While it waits for the lease, likewise.
    pub resting: u64,
    /// While it trains, with what is not known and a margin.
    pub safe_training: u64,
    /// While it waits, likewise.
    pub safe_resting: u64,
}

impl GpuLoad {
    /// Whether several processes share it.
    pub fn is_shared(&self) -> bool {
        self.processes.iter().map(|(_, count)| count).sum::<u64>() > 1
    }
}

impl Fit {
    const fn of_one(estimate: &Estimate) -> Self {
        match &estimate.verdict {
            Verdict::Fits => Self::Fits,
            Verdict::Tight { .. } => Self::tight(estimate.safe_bytes),
            Verdict::DoesNotFit(_) => Self::DoesNotFit,
        }
    }

    /// Of a job that runs with what is known, and for which `safe_bytes` surely are enough.
    const fn tight(safe_bytes: u64) -> Self {
        if safe_bytes == NO_SIZE { Self::NotKnown } else { Self::Tight }
    }

    /// Whether it runs, tightly or not.
    pub const fn fits(self) -> bool {
        matches!(self, Self::Fits | Self::Tight)
    }

    /// Whether nothing says that it does not fit.
    pub const fn may_fit(self) -> bool {
        self.fits() || matches!(self, Self::NotKnown)
    }
}

impl Deployment {
    /// The processes of `simulated`, whose own process needs `estimate`.
    ///
    /// # Errors
    /// When a second process cannot be estimated.
    pub fn new(simulated: &SimulatedJob<'_>, estimate: Estimate) -> Result<Self, EstimateError> {
        let job = simulated.job();
        if let Some(swarm) = job.task.swarm() {
            return Self::of_swarm(swarm, simulated, estimate);
        }
        match job.task.grpo() {
            _ if job.parallel.strategy == Strategy::DataParallel && job.parallel.world_size > 1 => {
                Self::of_data_parallel(job, estimate)
            }
            _ if matches!(job.parallel.strategy, Strategy::PipelineParallel { .. }) => Self::of_pipeline(job, estimate),
            _ if job.parallel.world_size > 1 => Ok(Self::alone("rank", job.parallel.world_size, estimate)),
            Some(grpo) => Self::of_grpo(job, grpo, estimate),
            None => Ok(Self::alone("process", 1, estimate)),
        }
    }

    /// Whether there is more to say than one process on one GPU.
    pub fn is_spread(&self) -> bool {
        self.gpus.iter().map(|gpu| gpu.count).sum::<u64>() > 1 || self.processes.iter().any(|p| p.count > 1)
    }

    /// The worst of its GPUs.
    pub fn fit(&self) -> Fit {
        self.gpus.iter().map(|gpu| gpu.fit).max().unwrap_or(Fit::Fits)
    }

    /// The GPU with the least room.
    pub fn fullest(&self) -> Option<&GpuLoad> {
        self.gpus.iter().max_by_key(|gpu| (gpu.fit, gpu.total_bytes))
    }

    /// As many GPUs as processes, one each.
    fn alone(name: &'static str, count: u64, estimate: Estimate) -> Self {
        let gpu = GpuLoad {
            first: 0,
            count,
            processes: vec![(0, 1)],
            total_bytes: estimate.total_bytes,
            safe_bytes: estimate.safe_bytes,
            usable_bytes: estimate.usable_bytes,
            fit: Fit::of_one(&estimate),
        };
        Self { processes: vec![Process { name, count, estimate }], gpus: vec![gpu], room: Vec::new() }
    }

    /// The trainer, and the judge where it has a GPU of its own.
    fn of_grpo(job: &JobSpec, grpo: &GrpoSpec, estimate: Estimate) -> Result<Self, EstimateError> {
        let trainer = Self::alone("process", 1, estimate);
        // An engine for the rollout is beside the trainer, not beside the judge.
        let apart = GrpoSpec { rollout: Rollout::Generate, ..grpo.clone() }.into();
        // What others counted is the judge's own here, not the policy's.
        let beside = grpo.judge.as_ref().map(|judge| judge.model.beside.clone()).unwrap_or_default();
        let model = ModelSpec { beside, ..job.model.clone() };
        let job = JobSpec { task: apart, model, ..job.clone() };
        match SimulatedJob::of_judge(&job)? {
            Some(judge) => Ok(trainer.beside(Self::alone("judge", 1, judge.estimate()?))),
            None => Ok(trainer),
        }
    }

    /// One process that holds more on its first GPU than on the others.
    fn of_data_parallel(job: &JobSpec, estimate: Estimate) -> Result<Self, EstimateError> {
        let other = JobSpec { parallel: Parallel { rank: 1, ..job.parallel }, ..job.clone() };
        let others = Self::alone("replica", job.parallel.world_size - 1, super::estimate(&other)?);
        Ok(Self::alone("process", 1, estimate).beside(others))
    }

    /// One or several stages on each GPU, each with other layers and another number of passes in flight.
    fn of_pipeline(job: &JobSpec, first: Estimate) -> Result<Self, EstimateError> {
        let name = if job.parallel.stages_of_rank().count() > 1 { "rank" } else { "stage" };
        let of_each = job.parallel.replicas().max(1);
        let mut stages = Self::alone(name, of_each, first);
        for place in 1..job.parallel.place_in_pipeline().0 {
            let parallel = Parallel { rank: place * of_each, ..job.parallel };
            let stage = JobSpec { parallel, ..job.clone() };
            stages = stages.beside(Self::alone(name, of_each, super::estimate(&stage)?));
        }
        Ok(stages)
    }

    /// These processes and GPUs, and after them those of `other`.
    fn beside(mut self, other: Self) -> Self {
        let (processes, gpus) = (self.processes.len(), self.gpus.iter().map(|gpu| gpu.count).sum::<u64>());
        self.processes.extend(other.processes);
        self.gpus.extend(other.gpus.into_iter().map(|gpu| GpuLoad {
            first: gpu.first + gpus,
            processes: gpu.processes.iter().map(|(process, count)| (process + processes, *count)).collect(),
            ..gpu
        }));
        self
    }

    /// Nodes are dealt to the GPUs in turn.
    fn of_swarm(swarm: &SwarmSpec, simulated: &SimulatedJob<'_>, estimate: Estimate) -> Result<Self, EstimateError> {
        let node = Node::new(&estimate);
        let (each, more) = (swarm.nodes / swarm.gpus, swarm.nodes % swarm.gpus);
        let usable = estimate.usable_bytes;
        let mut gpus = Vec::new();
        for (first, count, nodes) in [(0, more, each + 1), (more, swarm.gpus - more, each)] {
            if count == 0 || nodes == 0 {
                continue;
            }
            let fit = match nodes {
                1 => Fit::of_one(&estimate),
                _ => node.fit(simulated, usable, nodes, swarm.lease)?,
            };
            gpus.push(GpuLoad {
                first,
                count,
                processes: vec![(0, nodes)],
                total_bytes: node.total.bytes_together(nodes, swarm.lease),
                safe_bytes: node.safe.bytes_together(nodes, swarm.lease),
                usable_bytes: usable,
                fit,
            });
        }
        let most = gpus.first().map_or(0, |gpu| gpu.processes[0].1);
        let leases =
            [None, Some(1), Some(2), Some(4)].into_iter().filter(|lease| lease.is_none_or(|k| k < most.max(2)));
        let room = leases.map(|lease| node.room_for(usable, most, lease)).collect();
        Ok(Self { processes: vec![Process { name: "node", count: swarm.nodes, estimate }], gpus, room })
    }
}

/// One of several processes on a GPU. None can make another give its cache back.
struct Node {
    /// When memory is plenty.
    total: Holds,
    /// With what is not known, and a margin.
    safe: Holds,
    /// With nothing but the live requests of its peak, which no flushing makes less, and the context at its lowest.
    live: Holds,
    /// The context at its lowest.
    context: u64,
    /// How much less one may need than it was simulated to.
    less: u64,
}

/// What one holds.
#[derive(Clone, Copy)]
struct Holds {
    /// While it trains.
    training: u64,
    /// Between the emptying of its cache and the next training pass.
    resting: u64,
}

impl Holds {
    /// What `nodes` hold of which at most `lease` train at once.
    fn bytes_together(&self, nodes: u64, lease: Option<u64>) -> u64 {
        let training = lease.unwrap_or(nodes).min(nodes);
        self.training.saturating_mul(training).saturating_add(self.resting.saturating_mul(nodes - training))
    }
}

impl Node {
    fn new(estimate: &Estimate) -> Self {
        let rests = |kind: PhaseKind| matches!(kind, PhaseKind::Load | PhaseKind::Generate | PhaseKind::Input);
        let resting = estimate.peak_per_phase.iter().filter(|peak| rests(peak.phase.kind)).map(|peak| peak.reserved);
        let resting = resting.max().unwrap_or(estimate.peak_reserved_bytes);
        let (low, context) = (estimate.outside.low, estimate.outside.high);
        let unknown = estimate.range.1 - estimate.total_bytes;
        let less = (estimate.total_bytes - context + low).saturating_sub(estimate.range.0);
        Self {
            total: Holds { training: estimate.total_bytes, resting: resting + context },
            safe: Holds {
                training: estimate.safe_bytes,
                resting: (resting + context + safety_margin(resting)).saturating_add(unknown),
            },
            live: Holds {
                training: (estimate.rounded512_peak_bytes + low).saturating_sub(less),
                resting: (resting + low).saturating_sub(less),
            },
            context: low,
            less,
        }
    }

    /// The verdict on a GPU that `nodes` share. They need not reach their peaks at one moment, and flush their own caches:
    /// it is certain that they do not fit when not even the least that each can train with adds up.
    fn fit(
        &self,
        simulated: &SimulatedJob<'_>,
        usable: u64,
        nodes: u64,
        lease: Option<u64>,
    ) -> Result<Fit, EstimateError> {
        if self.safe.bytes_together(nodes, lease) <= usable {
            return Ok(Fit::Fits);
        }
        if self.live.bytes_together(nodes, lease) > usable {
            return Ok(Fit::DoesNotFit);
        }
        let training = lease.unwrap_or(nodes).min(nodes);
        let rest = self.live.resting.saturating_mul(nodes - training);
        let share = usable.saturating_sub(rest) / training.max(1);
        let goes = simulated.goes_through(share.saturating_sub(self.context).saturating_add(self.less))?;
        Ok(if goes { Fit::tight(self.safe.training) } else { Fit::DoesNotFit })
    }

    /// How many surely fit into `usable` bytes, and what `nodes` of them need.
    fn room_for(&self, usable: u64, nodes: u64, lease: Option<u64>) -> Room {
        let all_train = usable / self.safe.training.max(1);
        let processes = match lease {
            Some(lease) if all_train >= lease => {
                lease + usable.saturating_sub(self.safe.training.saturating_mul(lease)) / self.safe.resting.max(1)
            }
            _ => all_train,
        };
        let each = NodeBytes {
            training: self.total.training,
            resting: self.total.resting,
            safe_training: self.safe.training,
            safe_resting: self.safe.resting,
        };
        Room { lease, processes, total_bytes: self.total.bytes_together(nodes, lease), each }
    }
}
