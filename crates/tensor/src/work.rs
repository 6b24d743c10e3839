//! What a job computes: floating-point operations and bytes moved, phase by phase. `step` counts it while it records the
//! trace, `plan` makes time and money of it.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use tonnage_alloc::trace::{Phase, PhaseKind};

/// Floating-point operations by the dtype of their operands; a product of two numbers and its addition are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flops {
    /// In fp32, or TF32 where that is allowed; fp64 counts here too.
    pub float32: u64,
    /// Operations in bf16.
    pub bfloat16: u64,
    /// Operations in fp16.
    pub float16: u64,
}

impl Flops {
    /// `count` operations on operands of `dtype`.
    pub const fn new(dtype: DType, count: u64) -> Self {
        match dtype {
            DType::Bfloat16 => Self { float32: 0, bfloat16: count, float16: 0 },
            DType::Float16 => Self { float32: 0, bfloat16: 0, float16: count },
            _ => Self { float32: count, bfloat16: 0, float16: 0 },
        }
    }

    /// Of all dtypes.
    pub const fn total(&self) -> u64 {
        self.float32.saturating_add(self.bfloat16).saturating_add(self.float16)
    }

    /// Sums, saturating at the end of a `u64`.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            float32: self.float32.saturating_add(other.float32),
            bfloat16: self.bfloat16.saturating_add(other.bfloat16),
            float16: self.float16.saturating_add(other.float16),
        }
    }

    /// These `times` over.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self {
            float32: self.float32.saturating_mul(times),
            bfloat16: self.bfloat16.saturating_mul(times),
            float16: self.float16.saturating_mul(times),
        }
    }
}

/// Whether a count is left out where it is written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_nothing(count: &u64) -> bool {
    *count == 0
}

/// Operations, bytes and operators of a stretch of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// What matrix products and attention kernels compute. Recomputed layers count again.
    pub flops: Flops,
    /// What causal attention kernels leave out: the half above the diagonal. With `flops` it is what
    /// `torch.utils.flop_counter` counts, which takes every kernel for a full one.
    pub skipped_flops: Flops,
    /// Bytes that those products and kernels read and write.
    pub product_bytes: u64,
    /// Bytes that all other operators read and write. An operator reads as much as it writes, and its further operands.
    pub other_bytes: u64,
    /// Bytes that go between host and GPU, either way.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub link_bytes: u64,
    /// Tensors that operators made: about the number of kernels launched.
    pub launches: u64,
}

impl Amount {
    /// What `torch.utils.flop_counter` counts.
    pub const fn counted_flops(&self) -> Flops {
        self.flops.plus(self.skipped_flops)
    }

    /// Sums, saturating at the end of a `u64`.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            flops: self.flops.plus(other.flops),
            skipped_flops: self.skipped_flops.plus(other.skipped_flops),
            product_bytes: self.product_bytes.saturating_add(other.product_bytes),
            other_bytes: self.other_bytes.saturating_add(other.other_bytes),
            link_bytes: self.link_bytes.saturating_add(other.link_bytes),
            launches: self.launches.saturating_add(other.launches),
        }
    }

    /// This `times` over.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self {
            flops: self.flops.times(times),
            skipped_flops: self.skipped_flops.times(times),
            product_bytes: self.product_bytes.saturating_mul(times),
            other_bytes: self.other_bytes.saturating_mul(times),
            link_bytes: self.link_bytes.saturating_mul(times),
            launches: self.launches.saturating_mul(times),
        }
    }
}

/// The work of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseWork {
    /// The phase that the work falls in.
    pub phase: Phase,
    /// How often it happens: more than once where later passes are left out, which only repeat it.
    pub times: u64,
    /// What happens in it, once.
    pub amount: Amount,
}

impl PhaseWork {
    /// What happens in it, as often as it does.
    pub const fn total(&self) -> Amount {
        self.amount.times(self.times)
    }
}

/// The work of a job's process, phase by phase, in the order of [`tonnage_alloc::trace::Trace::phases`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// In the order in which they begin.
    pub phases: Vec<PhaseWork>,
    /// After so many steps the work repeats: more than one where completions serve several steps.
    pub cycle: u32,
}

impl Work {
    /// The optimizer steps that were run.
    pub fn steps_run(&self) -> u32 {
        let ends_step = |phase: &&PhaseWork| !matches!(phase.phase.kind, PhaseKind::Between | PhaseKind::End);
        self.phases.iter().filter(ends_step).map(|phase| phase.phase.step).max().unwrap_or(0)
    }

    /// The phases of a step, those of the same kind together, in the order they first come.
    pub fn phases_of_step(&self, step: u32) -> Vec<(PhaseKind, Amount)> {
        let mut kinds: Vec<(PhaseKind, Amount)> = Vec::new();
        for phase in self.phases.iter().filter(|phase| phase.phase.step == step) {
            add_amount(&mut kinds, phase.phase.kind, phase.total());
        }
        kinds
    }

    /// All that a step does.
    pub fn step(&self, step: u32) -> Amount {
        self.phases_of_step(step).into_iter().fold(Amount::default(), |sum, (_, amount)| sum.plus(amount))
    }

    /// The phases of the mean of the first `steps` steps. A step that was not run does what the last one in its place of
    /// the cycle did, or the last step if none was. A mean, because what a long training adds up to is beyond a `u64`.
    pub fn mean_of_steps(&self, steps: u64) -> Vec<(PhaseKind, Amount)> {
        let mut kinds: Vec<(PhaseKind, Total)> = Vec::new();
        for (step, times) in self.steps_that_happen(steps) {
            for (kind, amount) in self.phases_of_step(step) {
                let total = Total::of(&amount, times);
                match kinds.iter_mut().find(|(other, _)| *other == kind) {
                    Some((_, sum)) => *sum = sum.plus(&total),
                    None => kinds.push((kind, total)),
                }
            }
        }
        kinds.into_iter().map(|(kind, total)| (kind, total.over(steps))).collect()
    }

    /// The operations of the first `steps` steps.
    pub fn flops_of_steps(&self, steps: u64) -> f64 {
        let of_step = |(step, times): (u32, u64)| self.step(step).flops.total() as f64 * times as f64;
        self.steps_that_happen(steps).map(of_step).sum()
    }

    /// The steps that were run, and how often each happens among `steps`.
    fn steps_that_happen(&self, steps: u64) -> impl Iterator<Item = (u32, u64)> {
        let run = self.steps_run();
        (1..=run).map(move |step| (step, self.times_of_step(step, run, steps))).filter(|(_, times)| *times > 0)
    }

    /// How often step `step` of `run` that were run happens among `steps`.
    fn times_of_step(&self, step: u32, run: u32, steps: u64) -> u64 {
        let (step, run, cycle) = (u64::from(step), u64::from(run), u64::from(self.cycle.max(1)));
        if step > steps {
            return 0;
        }
        let missing = steps.saturating_sub(run);
        let in_its_place = if step + cycle > run { (steps - step) / cycle } else { 0 };
        if cycle <= run {
            return 1 + in_its_place;
        }
        // Places of the cycle that no step ran for are the last step's.
        let taken: u64 = (1..run).map(|other| (steps - other.min(steps)) / cycle).sum();
        if step == run { 1 + missing.saturating_sub(taken) } else { 1 + in_its_place }
    }
}

fn add_amount(kinds: &mut Vec<(PhaseKind, Amount)>, kind: PhaseKind, amount: Amount) {
    match kinds.iter_mut().find(|(other, _)| *other == kind) {
        Some((_, sum)) => *sum = sum.plus(amount),
        None => kinds.push((kind, amount)),
    }
}

/// Amounts of many steps: flops of the three dtypes, those skipped, bytes, launches and what goes to the host.
struct Total([u128; 10]);

impl Total {
    fn of(amount: &Amount, times: u64) -> Self {
        let of_dtypes = |flops: Flops| [flops.float32, flops.bfloat16, flops.float16];
        let [a, b, c] = of_dtypes(amount.flops);
        let [d, e, f] = of_dtypes(amount.skipped_flops);
        let counts = [a, b, c, d, e, f, amount.product_bytes, amount.other_bytes, amount.launches, amount.link_bytes];
        Self(counts.map(|count| u128::from(count) * u128::from(times)))
    }

    fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_add(other.0[at])))
    }

    /// Divided by `steps`, to the nearest whole.
    fn over(&self, steps: u64) -> Amount {
        let steps = u128::from(steps.max(1));
        let mean = self.0.map(|count| u64::try_from(count.saturating_add(steps / 2) / steps).unwrap_or(u64::MAX));
        let flops = |at: usize| Flops { float32: mean[at], bfloat16: mean[at + 1], float16: mean[at + 2] };
        Amount {
            flops: flops(0),
            skipped_flops: flops(3),
            product_bytes: mean[6],
            other_bytes: mean[7],
            launches: mean[8],
            link_bytes: mean[9],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of each of these many operations.
    fn work(flops: &[u64], cycle: u32) -> Work {
        let phase = |(at, &count): (usize, &u64)| PhaseWork {
            phase: Phase { kind: PhaseKind::Forward, step: at as u32 + 1 },
            times: 1,
            amount: Amount { flops: Flops::new(DType::Float32, count), ..Amount::default() },
        };
        Work { phases: flops.iter().enumerate().map(phase).collect(), cycle }
    }

    #[test]
    fn steps_that_were_not_run_repeat_those_in_their_place() {
        let cases = [
            (&[7, 5][..], 1, 1, 7),
            (&[7, 5], 1, 10, 7 + 9 * 5),
            (&[9, 1, 8, 1], 2, 7, 9 + 1 + 8 + 1 + 8 + 1 + 8),
            (&[9, 1, 1, 1, 8], 4, 10, 9 + 3 + 8 + 3 + 8 + 1),
            // A cycle of four of which two steps were run.
            (&[9, 1], 4, 8, 9 + 3 + 9 + 3),
            (&[9, 1], 4, 5, 9 + 3 + 9),
            (&[9], 4, 5, 45),
        ];
        for (flops, cycle, steps, total) in cases {
            let counted = work(flops, cycle).flops_of_steps(steps);
            assert_eq!(counted, f64::from(total), "{flops:?}, cycle {cycle}, {steps} steps");
        }
    }

    #[test]
    fn a_phase_counts_as_often_as_it_happens() {
        let mut work = work(&[7, 5], 1);
        work.phases[1].times = 3;
        assert_eq!(work.step(2).flops.total(), 15);
        let mean = Amount { flops: Flops::new(DType::Float32, 11), ..Amount::default() };
        assert_eq!(work.mean_of_steps(2), [(PhaseKind::Forward, mean)]);
    }

    #[test]
    fn a_mean_step_is_the_same_however_long_the_training() {
        let step = 48_590_000_000_000;
        for steps in [1, 1000, 518_071, 1 << 40] {
            assert_eq!(work(&[step], 1).mean_of_steps(steps)[0].1.flops.total(), step, "{steps} steps");
        }
        let [one, two] = [step, 2 * step].map(|flops| work(&[flops], 1).flops_of_steps(518_071));
        assert!((two / one - 2.0).abs() < 1e-12);
    }
}
