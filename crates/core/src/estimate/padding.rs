//! What rows of unequal length would take more, where nobody said whether there are any: a second simulation, in which masks hide
//! something. SDPA then gets a mask in every layer, and grouped heads' keys and values are repeated for it (transformers 5.17,
//! integrations/sdpa_attention.py).

use std::cell::OnceCell;

use super::Caveat;
use super::other_devices::OtherDevices;
use crate::alloc::counted_peaks;
use crate::gpu::Device;
use crate::job::{Attention, Framework, JobSpec, Task};
use crate::step;
use crate::trace::Trace;
use crate::units::Bytes;

/// The second simulation of a job, made when it is first asked for.
pub(super) struct Padding {
    /// The other devices that will be asked about.
    others: Vec<Device>,
    /// Of how many replays its own is one.
    replays: u64,
    padded: OnceCell<Result<PaddedJob, Unpadded>>,
}

/// That padded rows could not be simulated, on no device.
struct Unpadded {
    /// So many events were simulated to find that out.
    events: usize,
}

struct PaddedJob {
    /// How long its trace is.
    events: usize,
    /// Of a device that is asked about; `None` where it is more than any GPU has.
    reserved: OnceCell<Option<u64>>,
    /// For other devices, if there are any.
    trace: Option<(Trace, OtherDevices)>,
}

impl Padding {
    pub(super) fn new(others: &[Device], replays: u64) -> Self {
        Self { others: others.to_vec(), replays, padded: OnceCell::new() }
    }

    /// The same on the other device at this place. Where padded rows run another program there, they are simulated for that
    /// device alone.
    pub(super) fn moved(self, at: usize) -> Self {
        let padded = match self.padded.into_inner() {
            Some(Ok(padded)) => padded.moved(at).map_or_else(OnceCell::new, |padded| OnceCell::from(Ok(padded))),
            // More than is simulated is so on every device.
            Some(Err(unpadded)) => OnceCell::from(Err(unpadded)),
            // Nobody asked so far: who does will ask for the others too.
            None => return Self { padded: OnceCell::new(), ..self },
        };
        Self { others: Vec::new(), padded, ..self }
    }

    /// How long its trace is, or was when it was given up; 0 where there is none yet.
    pub(super) fn events(&self) -> usize {
        let events =
            |padded: &Result<PaddedJob, Unpadded>| padded.as_ref().map_or_else(|un| un.events, |job| job.events);
        self.padded.get().map_or(0, events)
    }

    /// What the range allows for padded rows of a job that was simulated without, and reserves `reserved` bytes.
    pub(super) fn caveat(&self, job: &JobSpec, reserved: u64) -> Option<Caveat> {
        if !may_be_padded(job) {
            return None;
        }
        let padded = self.padded.get_or_init(|| PaddedJob::simulate(job, &self.others, self.replays));
        caveat_of(padded.as_ref().ok().and_then(|padded| padded.reserved_on(job)), reserved)
    }
}

impl PaddedJob {
    fn simulate(job: &JobSpec, others: &[Device], replays: u64) -> Result<Self, Unpadded> {
        let padded = JobSpec { padded: Some(true), ..job.clone() };
        let mut simulation =
            step::try_to_simulate(&padded, others, replays).map_err(|(_, events)| Unpadded { events })?;
        let other_devices = OtherDevices::new(&simulation.trace, simulation.other_sizes);
        simulation.trace.bound_replay(replays);
        let reserved = OnceCell::from(reserved_of(&simulation.trace, job));
        let events = simulation.trace.events.len();
        Ok(Self { events, reserved, trace: (!others.is_empty()).then_some((simulation.trace, other_devices)) })
    }

    fn moved(mut self, at: usize) -> Option<Self> {
        let (mut trace, mut other_devices) = self.trace.take().filter(|(_, others)| others.runs_on(at))?;
        let is_same = other_devices.resize_trace(&mut trace, at);
        let reserved = if is_same { self.reserved } else { OnceCell::new() };
        Some(Self { reserved, trace: Some((trace, other_devices)), ..self })
    }

    /// A replay, where its device was not asked about before.
    fn reserved_on(&self, job: &JobSpec) -> Option<u64> {
        *self.reserved.get_or_init(|| self.trace.as_ref().and_then(|(trace, _)| reserved_of(trace, job)))
    }
}

fn reserved_of(trace: &Trace, job: &JobSpec) -> Option<u64> {
    counted_peaks(trace, &job.allocator).map(|peaks| peaks.reserved)
}

fn caveat_of(padded: Option<u64>, reserved: u64) -> Option<Caveat> {
    let Some(padded) = padded else {
        let text = "rows are taken to be of one length; padded ones could not be simulated, so that no upper bound is known; \
                    padded = false says that there are none";
        return Some(Caveat::remark("padded_rows", text).open());
    };
    let more = padded.saturating_sub(reserved);
    let text = format!(
        "rows are taken to be of one length, as packed ones are: padded ones need a mask in every layer and take {} more, which the \
         range allows for; padded = true simulates them, padded = false says that there are none",
        Bytes(more)
    );
    (more > 0).then(|| Caveat::adding("padded_rows", text, more))
}

/// Whether a collator or a tokenizer pads its rows, for all that is known. A plain loop passes a mask where it is said.
fn may_be_padded(job: &JobSpec) -> bool {
    let rows = match job.task {
        Task::CausalLm
        | Task::MaskedLm
        | Task::Seq2SeqLm(_)
        | Task::SequenceClassification
        | Task::TokenClassification
        | Task::Contrastive
            if job.framework != Framework::Loop =>
        {
            job.micro_batch_size
        }
        Task::Generate | Task::Kto(_) | Task::Gkd(_) | Task::Embedding(_) => job.micro_batch_size,
        // Those of an update are generated together.
        Task::Ppo(_) => job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps),
        // An answer and the one that was rejected.
        Task::Dpo(_) | Task::Pairs(_) | Task::Reward(_) => job.micro_batch_size.saturating_mul(2),
        _ => return false,
    };
    job.padded.is_none()
        && !job.model.facts().hears
        && !job.padding_free
        && rows > 1
        && matches!(job.attention, Attention::Sdpa | Attention::Eager)
}
