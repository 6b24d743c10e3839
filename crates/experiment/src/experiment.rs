//! [`Experiment`]: runs put side by side, configurations by seeds, and the question that is asked of them.

use std::collections::BTreeMap;
use tonnage_core::small_sort::SmallSort;

use crate::axis::{AXES, Axis};
use crate::metric::{Kind, interest_in, is_lower_better};
use crate::record::{RewardScale, Total};
use crate::run::Run;
use crate::series::Series;

/// What is asked; what is left open is found from the records, and said.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The metric; several by `*`, which are tasks.
    pub metric: Option<String>,
    /// The axis that comes first.
    pub by: Option<Axis>,
    /// What others are compared with.
    pub baseline: Option<String>,
    /// Whether less is better.
    pub lower_is_better: Option<bool>,
    /// Whether runs of one seed are pairs.
    pub paired: Option<bool>,
    /// What rewards add up, where records do not say.
    pub reward: Option<Total>,
    /// The most that one completion can earn, likewise.
    pub max_reward: Option<f64>,
    /// A value whose reaching is a milestone.
    pub milestone: Option<f64>,
}

/// Why nothing can be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// No run has a series.
    #[error("no run has a metric")]
    NoMetric,
    /// None has this one.
    #[error("no run has a metric `{0}`; there are: {1}")]
    NoSuchMetric(String, String),
    /// None is called so.
    #[error("there is no configuration `{0}`; there are: {1}")]
    NoSuchBaseline(String, String),
}

/// Runs of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    pub name: String,
    /// Its runs, by seed: indices into [`Experiment::runs`].
    pub runs: Vec<usize>,
}

/// Runs put side by side.
#[derive(Debug)]
pub struct Experiment {
    /// Runs; nodes of one run are put together.
    pub runs: Vec<Run>,
    /// The nodes that were, each by itself.
    pub nodes: Vec<Run>,
    /// By configuration; the baseline first.
    pub configurations: Vec<Configuration>,
    /// The metric, or of several tasks each.
    pub metrics: Vec<String>,
    /// What it is called in the report.
    pub metric: String,
    /// Whether less of it is better.
    pub lower_is_better: bool,
    /// Axes that every run says, the first the one asked for.
    pub axes: Vec<Axis>,
    /// Whether runs of one seed are pairs.
    pub is_paired: bool,
    /// The value whose reaching is a milestone, where one was named.
    pub milestone: Option<f64>,
    /// Metrics of all runs, and in how many they are.
    pub available: BTreeMap<String, usize>,
}

/// What a run comes to within a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean of the last tenth of its points, one at least.
    pub last: f64,
    /// The best point.
    pub best: f64,
    pub points: usize,
    /// Whether it ended before the budget did.
    pub is_short: bool,
}

impl Experiment {
    /// Puts `runs` side by side.
    ///
    /// # Errors
    /// When no run has what is asked about.
    pub fn new(runs: Vec<Run>, question: &Question) -> Result<Self, Unanswerable> {
        let (mut runs, nodes) = join_nodes(runs);
        runs.iter_mut().for_each(|run| complete_scale(&mut run.identity.reward, question));
        let available = available_metrics(&runs);
        let metrics = chosen_metrics(&available, question.metric.as_deref(), runs.len())?;
        let configurations = group_configurations(&runs, question.baseline.as_deref())?;
        let with_metric: Vec<&Run> =
            runs.iter().filter(|run| metrics.iter().any(|metric| run.metric(metric).is_some())).collect();
        let known = |axis: &Axis| with_metric.iter().all(|run| axis.is_known(run));
        let mut axes: Vec<Axis> = AXES.iter().map(|row| row.0).filter(known).collect();
        if let Some(at) = question.by.and_then(|by| axes.iter().position(|axis| *axis == by)) {
            let first = axes.remove(at);
            axes.insert(0, first);
        }
        let told = runs.iter().all(|run| run.identity.shares_data_order == Some(true) && run.seed_is_known);
        let metric = question.metric.clone().filter(|_| metrics.len() > 1).unwrap_or_else(|| metrics[0].clone());
        Ok(Self {
            lower_is_better: question.lower_is_better.unwrap_or_else(|| is_lower_better(&metric)),
            is_paired: question.paired.unwrap_or(told),
            milestone: question.milestone,
            runs,
            nodes,
            configurations,
            metrics,
            metric,
            axes,
            available,
        })
    }

    /// The runs of a configuration.
    pub fn runs_of<'a>(&'a self, configuration: &'a Configuration) -> impl Iterator<Item = &'a Run> + 'a {
        configuration.runs.iter().map(|index| &self.runs[*index])
    }

    /// What others are compared with.
    pub fn baseline(&self) -> Option<&Configuration> {
        self.configurations.first()
    }

    /// The configurations that are compared with the baseline.
    pub fn others(&self) -> &[Configuration] {
        self.configurations.get(1..).unwrap_or_default()
    }

    /// How far all configurations got on `axis`: no run is credited with what others had no chance to do.
    pub fn budget(&self, axis: Axis) -> Option<f64> {
        let end = |run: &Run| {
            let last = self.metrics.iter().filter_map(|metric| run.metric(metric)?.last_point()).map(|last| last.0);
            axis.at(run, last.max_by(f64::total_cmp)?)
        };
        let of = |one: &Configuration| self.runs_of(one).filter_map(end).max_by(f64::total_cmp);
        self.configurations.iter().filter_map(of).min_by(f64::total_cmp)
    }

    /// What `run` comes to in `metric` within `budget` on `axis`; `None` where it has no finite point there.
    pub fn score(&self, run: &Run, metric: &str, axis: Axis, budget: f64) -> Option<Score> {
        let series = run.metric(metric)?;
        let step = axis.step_within(run, budget)?;
        let points = series.points_until(step);
        let values = &series.values()[..points];
        let tenth: Vec<f64> = values[points - (points / 10).max(1).min(points)..]
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let best =
            if self.lower_is_better { finite().min_by(f64::total_cmp)? } else { finite().max_by(f64::total_cmp)? };
        let last = crate::statistics::mean(&tenth);
        let reached = axis.at(run, series.last_point()?.0)?;
        let is_short = reached < budget * 0.9;
        (!tenth.is_empty()).then_some(Score { last, best, points, is_short })
    }

    /// Of every run of a configuration, its score averaged over the tasks; `None` of one without.
    pub fn scores(&self, configuration: &Configuration, axis: Axis, budget: f64) -> Vec<Option<Score>> {
        self.runs_of(configuration).map(|run| self.mean_score(run, axis, budget)).collect()
    }

    fn mean_score(&self, run: &Run, axis: Axis, budget: f64) -> Option<Score> {
        let each: Option<Vec<Score>> =
            self.metrics.iter().map(|metric| self.score(run, metric, axis, budget)).collect();
        let each = each?;
        let mean = |of: fn(&Score) -> f64| each.iter().map(of).sum::<f64>() / each.len() as f64;
        let points = each.iter().map(|score| score.points).sum();
        Some(Score {
            last: mean(|score| score.last),
            best: mean(|score| score.best),
            points,
            is_short: each.iter().any(|score| score.is_short),
        })
    }

    /// Scores by task, of the runs that have all of them.
    pub fn task_scores(&self, configuration: &Configuration, axis: Axis, budget: f64) -> Vec<Vec<f64>> {
        let of = |metric: &String| {
            self.runs_of(configuration)
                .filter_map(|run| self.score(run, metric, axis, budget))
                .map(|score| score.last)
                .collect()
        };
        self.metrics.iter().map(of).collect()
    }

    /// Whether a gain is what a difference is.
    pub fn gain(&self, difference: f64) -> f64 {
        if self.lower_is_better { -difference } else { difference }
    }

    /// The kind of the metric.
    pub fn kind(&self) -> Kind {
        Kind::of_name(&self.metric)
    }
}

/// Gives a reward's scale what the question says of it.
fn complete_scale(scale: &mut RewardScale, question: &Question) {
    scale.of_completions = question.reward.or(scale.of_completions);
    scale.max = question.max_reward.or(scale.max);
}

fn available_metrics(runs: &[Run]) -> BTreeMap<String, usize> {
    let mut available = BTreeMap::new();
    let names =
        runs.iter().flat_map(|run| run.series.iter()).filter(|(_, series)| !series.is_empty()).map(|(name, _)| name);
    for name in names.filter(|name| {
        !["seconds", "gpu_hours", "tokens_generated", "tokens_trained", "flops"].contains(&name.as_str())
    }) {
        *available.entry(name.clone()).or_insert(0) += 1;
    }
    available
}

/// The metric that is asked about, or the likeliest of those that most runs have.
fn chosen_metrics(
    available: &BTreeMap<String, usize>,
    asked: Option<&str>,
    runs: usize,
) -> Result<Vec<String>, Unanswerable> {
    let Some(asked) = asked else {
        let in_most =
            available.iter().filter(|(_, count)| **count * 2 > runs.min(*available.values().max().unwrap_or(&0)));
        let rank = |(name, count): &(&String, &usize)| (interest_in(name), **count, std::cmp::Reverse((*name).clone()));
        let best = in_most.max_by_key(rank).map(|(name, _)| name.clone());
        return best.map(|name| vec![name]).ok_or(Unanswerable::NoMetric);
    };
    let found: Vec<String> = available.keys().filter(|name| matches_pattern(asked, name)).cloned().collect();
    if found.is_empty() {
        let names: Vec<&str> = available.keys().take(20).map(String::as_str).collect();
        return Err(Unanswerable::NoSuchMetric(asked.to_owned(), names.join(", ")));
    }
    Ok(found)
}

/// Whether `name` is of the form `pattern`, in which `*` stands for anything.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Runs by configuration; the baseline is the one named, or the one that is called so, or the first by name.
fn group_configurations(runs: &[Run], baseline: Option<&str>) -> Result<Vec<Configuration>, Unanswerable> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        by_name.entry(&run.identity.configuration).or_default().push(index);
    }
    let mut all: Vec<Configuration> = by_name
        .into_iter()
        .map(|(name, mut indices)| {
            indices.small_sort_by(|a, b| {
                (runs[*a].identity.seed, &runs[*a].place).cmp(&(runs[*b].identity.seed, &runs[*b].place))
            });
            Configuration { name: name.to_owned(), runs: indices }
        })
        .collect();
    let at = match baseline {
        Some(name) => all.iter().position(|one| one.name == name),
        None => Some(usual_baseline(&all)),
    };
    let Some(at) = at else {
        let names: Vec<&str> = all.iter().take(20).map(|one| one.name.as_str()).collect();
        return Err(Unanswerable::NoSuchBaseline(baseline.unwrap_or_default().to_owned(), names.join(", ")));
    };
    if at < all.len() {
        let first = all.remove(at);
        all.insert(0, first);
    }
    Ok(all)
}

fn usual_baseline(all: &[Configuration]) -> usize {
    let called = |word: &str| all.iter().position(|one| one.name.to_ascii_lowercase().contains(word));
    let without_others =
        || all.iter().position(|one| crate::swarm::split_name(&one.name).is_some_and(|(_, external)| external == 0));
    called("baseline").or_else(without_others).or_else(|| called("control")).unwrap_or(0)
}

/// Nodes of one run become one run, the mean of what they measured and the sum of what they spent: nodes are no seeds.
fn join_nodes(runs: Vec<Run>) -> (Vec<Run>, Vec<Run>) {
    let (of_nodes, mut whole): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.identity.node.is_some());
    let mut groups: BTreeMap<(String, Option<u64>), Vec<Run>> = BTreeMap::new();
    for run in of_nodes {
        groups.entry((run.identity.configuration.clone(), run.identity.seed)).or_default().push(run);
    }
    let mut nodes = Vec::new();
    for group in groups.into_values() {
        whole.push(mean_of(&group));
        nodes.extend(group);
    }
    (whole, nodes)
}

fn mean_of(nodes: &[Run]) -> Run {
    let first = &nodes[0];
    let mut run = Run {
        identity: first.identity.clone(),
        seed_is_known: first.seed_is_known,
        nodes: nodes.len(),
        end: first.end.clone(),
        ..Run::default()
    };
    run.identity.node = None;
    run.place = format!("{}#{:?}", run.identity.configuration, run.identity.seed);
    run.files = nodes.iter().flat_map(|node| node.files.iter().cloned()).collect();
    run.notes.push(format!("the mean of {} nodes, which are one run", nodes.len()));
    for note in nodes.iter().flat_map(|node| &node.notes) {
        if !run.notes.contains(note) {
            run.notes.push(note.clone());
        }
    }
    let names: std::collections::BTreeSet<&String> = nodes.iter().flat_map(|node| node.series.keys()).collect();
    for name in names {
        let all: Vec<&Series> = nodes.iter().filter_map(|node| node.metric(name)).collect();
        let mut sums: BTreeMap<u64, (f64, f64, usize)> = BTreeMap::new();
        for (step, value) in all.iter().flat_map(|series| series.points()) {
            // Bits of a float that is not negative are in its order.
            let sum = sums.entry((step + 0.0).max(0.0).to_bits()).or_insert((step, 0.0, 0));
            (sum.1, sum.2) = (sum.1 + value, sum.2 + 1);
        }
        let spent = matches!(name.as_str(), "tokens_generated" | "tokens_trained" | "gpu_hours" | "flops");
        // What only some have reached is no mean of all.
        let common = sums.into_values().filter(|sum| sum.2 == all.len());
        let points = common.map(|(step, sum, count)| (step, if spent { sum } else { sum / count as f64 }));
        let mut series = Series::of_points(points);
        series.lines = all.first().map_or((0, 0), |series| series.lines);
        run.series.insert(name.clone(), series);
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(configuration: &str, seed: u64, values: &[f64]) -> Run {
        let mut run = Run { place: format!("{configuration}{seed}"), seed_is_known: true, nodes: 1, ..Run::default() };
        (run.identity.configuration, run.identity.seed) = (configuration.to_owned(), Some(seed));
        run.series.insert(
            "eval/accuracy".to_owned(),
            Series::of_points(values.iter().enumerate().map(|(step, value)| (step as f64, *value))),
        );
        run.series.insert("loss".to_owned(), Series::of_points([(0.0, 1.0)]));
        run
    }

    #[test]
    fn the_metric_and_the_baseline_are_found() {
        let runs = vec![run("4/4", 0, &[0.1, 0.2]), run("8/0", 0, &[0.1, 0.3]), run("8/0", 1, &[0.1])];
        let all = Experiment::new(runs, &Question::default()).unwrap();
        assert_eq!(
            (all.metric.as_str(), all.configurations[0].name.as_str(), all.lower_is_better),
            ("eval/accuracy", "8/0", false)
        );
        assert_eq!((all.budget(Axis::Steps), all.axes.as_slice()), (Some(1.0), &[Axis::Steps][..]));
        let scores = all.scores(&all.configurations[0], Axis::Steps, 1.0);
        assert_eq!(
            scores.iter().map(|score| score.map(|score| (score.last, score.is_short))).collect::<Vec<_>>(),
            [Some((0.3, false)), Some((0.1, true))]
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        let ask = |metric: &str, baseline: Option<&str>| {
            let question = Question {
                metric: Some(metric.to_owned()),
                baseline: baseline.map(str::to_owned),
                ..Question::default()
            };
            Experiment::new(vec![run("a", 0, &[0.1])], &question).map(|all| all.metrics)
        };
        assert_eq!(
            ask("acc", None).unwrap_err().to_string(),
            "no run has a metric `acc`; there are: eval/accuracy, loss"
        );
        assert_eq!(ask("loss", Some("b")).unwrap_err().to_string(), "there is no configuration `b`; there are: a");
        assert_eq!(ask("*", None).unwrap(), ["eval/accuracy", "loss"]);
        assert!(
            matches_pattern("eval/*/acc*", "eval/x/acc@1")
                && !matches_pattern("eval/*", "train/x")
                && !matches_pattern("a*b", "a")
        );
    }

    #[test]
    fn nodes_are_one_run() {
        let mut nodes = vec![run("s", 0, &[1.0, 2.0]), run("s", 0, &[3.0, 4.0, 9.0])];
        for (index, node) in nodes.iter_mut().enumerate() {
            node.identity.node = Some(format!("worker_{index}"));
            node.series.insert("tokens_generated".to_owned(), Series::of_points([(0.0, 5.0), (1.0, 10.0)]));
        }
        let all = Experiment::new(nodes, &Question::default()).unwrap();
        assert_eq!((all.runs.len(), all.nodes.len(), all.runs[0].nodes), (1, 2, 2));
        assert_eq!(all.runs[0].series["eval/accuracy"].values(), [2.0, 3.0]);
        assert_eq!(all.runs[0].series["tokens_generated"].values(), [10.0, 20.0]);
    }
}
