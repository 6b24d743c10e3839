//! SkyPilot: a task for every number of GPUs; `RUN` chooses the run: `sky jobs launch --env RUN=0 FILE`.

use serde_json::json;

use super::{Engine, Rendered, Rendering, Shape, plain, yaml};

pub(super) const ENGINE: Engine = Engine { name: "skypilot", doc: "tasks for sky jobs launch --env RUN=N", render };

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    rendering.shapes().into_iter().map(|shape| task_file(rendering, &shape)).collect()
}

fn task_file(rendering: &Rendering<'_>, shape: &Shape<'_>) -> Result<Rendered, String> {
    let gpu = match (&rendering.elsewhere.gpu_type, shape.predicted) {
        (Some(kind), _) => plain("gpu_type", kind)?,
        (None, Some(predicted)) => plain("gpu_type", &accelerator_name(&predicted.gpu))?,
        (None, None) => return Err("skypilot asks for a GPU by its type: [slurm] gpu_type = \"H100\"".to_owned()),
    };
    let setup: String = rendering.elsewhere.setup.iter().map(|line| format!("{line}\n")).collect();
    let secrets: serde_json::Map<_, _> = rendering.secrets()?.iter().map(|name| (name.clone(), json!(null))).collect();
    let mut task = json!({
        "name": format!("{}-{}gpu", rendering.plan.suite, shape.gpus),
        "resources": {"accelerators": format!("{gpu}:{}", shape.gpus), "job_recovery": {"max_restarts_on_errors": 2}},
        "workdir": rendering.plan.directory,
        "envs": {"RUN": "0"},
        "run": format!("set -u\n{}{setup}exec \"$@\"\n", rendering.choose(&shape.runs, "\"$RUN\"")),
    });
    if !secrets.is_empty() {
        task["secrets"] = json!(secrets);
    }
    if let Some(image) = &rendering.elsewhere.container {
        task["resources"]["image_id"] = json!(format!("docker:{image}"));
    }
    let name = format!("{}-{}gpu.sky.yaml", rendering.plan.suite, shape.gpus);
    Ok(Rendered { name, text: yaml::yaml_document(&task), is_script: false })
}

/// SkyPilot's name of a GPU of our catalog: `a100-80` is `A100-80GB`.
fn accelerator_name(id: &str) -> String {
    match id {
        "a100-80" => "A100-80GB".to_owned(),
        "a100-40" => "A100".to_owned(),
        other => other.to_ascii_uppercase(),
    }
}
