//! HRM on several GPUs: memory by batch and width, hours and cost of the suites.

use anyhow::{Context, Result};
use tonnage_core::job::keys;
use tonnage_core::plan::time::cost_factor;
use tonnage_core::work::Work;

use super::hrm_cost::{ARC, by_gpu, cost_table};
use super::markdown::{change_text, markdown_table, see_command, size_text};
use super::question::{Question, word};

/// Steps over which operations are compared: what only the first step does must not count.
const STEPS: u64 = 1000;

/// Turns and layers of the two levels of a configuration.
#[derive(Clone, Copy)]
struct Cycles {
    h: u32,
    l: u32,
    h_layers: u32,
    l_layers: u32,
}

const BASE: Cycles = Cycles { h: 2, l: 2, h_layers: 4, l_layers: 4 };

impl Cycles {
    const fn turns(h: u32, l: u32) -> Self {
        Self { h, l, ..BASE }
    }

    /// Layers that a training step runs: two forward passes, the second for the value of going on, and backward through
    /// the last turn of each level, which costs two forwards of its layers.
    const fn layer_forwards(self) -> u32 {
        let forward = self.h * self.l * self.l_layers + self.h * self.h_layers;
        2 * forward + 2 * (self.l_layers + self.h_layers)
    }

    /// What it costs by its layers, the published configuration being 1.
    fn factor(self) -> f64 {
        f64::from(self.layer_forwards()) / f64::from(BASE.layer_forwards())
    }

    /// The job of this configuration.
    fn question(self) -> Question {
        let turns = ARC.with("model.H_cycles", self.h).with("model.L_cycles", self.l);
        turns.with("model.H_layers", self.h_layers).with("model.L_layers", self.l_layers)
    }

    /// What it costs by the operations of its simulated steps, `base` being 1.
    fn operations(self, base: &Work) -> Result<f64> {
        cost_factor(&self.question().work()?, base, STEPS).context("the published configuration computes nothing")
    }
}

pub fn hrm_section() -> Result<String> {
    let intro = "## 4. HRM on several GPUs: memory, hours, cost\n\n\
        The hierarchical reasoning model on ARC puzzles of 900 cells, on 8 GPUs. Each GPU holds the whole model and its own \
        rows, so the figures are those of one GPU; they are of eager mode, and `torch.compile`, which HRM uses by default, \
        needs less.\n\n";
    Ok([
        intro.to_owned(),
        memory_table()?,
        embedding_table()?,
        scaling_table()?,
        cycle_table()?,
        cost_table()?,
        by_gpu()?,
    ]
    .concat())
}

/// HRM of this width, with tokens of the same width for puzzles.
fn of_width(hidden: u64, layers: u64, rows: u64) -> Question {
    let sized =
        ARC.with(keys::MICRO_BATCH_SIZE, rows).with("model.hidden_size", hidden).with("model.num_heads", hidden / 64);
    sized.with("model.puzzle_emb_ndim", hidden).with("model.H_layers", layers).with("model.L_layers", layers)
}

fn memory_table() -> Result<String> {
    let mut rows = Vec::new();
    for (hidden, layers) in [(512, 4), (768, 4), (768, 8)] {
        let totals = [32, 64, 96].map(|rows| of_width(hidden, layers, rows).answer());
        let [a, b, c] = totals;
        let (a, b, c) = (a?, b?, c?);
        let on = |gpu: &'static str| -> Result<String> {
            Ok(word(of_width(hidden, layers, 64).with(keys::GPU, gpu).answer()?.deployment.fit()).to_owned())
        };
        rows.push([
            format!("{hidden}, {layers} + {layers} layers"),
            size_text(a.total()),
            size_text(b.total()),
            size_text(c.total()),
            on("rtx-4090")?,
            on("a100-40")?,
        ]);
    }
    let why = "**Guide:** \"Minimum 40GB per GPU, recommended 80GB; peak usage ~35GB per GPU with largest models\". **Why \
        it differs.** Its `num_layers: 8` may mean 4 + 4 or 8 + 8; memory grows with rows, tokens, width and layers, and 35 GB is \
        reached by the widest and deepest of these rows only. Its remedy for an out-of-memory error, 32 rows in place of 64, does what it \
        says. \"Activations distributed\" does not: with plain data parallelism each GPU keeps all activations of its rows.\n\n";
    let head = [
        "hidden size",
        "32 rows per GPU",
        "64 rows",
        "96 rows (published)",
        "64 rows on 24 GB (RTX 4090)",
        "64 rows on A100 40GB",
    ];
    let shown = of_width(768, 4, 64);
    let figures = [size_text(shown.answer()?.total())];
    Ok(format!("### Memory per GPU\n\n{}{why}{}", markdown_table(head, &rows), see_command(&shown.command(), &figures)))
}

fn embedding_table() -> Result<String> {
    let at = |dims: u64| ARC.with(keys::MICRO_BATCH_SIZE, 64).with("model.puzzle_emb_ndim", dims);
    let base = at(512).answer()?.total();
    let mut rows = Vec::new();
    for dims in [0, 8, 16, 32, 512] {
        let total = at(dims).answer()?.total();
        rows.push([dims.to_string(), size_text(total), change_text(base, total)]);
    }
    let why = "The guide's suite has 0, 8, 16 and 32 dimensions and no figure for them; the published model has 512. The table \
        of puzzle identifiers has a row for each augmented puzzle and is larger than the model. The original program stops at 0.\n\n";
    let head = ["puzzle embedding, dimensions", "ours, 64 rows", "change"];
    let figures = [size_text(at(0).answer()?.total())];
    Ok(format!(
        "### Puzzle embeddings\n\n{}{why}{}",
        markdown_table(head, &rows),
        see_command(&at(0).command(), &figures)
    ))
}

fn scaling_table() -> Result<String> {
    let small = of_width(512, 4, 32).answer()?.total();
    let wide = of_width(768, 4, 32).answer()?.total();
    let config = of_width(768, 4, 64).answer()?.total();
    let eight_heads = of_width(768, 4, 32).with("model.num_heads", 8).answer()?.total();
    let row = |cells: [&str; 4]| cells.map(str::to_owned);
    let rows = [
        row([
            "batch 32 on one GPU, 256 on eight",
            "\"linear scaling\"",
            &format!("{} per GPU in both cases", size_text(small)),
            "256 over 8 GPUs is 32 each; the configuration below it in the guide has 64 each, which is 512",
        ]),
        row([
            "64 rows per GPU, hidden size 768",
            "\"batch_size 64, total 512\"",
            &format!("{} ({})", size_text(config), change_text(small, config)),
            "another model and twice the rows",
        ]),
        row([
            "hidden size 512 on one GPU, 768 on eight",
            "\"better GPU utilization\"",
            &format!("{} ({})", size_text(wide), change_text(small, wide)),
            "a model that changes with the number of GPUs: results of one and of eight cannot be compared",
        ]),
        row([
            "learning rate",
            "3e-4 -> 8.5e-4, sqrt(world_size)",
            &format!("{:.1e} for 8 times the rows, {:.1e} for 16 times", 3e-4 * 8f64.sqrt(), 3e-4 * 16f64.sqrt()),
            "8.5e-4 belongs to 256 rows, not to 512",
        ]),
        row([
            "heads",
            "\"num_heads scales\"",
            &format!("{} with 8 heads at width 768, {} with 12", size_text(eight_heads), size_text(wide)),
            "attention is flash-attn's, which keeps one number a head and token: heads cost next to nothing",
        ]),
        row([
            "precision",
            "\"FP16 with gradient scaling\"",
            "bf16, no scaler",
            "HRM casts fp32 weights to its `forward_dtype`, bfloat16, where it uses them; there is no fp16 and no scaler in it",
        ]),
        row([
            "environment",
            "`NCCL_TIMEOUT=3600`, `MASTER_PORT` with `torchrun --standalone`",
            "neither acts",
            "the timeout is an argument of `init_process_group`, which NCCL's variables do not set; `--standalone` picks a port of its own",
        ]),
        row(["score", "pass@1 \"replicates the paper\"", "pass@2", "HRM and ARC Prize report two attempts a puzzle"]),
    ];
    let shown = of_width(768, 4, 32);
    let see = see_command(&shown.command(), &[size_text(wide)]);
    Ok(format!("### Scaling\n\n{}{see}", markdown_table(["setting", "guide", "ours", "why"], &rows)))
}

fn cycle_table() -> Result<String> {
    let mut rows = Vec::new();
    let base = BASE.question().work()?;
    for (h, l) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 4), (2, 8)] {
        let job = ARC.with("model.H_cycles", h).with("model.L_cycles", l);
        let cycles = Cycles::turns(h, l);
        rows.push([
            format!("{h} x {l}"),
            size_text(job.answer()?.total()),
            cycles.layer_forwards().to_string(),
            format!("{:.2}", cycles.factor()),
            format!("{:.2}", cycles.operations(&base)?),
        ]);
    }
    let why = "Cycles cost time, not memory: only the last turn of each level keeps what backward needs. The guide gives \
        every configuration of its suite 3 hours. Operations count the embedding, the head and their gradients too, which are the \
        same for every number of cycles.\n\n";
    let head = [
        "H x L cycles",
        "memory per GPU, 96 rows",
        "layers run in a step",
        "cost by layers, 2 x 2 = 1",
        "cost by simulated operations",
    ];
    let shown = ARC.with("model.H_cycles", 4).with("model.L_cycles", 4);
    let figures = [size_text(shown.answer()?.total())];
    Ok(format!("### Cycles\n\n{}{why}{}", markdown_table(head, &rows), see_command(&shown.command(), &figures)))
}

#[cfg(test)]
mod tests {
    use super::Cycles;

    #[test]
    fn four_by_four_costs_2_75_times_two_by_two() {
        let factors = [(1, 1), (2, 2), (4, 4), (2, 8)].map(|(h, l)| Cycles::turns(h, l).factor());
        assert_eq!(factors, [0.5, 1.0, 2.75, 2.5]);
    }
}
