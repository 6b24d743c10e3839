//! rl-swarm: overrides of its Hydra config (rgym_exp, config/rg-swarm.yaml), which a node's process reads.

use super::{Line, argument, code, remark};

/// What a node is told.
pub(super) fn lines(key: &str, value: &str) -> Option<Vec<Line>> {
    match (key, value) {
        ("completion_len", tokens) => argument(format!("++game_manager.trainer.config.max_new_tokens={tokens}")),
        ("precision", "bf16") => argument("training.dtype=bfloat16"),
        ("precision", _) => code("trainer: self.autocast = torch.amp.autocast(\"cuda\", dtype=torch.bfloat16)"),
        ("gradient_checkpointing", _) => {
            remark("GenRL checkpoints unless told not to: leave `enable_gradient_checkpointing` as it is")
        }
        ("attention", name) => argument(format!("++game_manager.trainer.models.0.attn_implementation={name}")),
        ("optimizer", "adamw8bit") => {
            code("trainer: self.optimizer = bitsandbytes.optim.Adam8bit(self.model.parameters(), lr=...)")
        }
        ("optimizer", _) => {
            code("trainer: self.optimizer = torch.optim.Adam(self.model.parameters(), lr=..., fused=True)")
        }
        ("swarm.nodes", nodes) => remark(format!("start {nodes} nodes: run_rl_swarm.sh once for each")),
        ("swarm.gpus", _) => remark("start each node with the CUDA_VISIBLE_DEVICES of its GPU"),
        ("swarm.lease", _) => {
            remark("rl-swarm has no such option: hold a lock of the GPU round the trainer's training step")
        }
        _ => None,
    }
}
