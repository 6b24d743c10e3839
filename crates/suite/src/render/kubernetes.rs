//! Kubernetes: an Indexed Job for every number of GPUs, and a ConfigMap whose script knows which run an index is. Runs that take several
//! nodes are a JobSet each, whose pods find one another by name.

use serde_json::{Value, json};

use super::{Engine, Rendered, Rendering, Shape, launcher, yaml};

pub(super) const ENGINE: Engine =
    Engine { name: "kubernetes", doc: "Indexed Jobs, or JobSets, with their scripts", render };

/// The port at which processes meet; each pod has an address of its own.
const PORT: &str = "29500";

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    let of = |shape: Shape<'_>| {
        let name = resource_name(&rendering.plan.suite, shape.gpus);
        let jobs = match (rendering.elsewhere.jobset, rendering.nodes(&shape)) {
            (true, nodes) => job_sets(rendering, &shape, &name, nodes)?,
            (false, 1) => vec![indexed_job(rendering, &shape, &name)?],
            (false, nodes) => {
                return Err(format!(
                    "a run of {} GPUs takes {nodes} nodes, which an Indexed Job cannot give it: [slurm] jobset = true",
                    shape.gpus
                ));
            }
        };
        let script = script_map(rendering, &shape, &name);
        let documents: Vec<String> = [script].iter().chain(&jobs).map(yaml::yaml_document).collect();
        let text = documents.join("---\n");
        Ok(Rendered { name: format!("{name}.yaml"), text, is_script: false })
    };
    rendering.shapes().into_iter().map(of).collect()
}

/// A name as DNS takes it.
fn resource_name(suite: &str, gpus: u64) -> String {
    let plain: String =
        suite.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    format!("s-{}-{gpus}gpu", plain.trim_matches('-'))
}

fn script_map(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str) -> Value {
    let setup: String = rendering.elsewhere.setup.iter().map(|line| format!("{line}\n")).collect();
    let (index, nodes) = match rendering.elsewhere.jobset {
        true => ("\"$RUN_INDEX\"", rendering.nodes(shape)),
        false => ("\"$JOB_COMPLETION_INDEX\"", 1),
    };
    let choose = rendering.choose(&shape.runs, index);
    let meets = launcher::meeting_lines(rendering, shape, nodes, "$TONNAGE_RUN", PORT);
    let first = match nodes {
        1 => String::new(),
        // A JobSet's pods are called JOBSET-JOB-INDEX-POD, below a service of the JobSet's name.
        _ => format!("export MASTER_ADDR=$JOBSET_NAME-run-0-0.$JOBSET_NAME MASTER_PORT={PORT}\n"),
    };
    let script = format!("#!/bin/bash\nset -u\n{choose}{setup}{first}{meets}exec \"$@\"\n");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"run.sh": script}})
}

/// What a pod is; with `more` in its environment.
fn pod_template(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str, more: Vec<Value>) -> Result<Value, String> {
    let secret = |key: &String| json!({"name": key, "valueFrom": {"secretKeyRef": {"name": format!("{name}-secrets"), "key": key}}});
    let environment: Vec<Value> = rendering.secrets()?.iter().map(secret).chain(more).collect();
    let nodes = if rendering.elsewhere.jobset { rendering.nodes(shape) } else { 1 };
    let mut limits = json!({});
    let gpus = shape.gpus.div_ceil(nodes);
    if gpus > 0 {
        limits["nvidia.com/gpu"] = json!(gpus);
    }
    if let Some(gib) = rendering.mem_gib(shape) {
        limits["memory"] = json!(format!("{gib}Gi"));
    }
    let mut requests = limits.clone();
    if let Some(cpus) = rendering.elsewhere.cpus_per_gpu {
        requests["cpu"] = json!((cpus * gpus.max(1)).to_string());
    }
    let mut shared = json!({"medium": "Memory"});
    if let Some(gib) = rendering.elsewhere.shm_gib {
        shared["sizeLimit"] = json!(format!("{gib}Gi"));
    }
    let container = json!({
        "name": "run",
        "image": rendering.image("kubernetes")?,
        "command": ["/bin/bash", "/tonnage/run.sh"],
        "workingDir": rendering.plan.directory,
        "env": environment,
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": [{"name": "script", "mountPath": "/tonnage"}, {"name": "shm", "mountPath": "/dev/shm"}],
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": rendering.grace_seconds,
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": name}}, {"name": "shm", "emptyDir": shared}],
    });
    if let Some(seconds) = rendering.seconds(shape) {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    Ok(spec)
}

fn at_once(rendering: &Rendering<'_>, shape: &Shape<'_>) -> usize {
    rendering.elsewhere.throttle.unwrap_or(shape.runs.len()).clamp(1, shape.runs.len())
}

fn indexed_job(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str) -> Result<Value, String> {
    let spec = json!({
        "completionMode": "Indexed",
        "completions": shape.runs.len(),
        "parallelism": at_once(rendering, shape),
        "backoffLimitPerIndex": 2,
        "template": {"spec": pod_template(rendering, shape, name, Vec::new())?},
    });
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}))
}

/// A JobSet a run: what fails of a set ends or restarts all of it, and the runs of a suite are no one's but their own.
fn job_sets(rendering: &Rendering<'_>, shape: &Shape<'_>, name: &str, nodes: u64) -> Result<Vec<Value>, String> {
    if rendering.elsewhere.throttle.is_some_and(|throttle| throttle < shape.runs.len()) {
        return Err("JobSets start as there is room: [slurm] throttle has no place with jobset = true".to_owned());
    }
    let of = |at: usize| {
        let own = format!("{name}-{at}");
        let told = [("RUN_INDEX", at.to_string()), ("JOBSET_NAME", own.clone())];
        let told = told.map(|(name, value)| json!({"name": name, "value": value}));
        let job = json!({
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            // One pod that fails ends the run: its others would wait for it.
            "backoffLimit": 0,
            "template": {"spec": pod_template(rendering, shape, name, told.into())?},
        });
        let spec = json!({
            "network": {"enableDNSHostnames": true},
            "failurePolicy": {"maxRestarts": 2},
            "replicatedJobs": [{"name": "run", "replicas": 1, "template": {"spec": job}}],
        });
        Ok(json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": own}, "spec": spec}))
    };
    (0..shape.runs.len()).map(of).collect()
}
