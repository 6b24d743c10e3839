//! Hours and dollars of the guide's suites of HRM beside ours.

use std::fs;
use tonnage_core::job::keys;

use anyhow::{Context, Result, anyhow};
use tonnage_core::job::{JobSource, Override};
use tonnage_core::plan::suite::{CostReference, Priced, Suite as FileSuite};
use tonnage_core::units::Seconds;
use tonnage_suite::expand::{Typed, expand_file};
use tonnage_suite::file::SuiteFile;

use super::markdown::{dollar_text, markdown_table, see_command};
use super::question::{Question, gpus};

/// The job of the guide.
pub const ARC: Question = Question::of("examples/hrm-arc.toml");

/// The guide's GPUs of an experiment, and its price of an hour.
const GPUS: f64 = 8.0;
const DOLLARS: f64 = 2.0;
/// Hours of one configuration: the guide's baseline, and what HRM's authors publish for ARC on 8 GPUs.
const GUIDE_HOURS: f64 = 4.0;
const PUBLISHED_HOURS: f64 = 24.0;
/// GPUs whose price stands beside the guide's.
const CARDS: [&str; 4] = ["a100-80", "h100", "h200", "b200"];
/// The time limit of the guide's SLURM jobs, one for each suite.
const SLURM_HOURS: f64 = 12.0;

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

fn priced_suites() -> [Suite; 6] {
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
fn price_suite(step_seconds: f64, more: &[(&str, &str)]) -> Result<Vec<Priced>> {
    let suite = Suite::from_file()?;
    let (file, text) = ("examples/hrm-arc.toml", fs::read_to_string("examples/hrm-arc.toml")?);
    let step_time = step_seconds.to_string();
    let said = more.iter().copied().chain([(keys::STEP_TIME, step_time.as_str())]);
    let said: Vec<Override> = said.map(|(key, value)| Override::flag(key, value)).collect();
    let source = JobSource::from_file(file, text).with(&said).pin();
    let first = [suite.set.as_slice(), suite.configurations[0].changes.as_slice()].concat();
    let reference = CostReference::new(&source.resolve(&first).map_err(|error| anyhow!("{SUITE}: {error}"))?.job)?;
    Ok(suite.configurations.iter().map(|one| reference.price_of(one, &suite.set, &source)).collect())
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
        priced_suites().iter().map(|suite| Self::of(rows, suite.name)).try_fold(Self::default(), |sum, suite| {
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
    let steps = suite.set.iter().find(|set| set.key == keys::MAX_STEPS).context("no max_steps")?;
    let seconds = hours * 3600.0 / steps.value.parse::<f64>()?;
    Ok((seconds * 1e6).round() / 1e6)
}

impl Suite {
    fn from_file() -> Result<FileSuite> {
        let file = SuiteFile::read(&fs::read_to_string(SUITE)?).map_err(|error| anyhow!("{SUITE}: {error}"))?;
        let all = expand_file(&file, &Typed::default()).map_err(|error| anyhow!("{SUITE}: {error}"))?;
        Ok(tonnage_suite::expand::priced_suite(&file, &all))
    }
}

/// Hours as the table shows them.
fn rounded_hours(hours: f64) -> f64 {
    (hours * 10.0).round() / 10.0
}

fn suite_command(step_seconds: f64, more: &str) -> String {
    format!("tonnage cost --suite {SUITE}{more} --step-time {step_seconds}")
}

pub fn cost_table() -> Result<String> {
    let (quick, slow) = (step_of(GUIDE_HOURS)?, step_of(PUBLISHED_HOURS)?);
    let price = [(keys::PRICE, "2")];
    let (at_guide, published) = (price_suite(quick, &price)?, price_suite(slow, &price)?);
    let mut rows = Vec::new();
    for suite in priced_suites() {
        let (ours, theirs) = (Sums::of(&at_guide, suite.name)?, Sums::of(&published, suite.name)?);
        let over = suite.hours.is_some_and(|hours| hours >= SLURM_HOURS) || rounded_hours(ours.hours) >= SLURM_HOURS;
        let runs = if ours.runs == 1 { "1 run".to_owned() } else { format!("{} runs", ours.runs) };
        let name = format!("{}, {runs}", suite.name);
        let why = format!("{}{}", suite.varies, suite.why);
        rows.push(cost_row(&name, suite.written, [&ours, &theirs], if over { "**no**" } else { "yes" }, &why));
    }
    let stated: f64 = priced_suites().iter().filter_map(|suite| suite.hours).sum();
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
    let of = |sums: &Sums| [format!("{:.2}", sums.factor), dollar_text(sums.dollars)];
    Ok(format!(
        "### Hours and cost of the suites\n\n{}{basis}{}{}",
        markdown_table(head, &rows),
        see_command(&suite_command(quick, " --price 2"), &of(&all[0])),
        see_command(&suite_command(slow, " --price 2"), &of(&all[1])),
    ))
}

/// What all suites cost on other GPUs: the authors' 24 hours are on H100s, and a step's time sets the others'.
pub fn by_gpu() -> Result<String> {
    let cards = gpus(&CARDS)?;
    let h100 = cards.iter().find(|card| card.id == "h100").context("no H100")?;
    let on_h100 = ARC.bill(h100)?.step.seconds.typical;
    let mut rows = Vec::new();
    let mut first = None;
    for card in &cards {
        let bill = ARC.bill(card)?;
        let seconds = bill.step.seconds;
        let step = (step_of(PUBLISHED_HOURS)? * seconds.typical / on_h100 * 1e6).round() / 1e6;
        let all = Sums::all(&price_suite(step, &[(keys::GPU, &card.id)])?)?;
        let price = bill.costs.price.with_context(|| format!("no price of {}", card.id))?;
        first.get_or_insert_with(|| {
            see_command(
                &format!("tonnage cost examples/hrm-arc.toml --gpu {}", card.id),
                &[Seconds(seconds.typical).to_string()],
            )
        });
        rows.push([
            card.name.clone(),
            format!("{} ({} to {})", Seconds(seconds.typical), Seconds(seconds.low), Seconds(seconds.high)),
            format!("{:.0}", all.gpu_hours),
            format!("${:.2} ({})", price.dollars_per_gpu_hour, price.source),
            dollar_text(all.dollars),
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
    Ok(format!("### The same by GPU\n\n{}{why}{}", markdown_table(head, &rows), first.unwrap_or_default()))
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
        dollar_text(ours.dollars),
        format!("{:.0}", theirs.hours),
        dollar_text(theirs.dollars),
        limit.to_owned(),
        why.to_owned(),
    ]
}
