//! What columns are called by those who write them: the step, the axes, seed and configuration.

/// Names of a step, the finest first.
const STEPS: &[&str] = &[
    "step",
    "global_step",
    "_step",
    "train/global_step",
    "trainer/global_step",
    "iteration",
    "iter",
    "round",
    "update",
    "env_step",
    "epoch",
    "train/epoch",
];
/// Names of configurations and seeds in tables of several runs.
pub const CONFIGURATIONS: &[&str] =
    &["configuration", "config", "variant", "algorithm", "algo", "method", "group", "experiment"];
pub const SEEDS: &[&str] = &["seed", "random_seed", "rng_seed"];
/// What says which point it is and is no metric: of logs of several programs.
const NO_METRIC: &[&str] = &["timestamp", "_timestamp", "time", "stage", "record", "rank", "pid"];

/// Our name of an axis that others call so.
pub fn axis_of_column(name: &str) -> Option<&'static str> {
    Some(match name {
        "seconds" | "_runtime" | "elapsed" | "elapsed_seconds" | "elapsed_time" | "wall_time" | "walltime" => "seconds",
        "gpu_hours" => "gpu_hours",
        "tokens_generated" | "generated_tokens" | "num_generated_tokens" | "total_generated_tokens" => {
            "tokens_generated"
        }
        "tokens_trained"
        | "trained_tokens"
        | "num_input_tokens_seen"
        | "train/num_input_tokens_seen"
        | "num_tokens"
        | "train/num_tokens"
        | "tokens_seen"
        | "total_tokens" => "tokens_trained",
        "flops" | "total_flos" | "train/total_flos" | "total_flops" => "flops",
        _ => return None,
    })
}

/// Whether it is one of our names of axes.
pub fn is_axis(name: &str) -> bool {
    matches!(name, "seconds" | "gpu_hours" | "tokens_generated" | "tokens_trained" | "flops")
}

/// The place of the finest step among `names`.
pub fn step_column<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<usize> {
    STEPS.iter().find_map(|step| names.clone().position(|name| name.eq_ignore_ascii_case(step)))
}

/// Whether `name` counts steps in any of its forms.
pub fn is_step(name: &str) -> bool {
    STEPS.iter().any(|step| name.eq_ignore_ascii_case(step))
}

/// Whether it is a clock.
pub fn is_clock(name: &str) -> bool {
    matches!(name, "timestamp" | "_timestamp" | "time")
}

/// Whether a column is none of the metrics.
pub fn is_no_metric(name: &str) -> bool {
    is_step(name) || NO_METRIC.contains(&name) || SEEDS.contains(&name)
}
