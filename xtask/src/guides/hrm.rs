//! HRM on several GPUs: memory by batch and width, hours and cost of the suites.

use anyhow::{Context, Result};
use tonnage_core::plan::time::cost_factor;
use tonnage_core::work::Work;

use super::markdown::{change, see, size, table};
use super::question::{Question, gpus, word};

const ARC: Question = Question::of("examples/hrm-arc.toml");

/// The guide's GPUs of an experiment, and its price of an hour.
const GPUS: f64 = 8.0;
const DOLLARS: f64 = 2.0;
/// Hours of one configuration: the guide's baseline, and what HRM's authors publish for ARC on 8 GPUs.
const GUIDE_HOURS: f64 = 4.0;
const PUBLISHED_HOURS: f64 = 24.0;
/// Steps over which operations are compared: what only the first step does must not count.
const STEPS: u64 = 1000;
/// GPUs whose price stands beside the guide's.
const CARDS: [&str; 4] = ["a100-80", "h100", "h200", "b200"];
/// The time limit of the guide's SLURM jobs, one for each suite.
const SLURM_HOURS: f64 = 12.0;

/// Turns and layers of the two levels of a configuration.
#[derive(Clone, Copy)]
struct Cycles {
    h: u32,
    l: u32,
    h_layers: u32,
    l_layers: u32,
    /// Whether a step runs a second forward pass, for the value of going on.
    looks_ahead: bool,
}

const BASE: Cycles = Cycles { h: 2, l: 2, h_layers: 4, l_layers: 4, looks_ahead: true };

impl Cycles {
    const fn turns(h: u32, l: u32) -> Self {
        Self { h, l, ..BASE }
    }

    /// Layers that a training step runs: one or two forward passes, and backward through the last turn of each level,
    /// which costs two forwards of its layers.
    const fn layer_forwards(self) -> u32 {
        let forward = self.h * self.l * self.l_layers + self.h * self.h_layers;
        let passes = if self.looks_ahead { 2 } else { 1 };
        passes * forward + 2 * (self.l_layers + self.h_layers)
    }

    /// What it costs by its layers, the published configuration being 1.
    fn factor(self) -> f64 {
        f64::from(self.layer_forwards()) / f64::from(BASE.layer_forwards())
    }

    /// The job of this configuration.
    fn question(self) -> Question {
        let turns = ARC.with("model.H_cycles", self.h).with("model.L_cycles", self.l);
        let job = turns.with("model.H_layers", self.h_layers).with("model.L_layers", self.l_layers);
        if self.looks_ahead { job } else { job.with("model.halt_max_steps", 1) }
    }

    /// What it costs by the operations of its simulated steps, `base` being 1.
    fn operations(self, base: &Work) -> Result<f64> {
        cost_factor(&self.question().work()?, base, STEPS).context("the published configuration computes nothing")
    }
}

/// A suite: name, the guide's hours, GPU-hours and dollars, and the configurations.
struct Suite {
    name: &'static str,
    hours: Option<f64>,
    written: [&'static str; 3],
    configurations: Vec<Cycles>,
    why: &'static str,
}

/// The section.
pub fn section() -> Result<String> {
    let intro = "## 4. HRM on several GPUs: memory, hours, cost\n\n\
        The hierarchical reasoning model on ARC puzzles of 900 cells, on 8 GPUs. Each GPU holds the whole model and its own \
        rows, so the figures are those of one GPU; they are of eager mode, and `torch.compile`, which HRM uses by default, \
        needs less.\n\n";
    Ok([intro.to_owned(), memory()?, embeddings()?, scaling()?, cycles()?, cost()?, by_gpu()?].concat())
}

/// HRM of this width, with tokens of the same width for puzzles.
fn of_width(hidden: u64, layers: u64, rows: u64) -> Question {
    let sized =
        ARC.with("micro_batch_size", rows).with("model.hidden_size", hidden).with("model.num_heads", hidden / 64);
    sized.with("model.puzzle_emb_ndim", hidden).with("model.H_layers", layers).with("model.L_layers", layers)
}

fn memory() -> Result<String> {
    let mut rows = Vec::new();
    for (hidden, layers) in [(512, 4), (768, 4), (768, 8)] {
        let totals = [32, 64, 96].map(|rows| of_width(hidden, layers, rows).answer());
        let [a, b, c] = totals;
        let (a, b, c) = (a?, b?, c?);
        let on = |gpu: &'static str| -> Result<String> {
            Ok(word(of_width(hidden, layers, 64).with("gpu", gpu).answer()?.deployment.fit()).to_owned())
        };
        rows.push([
            format!("{hidden}, {layers} + {layers} layers"),
            size(a.total()),
            size(b.total()),
            size(c.total()),
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
    Ok(format!("### Memory per GPU\n\n{}{why}{}", table(head, &rows), see(&of_width(768, 4, 64).command())))
}

fn embeddings() -> Result<String> {
    let at = |dims: u64| ARC.with("micro_batch_size", 64).with("model.puzzle_emb_ndim", dims);
    let base = at(512).answer()?.total();
    let mut rows = Vec::new();
    for dims in [0, 8, 16, 32, 512] {
        let total = at(dims).answer()?.total();
        rows.push([dims.to_string(), size(total), change(base, total)]);
    }
    let why = "The guide's suite has 0, 8, 16 and 32 dimensions and no figure for them; the published model has 512. The table \
        of puzzle identifiers has a row for each augmented puzzle and is larger than the model. The original program stops at 0.\n\n";
    let head = ["puzzle embedding, dimensions", "ours, 64 rows", "change"];
    Ok(format!("### Puzzle embeddings\n\n{}{why}{}", table(head, &rows), see(&at(0).command())))
}

fn scaling() -> Result<String> {
    let small = of_width(512, 4, 32).answer()?.total();
    let wide = of_width(768, 4, 32).answer()?.total();
    let config = of_width(768, 4, 64).answer()?.total();
    let row = |cells: [&str; 4]| cells.map(str::to_owned);
    let rows = [
        row([
            "batch 32 on one GPU, 256 on eight",
            "\"linear scaling\"",
            &format!("{} per GPU in both cases", size(small)),
            "256 over 8 GPUs is 32 each; the configuration below it in the guide has 64 each, which is 512",
        ]),
        row([
            "64 rows per GPU, hidden size 768",
            "\"batch_size 64, total 512\"",
            &format!("{} ({})", size(config), change(small, config)),
            "another model and twice the rows",
        ]),
        row([
            "hidden size 512 on one GPU, 768 on eight",
            "\"better GPU utilization\"",
            &format!("{} ({})", size(wide), change(small, wide)),
            "a model that changes with the number of GPUs: results of one and of eight cannot be compared",
        ]),
        row([
            "learning rate",
            "3e-4 -> 8.5e-4, sqrt(world_size)",
            &format!("{:.1e} for 8 times the rows, {:.1e} for 16 times", 3e-4 * 8f64.sqrt(), 3e-4 * 16f64.sqrt()),
            "8.5e-4 belongs to 256 rows, not to 512",
        ]),
    ];
    Ok(format!("### Scaling\n\n{}", table(["setting", "guide", "ours", "why"], &rows)))
}

fn cycles() -> Result<String> {
    let mut rows = Vec::new();
    let base = BASE.question().work()?;
    for (h, l) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 4), (2, 8)] {
        let job = ARC.with("model.H_cycles", h).with("model.L_cycles", l);
        let cycles = Cycles::turns(h, l);
        rows.push([
            format!("{h} x {l}"),
            size(job.answer()?.total()),
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
    let command = ARC.with("model.H_cycles", 4).with("model.L_cycles", 4).command();
    Ok(format!("### Cycles\n\n{}{why}{}", table(head, &rows), see(&command)))
}

fn suites() -> Vec<Suite> {
    let stack = Cycles { h_layers: 8, l_layers: 0, ..BASE };
    let one_segment = Cycles { looks_ahead: false, ..BASE };
    vec![
        Suite {
            name: "baseline",
            hours: Some(4.0),
            written: ["4 hours", "32", "$64"],
            configurations: vec![BASE],
            why: "the published recipe takes about 24 hours on 8 GPUs",
        },
        Suite {
            name: "augmentation, 3 configurations",
            hours: Some(10.0),
            written: ["10 hours", "80", "$160"],
            configurations: vec![BASE; 3],
            why: "augmentation changes the data, not the step",
        },
        Suite {
            name: "hierarchical, 5 configurations (1x1, 1x2, 2x1, 2x2, 4x4)",
            hours: Some(15.0),
            written: ["15 hours", "120", "$240"],
            configurations: [(1, 1), (1, 2), (2, 1), (2, 2), (4, 4)].map(|(h, l)| Cycles::turns(h, l)).to_vec(),
            why: "half of it is 4x4 alone; the guide names three of the five",
        },
        Suite {
            name: "deep transformer, 2 configurations",
            hours: Some(8.0),
            written: ["8 hours", "64", "$128"],
            configurations: vec![stack; 2],
            why: "one stack of 8 layers, run twice; the guide does not say more",
        },
        Suite {
            name: "puzzle embeddings, 4 configurations",
            hours: Some(12.0),
            written: ["12 hours", "96", "$192"],
            configurations: vec![BASE; 4],
            why: "a smaller table, the same layers",
        },
        Suite {
            name: "ACT alternatives (at most 1, 2, 4, 8, 16 segments)",
            hours: None,
            written: ["missing", "missing", "missing"],
            configurations: [vec![one_segment], vec![BASE; 4]].concat(),
            why: "one of the guide's suites, not in its table; at most 1 segment needs no second forward pass",
        },
    ]
}

fn cost() -> Result<String> {
    let suites = suites();
    let base = BASE.question().work()?;
    let mut rows = Vec::new();
    let (mut stated, mut factors) = (0.0, 0.0);
    for suite in &suites {
        let factor = suite.factor(&base)?;
        stated += suite.hours.unwrap_or(0.0);
        factors += factor;
        let over = suite.hours.is_some_and(|hours| hours >= SLURM_HOURS) || factor * GUIDE_HOURS >= SLURM_HOURS;
        let limit = if over { "**no**" } else { "yes" };
        rows.push(cost_row(suite.name, suite.written, factor, limit, suite.why));
    }
    let sums = format!(
        "the guide's rows add up to {stated:.0} h, {:.0} GPU-hours, ${:.0}",
        stated * GPUS,
        stated * GPUS * DOLLARS
    );
    rows.push(cost_row("**all**", ["49 hours", "392", "$784"], factors, "", &sums));
    let head = [
        "suite",
        "guide: hours",
        "guide: GPU-hours",
        "guide: cost",
        "configurations x their cost",
        "hours at the guide's 4 h",
        "cost at $2",
        "hours at 24 h",
        "within SLURM's 12 h",
        "why",
    ];
    let basis = "**Basis.** Cost factors are the operations of the simulated steps, at the same number of steps: *hours at the guide's \
        4 h* takes the guide's own baseline for a configuration of cost 1, *hours at 24 h* the authors'. $2 a GPU-hour is the \
        guide's; it times H100s and prices A100s. Its SLURM script gives each suite 12 hours.\n\n";
    let command = "tonnage cost --suite examples/suites/hrm-arc.toml --price 2";
    Ok(format!("### Hours and cost of the suites\n\n{}{basis}{}", table(head, &rows), see(command)))
}

impl Suite {
    /// What all its configurations cost together.
    fn factor(&self, base: &Work) -> Result<f64> {
        self.configurations.iter().map(|cycles| cycles.operations(base)).sum()
    }
}

/// What all suites cost on other GPUs: the authors' 24 hours are on H100s, and a step's time sets the others'.
fn by_gpu() -> Result<String> {
    let base = BASE.question().work()?;
    let factors = suites().iter().map(|suite| suite.factor(&base)).sum::<Result<f64>>()?;
    let cards = gpus(&CARDS)?;
    let h100 = cards.iter().find(|card| card.id == "h100").context("no H100")?;
    let step = |gpu| -> Result<_> { Ok(BASE.question().bill(gpu)?.step.seconds) };
    let published = step(h100)?.typical;
    let mut rows = Vec::new();
    for card in &cards {
        let bill = BASE.question().bill(card)?;
        let seconds = bill.step.seconds;
        let gpu_hours = factors * PUBLISHED_HOURS * GPUS * seconds.typical / published;
        let price = bill.costs.price.with_context(|| format!("no price of {}", card.id))?;
        rows.push([
            card.name.clone(),
            format!("{:.2} s ({:.2} to {:.2})", seconds.typical, seconds.low, seconds.high),
            format!("{gpu_hours:.0}"),
            format!("${:.2} ({})", price.dollars_per_gpu_hour, price.source),
            format!("${:.0}", gpu_hours * price.dollars_per_gpu_hour),
        ]);
    }
    let head = ["8 GPUs of", "ours: a step of 96 rows", "GPU-hours of all suites", "price of an hour", "all suites"];
    let why = "The guide says $784 at $2. A configuration of cost 1 is taken to run the authors' 24 hours on eight H100s; on other \
        GPUs as much longer or shorter as a step is estimated to be, from simulated operations and bytes over datasheet rates.\n\n";
    Ok(format!("### The same by GPU\n\n{}{why}{}", table(head, &rows), see(&BASE.question().command())))
}

fn cost_row(name: &str, written: [&str; 3], factor: f64, limit: &str, why: &str) -> [String; 10] {
    let hours = factor * GUIDE_HOURS;
    let ours = [
        format!("{factor:.2}"),
        format!("{hours:.1}"),
        format!("${:.0}", hours * GPUS * DOLLARS),
        format!("{:.0}", factor * PUBLISHED_HOURS),
    ];
    let [factor, hours, dollars, published] = ours;
    let [guide_hours, guide_gpu_hours, guide_dollars] = written.map(str::to_owned);
    let (limit, why) = (limit.to_owned(), why.to_owned());
    [name.to_owned(), guide_hours, guide_gpu_hours, guide_dollars, factor, hours, dollars, published, limit, why]
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
