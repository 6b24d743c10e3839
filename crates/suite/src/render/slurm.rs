//! SLURM: an array for every number of GPUs. A task that is done leaves a mark and does nothing when it is started again; ahead of its
//! limit it is warned, lets the command save, and goes on in the next job of its chain, or in its own, requeued. A command that SLURM did
//! not start leaves no mark of its beginning: it is tried again, whatever `srun` says.

use std::fmt::Write as _;

use super::{Engine, Rendered, Rendering, Shape, launcher, plain, word};
use crate::file::GoesOn;

pub(super) const ENGINE: Engine =
    Engine { name: "slurm", doc: "sbatch scripts: arrays that go on by themselves", render };

/// Tasks of an array, at most: `MaxArraySize` is 1001 where nobody sets it (slurm.conf(5)).
pub const MOST_TASKS: usize = 1000;
/// Jobs of a chain, at most: who needs more has a limit that is no help.
const MOST_LINKS: u64 = 50;
/// How often a start tries again to launch a command that SLURM did not start: with pauses of 5, 10, 20, 40 and 80 seconds, longer than a
/// controller takes to come up again and to hear of its nodes (`SlurmdTimeout` is 300 s, a restart takes seconds).
const MOST_TRIES: u64 = 5;
/// How often a job is put back into the queue because none of those tries began: another node may start it.
const MOST_REFUSED_STARTS: u64 = 2;
/// Bytes of a script that `sbatch` takes surely; its own limit is 4 MiB (`max_script_size`).
const MOST_BYTES: usize = 3 << 20;

fn render(rendering: &Rendering<'_>) -> Result<Vec<Rendered>, String> {
    let mut files = Vec::new();
    for shape in rendering.shapes() {
        let parts = array_parts(rendering, &shape, MOST_TASKS);
        for (at, part) in parts.iter().enumerate() {
            let number = if parts.len() == 1 { String::new() } else { format!("-{}", at + 1) };
            let name = format!("{}-{}gpu{number}.sbatch", rendering.plan.suite, part.gpus);
            files.push(Rendered { name, text: job_script(rendering, part)?, is_script: true });
        }
    }
    Ok(files)
}

/// A shape as arrays that SLURM takes: of at most so many tasks, and of scripts that are not too long.
pub fn array_parts<'a>(rendering: &Rendering<'_>, shape: &Shape<'a>, most: usize) -> Vec<Shape<'a>> {
    let mut parts: Vec<Shape<'a>> = Vec::new();
    let mut bytes = 0;
    for at in &shape.runs {
        // Quoting makes of a word at most four times as much.
        let taken = 4 * rendering.commands[*at].iter().map(|word| word.len() + 3).sum::<usize>() + 512;
        match parts.last_mut().filter(|part| part.runs.len() < most.max(1) && bytes + taken < MOST_BYTES) {
            Some(part) => part.runs.push(*at),
            None => {
                bytes = 0;
                parts.push(Shape { runs: vec![*at], ..*shape });
            }
        }
        bytes += taken;
    }
    parts
}

/// The jobs, one behind the other, that the longest run of `shape` needs: 1 where the limit is long enough, or requeueing does it. A
/// throttle holds within an array and not between those of a chain, so that with one requeueing is what keeps to it.
pub fn chain_links(rendering: &Rendering<'_>, shape: &Shape<'_>) -> u64 {
    let by_default = if rendering.elsewhere.throttle.is_some() { GoesOn::Requeue } else { GoesOn::Chain };
    let needed = shape.seconds.zip(rendering.limits.hours).map(|(seconds, hours)| seconds / (hours * 3600.0));
    match rendering.elsewhere.goes_on.unwrap_or(by_default) {
        GoesOn::Requeue => 1,
        GoesOn::Chain => {
            let links = rendering.elsewhere.links.or(needed.map(|needed| needed.ceil() as u64));
            links.map_or(1, |links| links.clamp(1, MOST_LINKS))
        }
    }
}

/// The script of an array. Its arguments, where it has some, are the link, the links of the chain, and the batch.
///
/// # Errors
/// When a directive cannot hold what the suite says.
pub fn job_script(rendering: &Rendering<'_>, shape: &Shape<'_>) -> Result<String, String> {
    let nodes = rendering.nodes(shape);
    let mut text = format!("#!/bin/bash\n{}\nset -u\n", sbatch_directives(rendering, shape, nodes)?);
    text.push_str("link=${1:-1} links=${2:-1} batch=${3:-}\n");
    let _ = writeln!(text, "cd -- {} || exit 2", word(&rendering.plan.directory));
    let _ = match rendering.place {
        Some(place) => writeln!(text, "place={}", word(&place.display().to_string())),
        None => writeln!(text, "place=$PWD/.tonnage-{}", rendering.plan.suite),
    };
    for name in rendering.secrets()? {
        let _ = writeln!(text, "[ -n \"${{{name}:-}}\" ] || {{ echo \"{name} is not set\" >&2; exit 2; }}");
    }
    text.push_str(&rendering.choose(&shape.runs, "\"${SLURM_ARRAY_TASK_ID:-0}\""));
    let _ = writeln!(text, "export TONNAGE_SUITE={}", word(&rendering.plan.suite));
    text.push_str(ONCE);
    text.push_str(TRAPS);
    rendering.elsewhere.setup.iter().for_each(|line| text.extend([line.as_str(), "\n"]));
    text.push_str(&launch_lines(rendering, shape, nodes)?);
    let numbers = [
        ("MOST_STARTS", most_starts(rendering, shape)),
        ("MOST_TRIES", MOST_TRIES),
        ("MOST_REFUSED_STARTS", MOST_REFUSED_STARTS),
    ];
    let ending =
        numbers.iter().rev().fold(END.to_owned(), |text, (name, number)| text.replace(name, &number.to_string()));
    text.push_str(&ending);
    Ok(text)
}

/// A run is done once: what is done does nothing, what was submitted again since is left alone, and of two jobs one waits for the lock.
/// The command's `srun` holds the lock, too, so that a script which is killed does not free it before its command is gone. `before` is when
/// its log was written last: the end of a start that was killed and put back into the queue.
const ONCE: &str = r#"own=$place/runs/$TONNAGE_RUN
mkdir -p -- "$own" || exit 2
exec 9>>"$own/lock"
if command -v flock >/dev/null; then
  flock --wait 120 9
  if [ $? -eq 1 ]; then
    echo "another job has $TONNAGE_NAME" >&2
    exit 75
  fi
fi
if [ -e "$own/done" ]; then
  echo "$TONNAGE_NAME is done"
  exit 0
fi
leave_to_newer() {
  if [ -n "$batch" ] && [ "$(cat "$own/batch" 2>/dev/null)" != "$batch" ]; then
    echo "$TONNAGE_NAME was submitted again since: this job leaves it alone"
    exit 0
  fi
}
leave_to_newer
export TONNAGE_METRICS="$own/records.jsonl"
[ ! -e "$own/parameters.json" ] || export TONNAGE_PARAMETERS="$own/parameters.json"
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
before=$(stat -L -c %Y "/proc/$$/fd/1" 2>/dev/null)
note() {
  printf '{"event":"%s","at":%s,"job":"%s","start":%s,"node":"%s","batch":"%s","link":%s%s}\n' "$1" "$(date +%s)" "$job" \
    "${SLURM_RESTART_COUNT:-0}" "${SLURMD_NODENAME:-}" "$batch" "$link" "${2:-}" >>"$own/starts.log"
}
begins="tonnage: begins: $TONNAGE_NAME: job $job, start ${SLURM_RESTART_COUNT:-0}, link $link of $links, on $SLURM_JOB_NODELIST"
echo "$begins"
note begin ",\"before\":${before:-null}"
"#;

/// NCCL catches SIGUSR1, so that SIGUSR2 it is (`--signal`). `srun` hands both signals on to every task.
const TRAPS: &str = r#"child='' warned='' asked=''
trap 'warned=1; interrupted=1; [ -z "$child" ] || kill -USR2 "$child" 2>/dev/null' USR2
trap 'asked=",\"asked\":true"; interrupted=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
"#;

/// How the command is waited for: a signal that the script traps interrupts a wait, and does not end it. Who ends a job signals the
/// command and the script at once: one that SIGTERM ended (128 and 15) may be gone before the script has had its own.
const WAIT: &str = r#"  child=$!
  [ -z "$warned" ] || kill -USR2 "$child"
  while :; do
    interrupted=''
    wait "$child"
    code=$?
    [ -n "$interrupted" ] || break
  done
  [ "$code" -ne 143 ] || [ -n "$warned$asked" ] || sleep 1 9>&-
"#;

/// A command that began has left its mark. Of others SLURM started nothing: no generic resources after a restart of the controller, a node
/// that does not answer, an image that cannot be had; `srun` has many words for it. That is no failure of the run's.
/// A command that was warned goes on elsewhere whatever its exit code: saved and left is not done.
const END: &str = r#"  if [ "$code" -eq 0 ] || [ -n "$warned$asked" ] || [ -e "$own/began" ]; then
    refused=''
    break
  fi
  refused=',"refused":true'
  [ "$tries" -lt MOST_TRIES ] || break
  pause=$((${TONNAGE_SLURM_PAUSE_SECONDS:-5} << tries)) tries=$((tries + 1))
  echo "tonnage: SLURM did not start $TONNAGE_NAME (srun: exit code $code): try $tries of MOST_TRIES in $pause s" >&2
  child=''
  sleep "$pause" 9>&- &
  wait "$!"
  if [ -n "$warned$asked" ]; then
    refused=''
    break
  fi
  leave_to_newer
  echo "$begins, try $tries"
done
if [ -n "$warned" ]; then
  if [ "$link" -lt "$links" ]; then
    note end ",\"code\":$code,\"again\":\"link\""
    exit 0
  fi
  if [ "${SLURM_RESTART_COUNT:-0}" -lt MOST_STARTS ]; then
    note end ",\"code\":$code,\"again\":\"requeue\""
    scontrol requeue "$job" && exit "$code"
  fi
  echo "$TONNAGE_NAME has not ended within its limit, and goes on in no other job" >&2
  note end ",\"code\":$code$asked"
  exit "$(( code ? code : 1 ))"
fi
if [ -n "$refused" ] && [ "$(grep -c "\"batch\":\"$batch\".*\"refused\":true" "$own/starts.log")" -lt MOST_REFUSED_STARTS ]; then
  note end ",\"code\":$code,\"again\":\"requeue\"$refused"
  scontrol requeue "$job" && exit "$code"
fi
if [ "$code" -eq 0 ]; then
  : >"$own/done" || { echo "cannot write $own/done" >&2; code=74; }
fi
note end ",\"code\":$code$asked$refused"
exit "$code"
"#;

/// Starts of a job, at most: twice what the plan says, so that one that never saves does not go on for ever.
fn most_starts(rendering: &Rendering<'_>, shape: &Shape<'_>) -> u64 {
    let needed = shape.seconds.zip(rendering.limits.hours).map(|(seconds, hours)| seconds / (hours * 3600.0));
    needed.map_or(10, |needed| (2.0 * needed).ceil() as u64 + 2)
}

fn sbatch_directives(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64) -> Result<String, String> {
    let elsewhere = rendering.elsewhere;
    let per_node = shape.gpus.div_ceil(nodes);
    let throttle = elsewhere.throttle.map_or_else(String::new, |throttle| format!("%{}", throttle.max(1)));
    let mut lines = vec![
        format!("--job-name={}", plain("name", &rendering.plan.suite)?),
        format!("--array=0-{}{throttle}", shape.runs.len() - 1),
        format!("--nodes={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--cpus-per-task={}", elsewhere.cpus_per_gpu.unwrap_or(8).max(1) * per_node.max(1)),
    ];
    if per_node > 0 {
        let kind = elsewhere.gpu_type.as_ref().map(|kind| plain("gpu_type", kind)).transpose()?;
        lines.push(format!("--gres=gpu:{}{per_node}", kind.map_or_else(String::new, |kind| format!("{kind}:"))));
    }
    lines.extend(rendering.mem_gib(shape).map(|gib| format!("--mem={gib}G")));
    let seconds = rendering.seconds(shape);
    lines.extend(seconds.map(|seconds| format!("--time={}", clock_time(seconds))));
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
    // Not so early that little of the job is left.
    let lead = seconds.map_or(u64::MAX, |seconds| seconds / 2).min(rendering.grace_seconds.max(60)).max(1);
    lines.extend([
        "--output=%x-%A_%a.log".to_owned(),
        "--open-mode=append".to_owned(),
        "--requeue".to_owned(),
        format!("--signal=B:USR2@{lead}"),
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
fn clock_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The command on every node.
fn launch_lines(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64) -> Result<String, String> {
    let mut text = String::new();
    text.push_str(&meeting_lines(rendering, shape, nodes));
    text.push_str(BEGAN);
    let container = match (&rendering.elsewhere.container, rendering.elsewhere.container_engine.as_deref()) {
        (None, _) => String::new(),
        (Some(image), None | Some("apptainer")) => {
            let is_place = image.contains("://") || image.ends_with(".sif") || image.starts_with(['/', '.']);
            let image = if is_place { image.clone() } else { format!("docker://{image}") };
            let gpus = if shape.gpus > 0 { "--nv " } else { "" };
            let _ = writeln!(
                text,
                "set -- apptainer exec {gpus}--bind \"$PWD\" --bind \"$own\" --pwd \"$PWD\" {} \"$@\"",
                word(&image)
            );
            String::new()
        }
        (Some(image), Some("pyxis")) => format!(
            " --container-image={} --container-mounts=\"$PWD\":\"$PWD\",\"$own\":\"$own\" --container-workdir=\"$PWD\"",
            word(image)
        ),
        (Some(_), Some(other)) => {
            return Err(format!("[slurm] container_engine is `apptainer` or `pyxis`, not `{}`", other.escape_debug()));
        }
    };
    if rendering.elsewhere.container.is_some() {
        let places = [Some(rendering.plan.directory.clone()), rendering.place.map(|place| place.display().to_string())];
        if let Some(place) = places.into_iter().flatten().find(|place| place.contains([':', ','])) {
            return Err(format!(
                "containers cannot be given `{}`: `:` and `,` part their mounts",
                place.escape_debug()
            ));
        }
    }
    // Since 22.05 srun does not take the job's CPUs by itself.
    text.push_str("export SRUN_CPUS_PER_TASK=\"${SLURM_CPUS_PER_TASK:-1}\"\n");
    text.push_str("tries=0\nwhile :; do\n  rm -f -- \"$own/began\"\n");
    let _ = writeln!(text, "  srun --kill-on-bad-exit=1{container} \"$@\" &");
    text.push_str(WAIT);
    Ok(text)
}

/// The mark that a command leaves before it becomes the command: within its container, where there is one.
const BEGAN: &str = r#"export TONNAGE_BEGAN="$own/began"
# shellcheck disable=SC2016
set -- sh -c 'echo >"$TONNAGE_BEGAN"; exec "$@"' sh "$@"
"#;

/// Lines that tell a launcher where its processes meet: on the first node, at a port that follows the job's number, so that two jobs on a
/// node do not meet each other.
fn meeting_lines(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64) -> String {
    let mut text = String::new();
    if nodes > 1 {
        text.push_str(
            "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
             MASTER_PORT=$((15000 + SLURM_JOB_ID % 15000))\nexport MASTER_ADDR MASTER_PORT\n",
        );
    }
    text + &launcher::meeting_lines(rendering, shape, nodes, "$SLURM_JOB_ID", "$((15000 + SLURM_JOB_ID % 15000))")
}
