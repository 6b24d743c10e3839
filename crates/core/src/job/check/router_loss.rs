//! What the loss that balances experts can be asked with.

use crate::job::{JobError, JobSpec, Rollout, Task};

/// Refuses what transformers itself stops at: `generate` hands over a mask of all tokens, of which a decoded one is compared with each.
pub(super) fn check_router_loss(job: &JobSpec) -> Result<(), JobError> {
    let generates = match &job.task {
        Task::Generate | Task::Swarm(_) => true,
        Task::Grpo(grpo) => grpo.rollout == Rollout::Generate,
        _ => false,
    };
    let field = "output_router_logits";
    if !generates || !job.model.facts().has_experts || !job.model.config.flag(field, false)? {
        return Ok(());
    }
    let problem = format!(
        "config key `{field}`: transformers' `generate` fails with it, whose mask is longer than a decoded token"
    );
    Err(JobError::new(problem).about(&[format!("model.{field}")]).hint(format!(
        "leave `{field}` out of the config; TRL's trainers ask for the loss themselves where `router_aux_loss_coef` is not 0"
    )))
}
