//! Activations on the host until backward asks for them.

use super::{Applied, Remedy, Results, already_done, change_one, not_for};
use crate::job::{Framework, JobSpec, keys};

pub(super) const TO_HOST: Remedy = Remedy {
    name: "activation_offload",
    text: "keep activations on the host until backward asks for them",
    results: Results::Same,
    caution: "what goes over the link while kernels run costs no time; the host must have the memory",
    apply: offload_activations,
};

fn offload_activations(job: &JobSpec) -> Applied {
    if job.activation_offload.is_some() {
        return already_done("they are on the host already");
    }
    if !job.task.trains() || !job.train_mode {
        return not_for("nothing is kept for a backward pass");
    }
    let hooks = if job.framework == Framework::Trl { "streams" } else { "save_on_cpu" };
    change_one(keys::ACTIVATION_OFFLOADING, hooks)
}
