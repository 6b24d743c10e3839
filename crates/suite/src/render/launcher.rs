//! How the processes of a launcher meet: `torchrun` and `accelerate launch`, told by the shell that starts them.

use std::fmt::Write as _;

use super::{Rendering, Shape};

/// A program that starts a process a GPU, and meets those of other nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Torchrun,
    Accelerate,
}

impl Launcher {
    /// Of a command, with how many of its words are the launcher's name. One that says itself where it meets is left as it is.
    fn of(words: &[String]) -> Option<(Self, usize)> {
        let base = |at: usize| words.get(at).and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        let module = |name: &str| base(0).starts_with("python") && base(1) == "-m" && base(2) == name;
        let (launcher, taken) = match base(0) {
            "torchrun" => (Self::Torchrun, 1),
            "accelerate" if base(1) == "launch" => (Self::Accelerate, 2),
            _ if module("torch.distributed.run") => (Self::Torchrun, 3),
            _ if module("accelerate.commands.launch") => (Self::Accelerate, 3),
            _ => return None,
        };
        let says = |word: &String| {
            let word = word.replace('_', "-");
            ["--nnodes", "--rdzv", "--master", "--num-machines", "--machine-rank", "--main-process"]
                .iter()
                .any(|flag| word.starts_with(flag))
        };
        (!words.iter().any(says)).then_some((launcher, taken))
    }
}

/// Lines that give the launcher in `"$@"` its flags; nothing where there is none, or where it says itself where it meets. On several nodes
/// MASTER_ADDR and MASTER_PORT are set before, and `--standalone` is taken away: it would make a training of each.
pub(super) fn meeting_lines(rendering: &Rendering<'_>, shape: &Shape<'_>, nodes: u64, id: &str, port: &str) -> String {
    let mut launchers = shape.runs.iter().map(|at| Launcher::of(&rendering.commands[*at]));
    let Some((launcher, taken)) = launchers.next().flatten().filter(|_| shape.gpus > 1) else {
        return String::new();
    };
    let is_alone = |at: &usize| rendering.commands[*at].iter().any(|word| word == "--standalone");
    if launchers.any(|one| one != Some((launcher, taken))) || (nodes == 1 && shape.runs.iter().any(is_alone)) {
        return String::new();
    }
    let meets = launcher.meets(shape, nodes, id, port);
    let mut text = String::new();
    let names: Vec<String> = (1..=taken).map(|at| format!("\"${at}\"")).collect();
    let _ = writeln!(text, "launcher=({})\nshift {taken}", names.join(" "));
    if nodes > 1 {
        text.push_str(WITHOUT_STANDALONE);
    }
    let _ = writeln!(text, "set -- \"${{launcher[@]}}\" {meets} \"$@\"");
    text
}

/// Up to the script's own name.
const WITHOUT_STANDALONE: &str = r#"words=() of_launcher=1
for word in "$@"; do
  case $word in *.py | -m | --module) of_launcher='' ;; esac
  [ "$of_launcher$word" = 1--standalone ] || words+=("$word")
done
set -- "${words[@]}"
"#;

impl Launcher {
    /// Its flags; `id` and `port` are a shell's words.
    fn meets(self, shape: &Shape<'_>, nodes: u64, id: &str, port: &str) -> String {
        let per_node = shape.gpus.div_ceil(nodes);
        match (self, nodes) {
            (Self::Torchrun, 1) => format!("--rdzv-backend=c10d --rdzv-id=\"{id}\" --rdzv-endpoint=localhost:0"),
            (Self::Accelerate, 1) => format!("--main_process_port=\"{port}\""),
            (Self::Torchrun, _) => format!(
                "--nnodes={nodes} --nproc-per-node={per_node} --rdzv-backend=c10d --rdzv-id=\"{id}\" \
                 --rdzv-endpoint=\"$MASTER_ADDR:$MASTER_PORT\""
            ),
            (Self::Accelerate, _) => format!(
                "--num_machines={nodes} --num_processes={} --rdzv_backend=c10d --main_process_ip=\"$MASTER_ADDR\" \
                 --main_process_port=\"$MASTER_PORT\"",
                shape.gpus
            ),
        }
    }
}
