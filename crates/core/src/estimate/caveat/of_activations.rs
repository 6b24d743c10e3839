//! What is not known of activations that lie on the host.

use super::Caveat;
use crate::job::{CheckpointPolicy, JobSpec, OffloadHooks};
use crate::trace::Trace;

/// A layer's recomputation and backward are 128 kernels or more, of which CUDA queues 1,024.
const LAYERS_IN_FLIGHT: u64 = 8;

/// Where activations move, and are counted on the GPU all the same.
pub(super) fn activations_counted(job: &JobSpec, reserved: u64) -> [Option<Caveat>; 2] {
    if job.activation_offload.is_none() || job.simulated_offload().is_some() {
        return [None, None];
    }
    let text = "activations that go to the host are counted on the GPU: with shards, images and other loops that is not simulated, and \
                `tonnage rehearse` runs the script";
    let streams = "what moves them has memory of its own: the range allows a tenth of the peak";
    [
        Some(Caveat::saving("activations_counted", text, reserved)),
        Some(Caveat::adding("offload_pool", streams, reserved / 10)),
    ]
}

/// A layer's input that came back is given up while kernels still read it (`record_stream`), which is simulated as free at once: as
/// many as the host runs ahead may lie there beside.
pub(super) fn inputs_in_flight(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let streams = job.simulated_offload().is_some_and(|offload| offload.hooks == OffloadHooks::Streams);
    if !streams || job.gradient_checkpointing == CheckpointPolicy::Off {
        return None;
    }
    let largest = trace.allocations.iter().filter(|one| one.stream != 0).map(|one| one.bytes).max()?;
    let text = "inputs of layers that come back from the host are given up while kernels still read them: the range allows for those of \
                eight layers";
    Some(Caveat::adding("late_frees", text, largest.saturating_mul(LAYERS_IN_FLIGHT)))
}
