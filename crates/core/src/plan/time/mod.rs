//! How long a job takes, and what that costs: the work of its phases over the rates of a GPU, as a range, with its basis in
//! words.

mod assumption;
mod bill;
mod communication;
mod cost;
mod measured;
mod step;

pub use assumption::{Assumption, assumptions};
pub(super) use bill::bill_of_step;
pub use bill::{Bill, STEPS_OF_A_SAMPLE, Scale, bill_of, gpus_taken, price_of};
pub use communication::{Communication, communication_of};
pub use cost::{Costs, Run, cost_factor, costs_of};
pub use measured::Measured;
pub use step::{Part, StepTime, step_time};

use serde::Serialize;

use crate::gpu::{Gpu, Rates};
use crate::trace::PhaseKind;
use crate::work::{Amount, Work};

use assumption::assumed_range;

/// From the best to the worst that may be expected, and what is likely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// The low end.
    pub low: f64,
    /// What is likely.
    pub typical: f64,
    /// The high end.
    pub high: f64,
}

impl Range {
    /// A figure without doubt.
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, typical: value, high: value }
    }

    /// Low with low, high with high.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    /// Each end times that of the other.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }

    /// This `factor` times over.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        self.times(Self::exactly(factor))
    }

    fn max(self, other: Self) -> Self {
        self.with(other, f64::max)
    }

    fn with(self, other: Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            low: combine(self.low, other.low),
            typical: combine(self.typical, other.typical),
            high: combine(self.high, other.high),
        }
    }
}

/// A time in seconds, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Time {
    /// Of one optimizer step.
    pub seconds: Range,
    /// How it was found, in words.
    pub basis: String,
}

/// What decides how long a phase takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Matrix products hold it back.
    Compute,
    /// Bytes to and from memory.
    Memory,
    /// The host, which cannot launch kernels as fast as they run.
    Host,
}

/// The time of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PhaseTime {
    /// The kind, over all passes of the step.
    pub phase: PhaseKind,
    /// Of one optimizer step.
    pub seconds: Range,
    /// What takes most of the likely time.
    pub bound: Bound,
}

/// How fast one GPU runs.
#[derive(Clone, Debug)]
pub struct Speed {
    name: String,
    rates: Rates,
    allow_tf32: bool,
    /// Processes that take turns on the GPU.
    processes: u64,
    /// How many of them train at once.
    lease: u64,
}

impl Speed {
    /// The speed of a GPU; `None` where its rates are not known. `allow_tf32` is
    /// `torch.set_float32_matmul_precision("high")`, which PyTorch leaves off.
    pub fn new(gpu: &Gpu, allow_tf32: bool) -> Option<Self> {
        Some(Self { name: gpu.name.clone(), rates: gpu.rates?, allow_tf32, processes: 1, lease: 1 })
    }

    /// The speed that `processes` see of a GPU that they share: kernels take turns, hosts run side by side, those of
    /// training passes at most `lease` at once.
    #[must_use]
    pub fn shared(self, processes: u64, lease: Option<u64>) -> Self {
        let processes = processes.max(1);
        Self { processes, lease: lease.unwrap_or(processes).clamp(1, processes), ..self }
    }

    /// The rates it reckons with.
    pub const fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The time of `steps` optimizer steps from the first, without communication.
    pub fn steps(&self, work: &Work, steps: u64) -> Time {
        let Time { seconds, basis } = self.step(work, steps);
        Time { seconds: seconds.scaled(steps as f64), basis }
    }

    /// The mean time of a step in a job of `steps`.
    pub fn step(&self, work: &Work, steps: u64) -> Time {
        let seconds = self.phase_times(work, steps).iter().fold(Range::default(), |sum, phase| sum.plus(phase.seconds));
        Time { seconds, basis: self.basis() }
    }

    /// The time of each kind of phase in the mean of `steps` steps.
    pub fn phase_times(&self, work: &Work, steps: u64) -> Vec<PhaseTime> {
        let phases = work.mean_of_steps(steps).into_iter();
        phases.map(|(phase, amount)| self.phase_time(phase, &amount)).collect()
    }

    /// How the times are found, in words.
    pub fn basis(&self) -> String {
        let share = |name| {
            let Range { low, high, .. } = assumed_range(name);
            format!("{:.0}-{:.0} %", low * 100.0, high * 100.0)
        };
        let tf32 = if self.allow_tf32 && self.rates.tf32.is_some() { " with TF32" } else { "" };
        format!(
            "simulated operations and bytes over the datasheet rates of {}{tf32}, of which products reach {}, other kernels {} \
             of the bandwidth, and {:.0}-{:.0} us of the host a kernel; not measured",
            self.name,
            share("tensor_cores"),
            share("bandwidth"),
            assumed_range("microseconds_per_launch").low,
            assumed_range("microseconds_per_launch").high,
        )
    }

    fn phase_time(&self, phase: PhaseKind, amount: &Amount) -> PhaseTime {
        let compute = self.compute_seconds(amount);
        let operands = self.memory_seconds(amount.product_bytes);
        // Whether products wait for their operands differs between the products of a phase (prompts and generated tokens):
        // at best all of one kind hide in the other, at worst they add up.
        let products = Range { high: compute.high + operands.high, ..compute.max(operands) };
        let other = self.memory_seconds(amount.other_bytes);
        let turns = if is_leased(phase) { self.processes.div_ceil(self.lease) } else { 1 };
        let launches = amount.launches.saturating_mul(turns);
        let host = assumed_range("microseconds_per_launch").scaled(launches as f64 / 1e6);
        let device = products.plus(other).scaled(self.processes as f64);
        let waits = if operands.typical > compute.typical { operands.typical } else { 0.0 };
        let memory = (other.typical + waits) * self.processes as f64;
        let bound = match () {
            () if host.typical > device.typical => Bound::Host,
            () if memory > device.typical / 2.0 => Bound::Memory,
            () => Bound::Compute,
        };
        PhaseTime { phase, seconds: device.max(host), bound }
    }

    fn compute_seconds(&self, amount: &Amount) -> Range {
        let Rates { float32, tf32, bfloat16, float16, .. } = self.rates;
        let flops = amount.flops;
        let single = tf32.filter(|_| self.allow_tf32);
        [(flops.float32, single), (flops.bfloat16, bfloat16), (flops.float16, float16)]
            .into_iter()
            .map(|(flops, tensor_cores)| match tensor_cores {
                Some(rate) => seconds_at(flops, rate, assumed_range("tensor_cores")),
                // Types that the tensor cores lack run on CUDA cores.
                None => seconds_at(flops, float32, assumed_range("cuda_cores")),
            })
            .fold(Range::default(), Range::plus)
    }

    fn memory_seconds(&self, bytes: u64) -> Range {
        seconds_at(bytes, self.rates.bandwidth, assumed_range("bandwidth"))
    }
}

/// Whether a phase is one between forward pass and optimizer, for which a lease is asked.
const fn is_leased(phase: PhaseKind) -> bool {
    !matches!(phase, PhaseKind::Load | PhaseKind::Generate | PhaseKind::Input)
}

/// The time of `amount` at shares of a rate.
fn seconds_at(amount: u64, rate: u64, share: Range) -> Range {
    let at_peak = amount as f64 / rate.max(1) as f64;
    Range { low: at_peak / share.high, typical: at_peak / share.typical, high: at_peak / share.low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::gpu;
    use crate::work::Flops;

    fn speed(gpu: &str) -> Speed {
        Speed::new(&gpu::find_gpu(gpu).unwrap().gpu(), false).unwrap()
    }

    #[test]
    fn a_phase_is_bound_by_what_takes_longest() {
        let amount = Amount { flops: Flops::new(DType::Bfloat16, 312_000_000_000_000), ..Amount::default() };
        let compute = speed("a100-80").phase_time(PhaseKind::Forward, &amount);
        assert_eq!(compute.bound, Bound::Compute);
        assert!((compute.seconds.typical - 1.0 / 0.6).abs() < 1e-9);
        let memory = Amount { other_bytes: 2_039_000_000_000_000, ..amount };
        assert_eq!(speed("a100-80").phase_time(PhaseKind::Forward, &memory).bound, Bound::Memory);
        let host = Amount { launches: 1_000_000_000, ..memory };
        assert_eq!(speed("a100-80").phase_time(PhaseKind::Forward, &host).seconds.typical, 8000.0);
    }

    #[test]
    fn types_without_tensor_cores_run_on_cuda_cores() {
        let bf16 = Amount { flops: Flops::new(DType::Bfloat16, 1 << 40), ..Amount::default() };
        let single = Amount { flops: Flops::new(DType::Float32, 1 << 40), ..Amount::default() };
        assert_eq!(speed("v100-16").compute_seconds(&bf16), speed("v100-16").compute_seconds(&single));
        let tf32 = Speed::new(&gpu::find_gpu("a100-80").unwrap().gpu(), true).unwrap();
        assert!(tf32.compute_seconds(&single).high < speed("a100-80").compute_seconds(&single).low);
    }

    #[test]
    fn processes_take_turns_on_a_gpu() {
        let compute = Amount { flops: Flops::new(DType::Bfloat16, 312_000_000_000_000), ..Amount::default() };
        let host = Amount { launches: 1_000_000, ..Amount::default() };
        let time = |speed: Speed, amount| speed.phase_time(PhaseKind::Forward, amount).seconds.typical;
        let alone = |amount| time(speed("a100-80"), amount);
        let shared = |amount, lease| time(speed("a100-80").shared(8, lease), amount);
        assert_eq!(shared(&compute, None), 8.0 * alone(&compute));
        assert_eq!((shared(&host, None), shared(&host, Some(1))), (alone(&host), 8.0 * alone(&host)));
        assert_eq!(shared(&compute, Some(1)), shared(&compute, None), "kernels take turns anyway");
        assert_eq!(shared(&host, Some(4)), 2.0 * alone(&host));
    }

    #[test]
    fn a_gpu_of_unknown_rates_has_no_speed() {
        assert!(Speed::new(&Gpu::parse("24GiB").unwrap(), false).is_none());
    }
}
