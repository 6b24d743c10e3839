//! Kubernetes: an Indexed Job for every number of GPUs, and a ConfigMap whose script knows which run an index is.

use serde_json::{Value, json};

use super::{Engine, Rendered, Rendering, Shape, yaml};

pub(super) const ENGINE: Engine = Engine { name: "kubernetes", doc: "Indexed Jobs with their scripts", render };

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    let of = |shape: Shape<'_>| {
        let name = named(&rendering.plan.suite, shape.gpus);
        let text = format!(
            "{}---\n{}",
            yaml::document(&scripts(rendering, &shape, &name)),
            yaml::document(&job(rendering, &shape, &name)?)
        );
        Ok(Rendered { name: format!("{name}.yaml"), text, is_script: false })
    };
    rendering.shapes().into_iter().map(of).collect()
}

/// A name as DNS takes it.
fn named(suite: &str, gpus: u64) -> String {
    let plain: String =
        suite.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    format!("s-{}-{gpus}gpu", plain.trim_matches('-'))
}

fn scripts(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str) -> Value {
    let setup: String = rendering.elsewhere.setup.iter().map(|line| format!("{line}\n")).collect();
    let choose = rendering.choose(&shape.runs, "\"$JOB_COMPLETION_INDEX\"");
    let script = format!("#!/bin/bash\nset -u\n{choose}{setup}exec \"$@\"\n");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"run.sh": script}})
}

fn job(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str) -> Result<Value, String> {
    let secret = |key: &String| json!({"name": key, "valueFrom": {"secretKeyRef": {"name": format!("{name}-secrets"), "key": key}}});
    let environment: Vec<Value> = rendering.secrets()?.iter().map(secret).collect();
    let mut limits = json!({"nvidia.com/gpu": shape.gpus});
    if let Some(gib) = rendering.elsewhere.mem_gib {
        limits["memory"] = json!(format!("{gib}Gi"));
    }
    let container = json!({
        "name": "run",
        "image": rendering.image("kubernetes")?,
        "command": ["/bin/bash", "/tonnage/run.sh"],
        "workingDir": rendering.plan.directory,
        "env": environment,
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "script", "mountPath": "/tonnage"}, {"name": "shm", "mountPath": "/dev/shm"}],
    });
    let mut spec = json!({
        "completionMode": "Indexed",
        "completions": shape.runs.len(),
        "parallelism": rendering.elsewhere.throttle.unwrap_or(shape.runs.len()).clamp(1, shape.runs.len()),
        "backoffLimitPerIndex": 2,
        "template": {"spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": rendering.grace_seconds,
            "containers": [container],
            "volumes": [{"name": "script", "configMap": {"name": name}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        }},
    });
    if let Some(seconds) = rendering.seconds(shape) {
        spec["template"]["spec"]["activeDeadlineSeconds"] = json!(seconds);
    }
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}))
}
