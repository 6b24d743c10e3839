//! Docker Compose: a service a run, on the GPUs that the plan chose; one that the plan puts behind another waits for its end.

use serde_json::{Map, Value, json};

use super::{Engine, Rendered, Rendering, yaml};

pub(super) const ENGINE: Engine = Engine { name: "compose", doc: "a compose file: a service a run", render };

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    let placed = rendering.plan.packed_on(&rendering.machine);
    let mut services = Map::new();
    for one in &placed {
        let run = &rendering.plan.runs[one.item];
        // Whoever ended last on one of its GPUs before it begins.
        let shares = |other: &&crate::pack::Placed| other.gpus.iter().any(|gpu| one.gpus.contains(gpu));
        let before = placed
            .iter()
            .filter(shares)
            .filter(|other| other.item != one.item && other.end <= one.start && other.start < one.start);
        let before = before.max_by(|a, b| a.end.total_cmp(&b.end)).map(|other| &rendering.plan.runs[other.item].id);
        services.insert(format!("run-{}", run.id), service_block(rendering, one.item, &one.gpus, before)?);
    }
    if services.is_empty() {
        return Err("no run fits the machine".to_owned());
    }
    let text = yaml::yaml_document(&json!({"name": project_name(&rendering.plan.suite), "services": services}));
    Ok(vec![Rendered { name: format!("{}.compose.yaml", rendering.plan.suite), text, is_script: false }])
}

fn service_block(
    rendering: &Rendering<'_>,
    at: usize,
    gpus: &[usize],
    before: Option<&String>,
) -> Result<Value, String> {
    let run = &rendering.plan.runs[at];
    let devices: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    let groups = rendering.plan.planned_of(run).groups.iter().map(|group| service_label(group));
    let profiles: Vec<String> = ["all".to_owned()].into_iter().chain(groups).collect();
    let words: Vec<String> = rendering.commands[at].iter().map(|word| literal_text(word)).collect();
    let told =
        [format!("TONNAGE_RUN={}", run.id), literal_text(&format!("TONNAGE_NAME={}", rendering.plan.run_name(run)))];
    let environment: Vec<String> = told.into_iter().chain(rendering.secrets()?.iter().cloned()).collect();
    let mut service = json!({
        "image": literal_text(rendering.image("compose")?),
        "command": words,
        "working_dir": "/work",
        // The long form: a folder's name may hold a colon.
        "volumes": [{"type": "bind", "source": literal_text(&rendering.plan.directory), "target": "/work"}],
        "environment": environment,
        "profiles": profiles,
        "stop_grace_period": format!("{}s", rendering.grace_seconds),
        "restart": "no",
    });
    if rendering.gpus_of(at) > 0 {
        let reserved = json!([{"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}]);
        service["deploy"] = json!({"resources": {"reservations": {"devices": reserved}}});
    }
    // PyTorch's loaders share memory, of which a container has 64 MiB where nobody says more.
    match rendering.elsewhere.shm_gib {
        Some(gib) => service["shm_size"] = json!(format!("{gib}gb")),
        None => service["ipc"] = json!("host"),
    }
    if let Some(before) = before {
        service["depends_on"] = json!({format!("run-{before}"): {"condition": "service_completed_successfully"}});
    }
    Ok(service)
}

/// Compose looks up `$NAME`; `$$` is a dollar.
fn literal_text(text: &str) -> String {
    text.replace('$', "$$")
}

/// A profile's name.
fn service_label(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphanumeric()) { plain } else { format!("g{plain}") }
}

/// A project's name: lowercase.
fn project_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('.', "-")
}
