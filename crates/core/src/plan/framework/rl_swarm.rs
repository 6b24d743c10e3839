//! rl-swarm: overrides of its Hydra config (rgym_exp, config/rg-swarm.yaml), which a node's process reads.

use super::{Line, as_argument, as_code, as_remark};
use crate::job::keys;

/// What a node is told.
pub(super) fn config_lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        (keys::COMPLETION_LEN, tokens) => as_argument(format!("++game_manager.trainer.config.max_new_tokens={tokens}")),
        (keys::PRECISION, "bf16") => as_argument("training.dtype=bfloat16"),
        (keys::PRECISION, _) => as_code("trainer: self.autocast = torch.amp.autocast(\"cuda\", dtype=torch.bfloat16)"),
        (keys::GRADIENT_CHECKPOINTING, _) => {
            as_remark("GenRL checkpoints unless told not to: leave `enable_gradient_checkpointing` as it is")
        }
        (keys::ATTENTION, name) => as_argument(format!("++game_manager.trainer.models.0.attn_implementation={name}")),
        (keys::OPTIMIZER, "adamw8bit") => {
            as_code("trainer: self.optimizer = bitsandbytes.optim.Adam8bit(self.model.parameters(), lr=...)")
        }
        (keys::OPTIMIZER, _) => {
            as_code("trainer: self.optimizer = torch.optim.Adam(self.model.parameters(), lr=..., fused=True)")
        }
        (keys::SWARM_NODES, nodes) => as_remark(format!("start {nodes} nodes: run_rl_swarm.sh once for each")),
        (keys::SWARM_GPUS, _) => as_remark("start each node with the CUDA_VISIBLE_DEVICES of its GPU"),
        (keys::SWARM_LEASE, _) => {
            as_remark("rl-swarm has no such option: hold a lock of the GPU round the trainer's training step")
        }
        _ => None,
    }
}
