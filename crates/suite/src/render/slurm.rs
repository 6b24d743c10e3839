//! SLURM: an array for every number of GPUs. A job that is done leaves a mark and does nothing when it is started again; ahead of its limit
//! it is warned, lets the command save, and requeues itself.

use super::{Engine, Rendered, Rendering, Shape, plain, word};

pub(super) const ENGINE: Engine =
    Engine { name: "slurm", doc: "sbatch scripts: arrays that requeue themselves", render };

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    let of = |shape: Shape<'_>| {
        let name = format!("{}-{}gpu.sbatch", rendering.plan.suite, shape.gpus);
        Ok(Rendered { name, text: script(rendering, &shape)?, is_script: true })
    };
    rendering.shapes().into_iter().map(of).collect()
}

fn script(rendering: &Rendering<'_>, shape: &Shape<'_>) -> Result<String, String> {
    let nodes = nodes(rendering, shape);
    let directives = directives(rendering, shape, nodes)?;
    let setup = rendering.elsewhere.setup.join("\n");
    let setup = if setup.is_empty() { String::new() } else { format!("{setup}\n") };
    Ok(format!(
        "#!/bin/bash\n{directives}\nset -u\ncd -- {} || exit 2\nmkdir -p {done} || exit 2\n{choose}\
         if [ -e \"{done}/$TONNAGE_RUN\" ]; then\n  echo \"$TONNAGE_NAME is done\"\n  exit 0\nfi\n\
         echo \"$TONNAGE_NAME: job $SLURM_JOB_ID, start ${{SLURM_RESTART_COUNT:-0}} on $SLURM_JOB_NODELIST\"\n{setup}{launch}{wait}",
        word(&rendering.plan.directory),
        done = format_args!(".tonnage-{}", rendering.plan.suite),
        choose = rendering.choose(&shape.runs, "\"${SLURM_ARRAY_TASK_ID:-0}\""),
        launch = launch(rendering, shape, nodes)?,
        wait = wait(rendering),
    ))
}

fn nodes(rendering: &Rendering<'_>, shape: &Shape<'_>) -> u64 {
    shape.gpus.div_ceil(rendering.elsewhere.gpus_per_node.unwrap_or(shape.gpus).max(1)).max(1)
}

fn directives(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64) -> Result<String, String> {
    let elsewhere = rendering.elsewhere;
    let per_node = shape.gpus.div_ceil(nodes);
    let throttle = elsewhere.throttle.map_or_else(String::new, |throttle| format!("%{}", throttle.max(1)));
    let mut lines = vec![
        format!("--job-name={}", plain("name", &rendering.plan.suite)?),
        format!("--array=0-{}{throttle}", shape.runs.len() - 1),
        format!("--nodes={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--cpus-per-task={}", elsewhere.cpus_per_gpu.unwrap_or(8) * per_node),
        match &elsewhere.gpu_type {
            Some(kind) => format!("--gres=gpu:{}:{per_node}", plain("gpu_type", kind)?),
            None => format!("--gres=gpu:{per_node}"),
        },
    ];
    // A node's memory is shared by the jobs that share its GPUs.
    let whole = elsewhere.gpus_per_node.unwrap_or(per_node).max(per_node);
    lines.extend(elsewhere.mem_gib.map(|gib| format!("--mem={}G", (gib * per_node).div_ceil(whole))));
    lines.extend(rendering.seconds(shape).map(|seconds| format!("--time={}", clock(seconds))));
    let named = [
        ("account", &elsewhere.account),
        ("partition", &elsewhere.partition),
        ("qos", &elsewhere.qos),
        ("constraint", &elsewhere.constraint),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            lines.push(format!("--{name}={}", plain(name, value)?));
        }
    }
    lines.extend([
        "--output=%x-%A_%a.log".to_owned(),
        "--open-mode=append".to_owned(),
        "--requeue".to_owned(),
        // SIGUSR1 is caught by NCCL.
        format!("--signal=B:USR2@{}", rendering.grace_seconds.max(60)),
    ]);
    for directive in &elsewhere.directives {
        if !directive.starts_with("--") || directive.contains(['\n', '\r']) {
            return Err(format!("[slurm] directives: `{}` is no option of sbatch", directive.escape_debug()));
        }
        lines.push(directive.clone());
    }
    Ok(lines.into_iter().map(|line| format!("#SBATCH {line}\n")).collect())
}

/// Days, hours, minutes and seconds as `sbatch` reads them.
fn clock(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The command on every node. `torchrun` meets on the first one, on a port that follows the job's id.
fn launch(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64) -> Result<String, String> {
    let mut text = String::new();
    if nodes > 1 {
        text.push_str(&format!(
            "if [ \"$1\" = torchrun ]; then\n  shift\n  \
             head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n  \
             set -- torchrun --nnodes={nodes} --nproc-per-node={} --rdzv-backend=c10d --rdzv-id=\"$SLURM_JOB_ID\" \\\n    \
             --rdzv-endpoint=\"$head:$((15000 + SLURM_JOB_ID % 15000))\" \"$@\"\nfi\n",
            shape.gpus.div_ceil(nodes)
        ));
    }
    let container = match (&rendering.elsewhere.container, rendering.elsewhere.container_engine.as_deref()) {
        (None, _) => String::new(),
        (Some(image), None | Some("apptainer")) => {
            let is_place = image.contains("://") || image.ends_with(".sif") || image.starts_with(['/', '.']);
            let image = if is_place { image.clone() } else { format!("docker://{image}") };
            text.push_str(&format!("set -- apptainer exec --nv {} \"$@\"\n", word(&image)));
            String::new()
        }
        (Some(image), Some("pyxis")) => format!(
            " --container-image={} --container-mounts=\"$PWD\":\"$PWD\" --container-workdir=\"$PWD\"",
            word(image)
        ),
        (Some(_), Some(other)) => {
            return Err(format!("[slurm] container_engine is `apptainer` or `pyxis`, not `{}`", other.escape_debug()));
        }
    };
    text.push_str(
        "child=''\nwarned=''\ntrap 'warned=1; kill -USR2 \"$child\" 2>/dev/null' USR2\ntrap 'kill -TERM \"$child\" 2>/dev/null' TERM\n",
    );
    text.push_str(&format!("srun --kill-on-bad-exit=1{container} \"$@\" &\nchild=$!\n"));
    Ok(text)
}

/// Waits for the command; ahead of the limit it is asked to save, and the job goes on from there.
fn wait(rendering: &Rendering<'_>) -> String {
    format!(
        "while :; do\n  wait \"$child\"\n  code=$?\n  kill -0 \"$child\" 2>/dev/null || break\ndone\n\
         if [ \"$code\" -eq 0 ]; then\n  : > \".tonnage-{}/$TONNAGE_RUN\"\nelif [ -n \"$warned\" ]; then\n  \
         scontrol requeue \"${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}\"\nfi\nexit \"$code\"\n",
        rendering.plan.suite
    )
}
