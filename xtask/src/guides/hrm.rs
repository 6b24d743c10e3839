//! HRM on several GPUs: memory by batch and width, hours and cost of the suites.

use std::fs;

use anyhow::{Context, Result, anyhow};
use tonnage_core::job::{JobSource, Override};
use tonnage_core::plan::suite::{Priced, Suite as FileSuite, Yardstick};
use tonnage_core::plan::time::cost_factor;
use tonnage_core::units::Seconds;
use tonnage_core::work::Work;
use tonnage_suite::expand::{Typed, expand};
use tonnage_suite::file::SuiteFile;

use super::markdown::{change, dollars, see, size, table};
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

/// The file of all suites.
const SUITE: &str = "examples/suites/hrm-arc.toml";

/// A suite: its name in the file, the guide's hours, GPU-hours and dollars, what varies, and why.
struct Suite {
    name: &'static str,
    hours: Option<f64>,
    written: [&'static str; 3],
    varies: &'static str,
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
    let shown = of_width(768, 4, 64);
    let figures = [size(shown.answer()?.total())];
    Ok(format!("### Memory per GPU\n\n{}{why}{}", table(head, &rows), see(&shown.command(), &figures)))
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
    let figures = [size(at(0).answer()?.total())];
    Ok(format!("### Puzzle embeddings\n\n{}{why}{}", table(head, &rows), see(&at(0).command(), &figures)))
}

fn scaling() -> Result<String> {
    let small = of_width(512, 4, 32).answer()?.total();
    let wide = of_width(768, 4, 32).answer()?.total();
    let config = of_width(768, 4, 64).answer()?.total();
    let eight_heads = of_width(768, 4, 32).with("model.num_heads", 8).answer()?.total();
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
        row([
            "heads",
            "\"num_heads scales\"",
            &format!("{} with 8 heads at width 768, {} with 12", size(eight_heads), size(wide)),
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
    let see = see(&shown.command(), &[size(wide)]);
    Ok(format!("### Scaling\n\n{}{see}", table(["setting", "guide", "ours", "why"], &rows)))
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
    let shown = ARC.with("model.H_cycles", 4).with("model.L_cycles", 4);
    let figures = [size(shown.answer()?.total())];
    Ok(format!("### Cycles\n\n{}{why}{}", table(head, &rows), see(&shown.command(), &figures)))
}

fn suites() -> [Suite; 6] {
    let suite = |name, hours, written, varies, why| Suite { name, hours, written, varies, why };
    [
        suite(
            "baseline",
            Some(4.0),
            ["4 hours", "32", "$64"],
            "",
            "the published recipe takes about 24 hours on 8 GPUs",
        ),
        suite("augmentation", Some(10.0), ["10 hours", "80", "$160"], "", "changes the data, not the step"),
        suite(
            "hierarchical",
            Some(15.0),
            ["15 hours", "120", "$240"],
            "1x1, 1x2, 2x1, 2x2, 4x4: ",
            "half of it is 4x4 alone; the guide names three of the five",
        ),
        suite(
            "deep_transformer",
            Some(8.0),
            ["8 hours", "64", "$128"],
            "",
            "one stack of 8 layers, run twice; the guide does not say more",
        ),
        suite("puzzle_embeddings", Some(12.0), ["12 hours", "96", "$192"], "", "a smaller table, the same layers"),
        suite(
            "act_alternatives",
            None,
            ["missing", "missing", "missing"],
            "at most 1, 2, 4, 8, 16 segments: ",
            "one of the guide's suites, not in its table; at most 1 segment needs no second forward pass",
        ),
    ]
}

/// The suites' file with the step of its first configuration said to take so many seconds, and further changes.
fn priced(step_seconds: f64, more: &[(&str, &str)]) -> Result<Vec<Priced>> {
    let suite = Suite::from_file()?;
    let (file, text) = ("examples/hrm-arc.toml", fs::read_to_string("examples/hrm-arc.toml")?);
    let step_time = step_seconds.to_string();
    let said = more.iter().copied().chain([("step_time", step_time.as_str())]);
    let said: Vec<Override> = said.map(|(key, value)| Override::flag(key, value)).collect();
    let source = JobSource::from_file(file, text).with(&said).pin();
    let first = [suite.set.as_slice(), suite.configurations[0].changes.as_slice()].concat();
    let yardstick = Yardstick::new(&source.resolve(&first).map_err(|error| anyhow!("{SUITE}: {error}"))?.job)?;
    Ok(suite.configurations.iter().map(|one| yardstick.price(one, &suite.set, &source)).collect())
}

/// Sums over configurations and their runs.
#[derive(Default)]
struct Sums {
    runs: u64,
    factor: f64,
    hours: f64,
    gpu_hours: f64,
    dollars: f64,
}

impl Sums {
    /// Of the configurations of this name.
    fn of(rows: &[Priced], name: &str) -> Result<Self> {
        let mut sums = Self::default();
        for row in rows.iter().filter(|row| row.configuration.name.split(' ').next() == Some(name)) {
            let count = row.configuration.count as f64;
            let appraisal = row.appraisal.as_ref().map_err(|problem| anyhow!("{name}: {problem}"))?;
            let costs = &appraisal.bill.as_ref().context("no rates")?.costs;
            sums.runs += row.configuration.count;
            sums.factor += row.factor.context("no operations")? * count;
            sums.hours += costs.wall_seconds.typical / 3600.0 * count;
            sums.gpu_hours += costs.gpu_hours.typical * count;
            sums.dollars += costs.dollars.map_or(0.0, |dollars| dollars.typical) * count;
        }
        anyhow::ensure!(sums.runs > 0, "{SUITE} has no suite `{name}`");
        Ok(sums)
    }

    /// Of all suites.
    fn all(rows: &[Priced]) -> Result<Self> {
        suites().iter().map(|suite| Self::of(rows, suite.name)).try_fold(Self::default(), |sum, suite| {
            let suite = suite?;
            Ok(Self {
                runs: sum.runs + suite.runs,
                factor: sum.factor + suite.factor,
                hours: sum.hours + suite.hours,
                gpu_hours: sum.gpu_hours + suite.gpu_hours,
                dollars: sum.dollars + suite.dollars,
            })
        })
    }
}

/// Seconds of a step in a training of so many hours, to the digits that a command says.
fn step_of(hours: f64) -> Result<f64> {
    let suite = Suite::from_file()?;
    let steps = suite.set.iter().find(|set| set.key == "max_steps").context("no max_steps")?;
    let seconds = hours * 3600.0 / steps.value.parse::<f64>()?;
    Ok((seconds * 1e6).round() / 1e6)
}

impl Suite {
    fn from_file() -> Result<FileSuite> {
        let file = SuiteFile::read(&fs::read_to_string(SUITE)?).map_err(|error| anyhow!("{SUITE}: {error}"))?;
        let all = expand(&file, &Typed::default()).map_err(|error| anyhow!("{SUITE}: {error}"))?;
        Ok(tonnage_suite::expand::priced(&file, &all))
    }
}

/// Hours as the table shows them.
fn rounded(hours: f64) -> f64 {
    (hours * 10.0).round() / 10.0
}

fn suite_command(step_seconds: f64, more: &str) -> String {
    format!("tonnage cost --suite {SUITE}{more} --step-time {step_seconds}")
}

fn cost() -> Result<String> {
    let (quick, slow) = (step_of(GUIDE_HOURS)?, step_of(PUBLISHED_HOURS)?);
    let price = [("price", "2")];
    let (at_guide, published) = (priced(quick, &price)?, priced(slow, &price)?);
    let mut rows = Vec::new();
    for suite in suites() {
        let (ours, theirs) = (Sums::of(&at_guide, suite.name)?, Sums::of(&published, suite.name)?);
        let over = suite.hours.is_some_and(|hours| hours >= SLURM_HOURS) || rounded(ours.hours) >= SLURM_HOURS;
        let runs = if ours.runs == 1 { "1 run".to_owned() } else { format!("{} runs", ours.runs) };
        let name = format!("{}, {runs}", suite.name);
        let why = format!("{}{}", suite.varies, suite.why);
        rows.push(cost_row(&name, suite.written, [&ours, &theirs], if over { "**no**" } else { "yes" }, &why));
    }
    let stated: f64 = suites().iter().filter_map(|suite| suite.hours).sum();
    let sums = format!(
        "the guide's rows add up to {stated:.0} h, {:.0} GPU-hours, ${:.0}",
        stated * GPUS,
        stated * GPUS * DOLLARS
    );
    let all = [Sums::all(&at_guide)?, Sums::all(&published)?];
    rows.push(cost_row("**all**", ["49 hours", "392", "$784"], [&all[0], &all[1]], "", &sums));
    let head = [
        "suite",
        "guide: hours",
        "guide: GPU-hours",
        "guide: cost",
        "runs x their operations",
        "hours at the guide's 4 h",
        "cost at $2",
        "hours at 24 h",
        "cost at $2",
        "within SLURM's 12 h",
        "why",
    ];
    let basis = "**Basis.** All six suites are in one file, of which the commands below print the same sums. *Hours at the guide's 4 h* \
        takes the guide's own baseline for the published configuration, *hours at 24 h* the authors', and others as much longer or shorter \
        as their step is estimated to be, at the same number of steps. $2 a GPU-hour is the guide's; it times H100s and prices \
        A100s. Its SLURM script gives each suite 12 hours.\n\n";
    let of = |sums: &Sums| [format!("{:.2}", sums.factor), dollars(sums.dollars)];
    Ok(format!(
        "### Hours and cost of the suites\n\n{}{basis}{}{}",
        table(head, &rows),
        see(&suite_command(quick, " --price 2"), &of(&all[0])),
        see(&suite_command(slow, " --price 2"), &of(&all[1])),
    ))
}

/// What all suites cost on other GPUs: the authors' 24 hours are on H100s, and a step's time sets the others'.
fn by_gpu() -> Result<String> {
    let cards = gpus(&CARDS)?;
    let h100 = cards.iter().find(|card| card.id == "h100").context("no H100")?;
    let on_h100 = ARC.bill(h100)?.step.seconds.typical;
    let mut rows = Vec::new();
    let mut first = None;
    for card in &cards {
        let bill = ARC.bill(card)?;
        let seconds = bill.step.seconds;
        let step = (step_of(PUBLISHED_HOURS)? * seconds.typical / on_h100 * 1e6).round() / 1e6;
        let all = Sums::all(&priced(step, &[("gpu", &card.id)])?)?;
        let price = bill.costs.price.with_context(|| format!("no price of {}", card.id))?;
        first.get_or_insert_with(|| {
            see(
                &format!("tonnage cost examples/hrm-arc.toml --gpu {}", card.id),
                &[Seconds(seconds.typical).to_string()],
            )
        });
        rows.push([
            card.name.clone(),
            format!("{} ({} to {})", Seconds(seconds.typical), Seconds(seconds.low), Seconds(seconds.high)),
            format!("{:.0}", all.gpu_hours),
            format!("${:.2} ({})", price.dollars_per_gpu_hour, price.source),
            dollars(all.dollars),
            format!("`{}`", suite_command(step, &format!(" --gpu {}", card.id))),
        ]);
    }
    let head = [
        "8 GPUs of",
        "ours: a step of 96 rows",
        "GPU-hours of all suites",
        "price of an hour",
        "all suites",
        "command",
    ];
    let why = "The guide says $784 at $2. The published configuration is taken to run the authors' 24 hours on eight H100s; on other \
        GPUs as much longer or shorter as a step is estimated to be, from simulated operations and bytes over datasheet rates. The \
        estimate itself is of eager mode; theirs is compiled.\n\n";
    Ok(format!("### The same by GPU\n\n{}{why}{}", table(head, &rows), first.unwrap_or_default()))
}

fn cost_row(name: &str, written: [&str; 3], [ours, theirs]: [&Sums; 2], limit: &str, why: &str) -> [String; 11] {
    let [hours, gpu_hours, cost] = written.map(str::to_owned);
    [
        name.to_owned(),
        hours,
        gpu_hours,
        cost,
        format!("{:.2}", ours.factor),
        format!("{:.1}", ours.hours),
        dollars(ours.dollars),
        format!("{:.0}", theirs.hours),
        dollars(theirs.dollars),
        limit.to_owned(),
        why.to_owned(),
    ]
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
