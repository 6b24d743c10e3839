//! What depends on when other streams are done with memory.

use super::Caveat;
use crate::job::{JobSpec, Strategy};
use crate::parallel::gathered_layer;
use crate::trace::Trace;

/// Layers whose parameters may be on their way before the first has gone (torch/distributed/fsdp/_limiter_utils.py).
const LAYERS_IN_FLIGHT: u64 = 2;

/// FSDP1 frees what other streams still read (`record_stream`): it is free when they are done, which is simulated as at once.
/// Its limiter keeps the host from running ahead by more than two layers: their parameters, the gradients of each parameter and of
/// all together, and those as they are reduced.
pub(super) fn late_frees(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let Strategy::Fsdp1(options) = job.parallel.strategy else { return None };
    let gathered = gathered_layer(&options, trace);
    let size = options.param_dtype.unwrap_or(job.precision.weight_dtype()).size().max(1);
    let reduced = gathered / size * options.reduce_dtype.map_or(size, |dtype| dtype.size());
    let of_layer = gathered.saturating_mul(3).saturating_add(reduced);
    let text = "FSDP1 gives memory back when other streams are done with it, which is simulated as at once: the range allows for what \
                two layers gather and reduce";
    Some(Caveat::adding("late_frees", text, of_layer.saturating_mul(LAYERS_IN_FLIGHT)))
}
