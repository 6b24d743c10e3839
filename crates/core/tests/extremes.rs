//! Jobs at the edge of what a spec may ask for: an answer or an error, never a panic, an overflow or a full stack.

use serde_json::{Value, json};
use tonnage_core::estimate::estimate;
use tonnage_core::job::from_case;

/// Whether the job has an estimate, or why not.
fn outcome(mut case: Value, config: &Value) -> Result<(), String> {
    case["model"] = config.clone();
    let job = from_case(&case).map_err(|error| error.to_string())?;
    estimate(&job).map(drop).map_err(|error| error.to_string())
}

fn tiny() -> Value {
    json!({
        "family": "llama", "vocab_size": 16, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1,
    })
}

/// As deep as a config may be: what the tape and the checkpoints hold is let go without recursion.
#[test]
fn the_deepest_model_needs_no_deep_stack() {
    let mut config = tiny();
    config["num_hidden_layers"] = json!(1024);
    for checkpointing in [false, true] {
        let case = json!({"micro_batch": 1, "seq_len": 2, "gradient_checkpointing": checkpointing, "steps": 1});
        assert_eq!(outcome(case, &config), Ok(()), "{checkpointing}");
    }
}

#[test]
fn products_of_sizes_do_not_overflow() {
    let changes = [
        ("vocab_size", 1_u64 << 31),
        ("intermediate_size", 1 << 31),
        ("num_attention_heads", 1 << 20),
        ("head_dim", 1 << 20),
    ];
    for (key, size) in changes {
        for (micro_batch, seq_len) in [(1, 1 << 24), (256, 1 << 24), (1 << 20, 1 << 12), (1 << 20, 1)] {
            for attention in ["eager", "sdpa", "math"] {
                for precision in ["fp32", "amp_bf16"] {
                    let mut config = tiny();
                    config[key] = json!(size);
                    config["head_dim"] = json!(if key == "head_dim" { size } else { 2 });
                    let case = json!({
                        "micro_batch": micro_batch, "seq_len": seq_len, "attn": attention, "precision": precision,
                        "clip_grad_norm": 1.0, "steps": 1,
                    });
                    if let Err(error) = outcome(case, &config) {
                        assert!(
                            ["no GPU holds", "beyond any GPU", "more than a GPU", "16 TiB"]
                                .iter()
                                .any(|reason| error.contains(reason)),
                            "{key} {micro_batch} {seq_len} {attention}: {error}"
                        );
                    }
                }
            }
        }
    }
}
