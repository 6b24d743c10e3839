//! Signal checks on experiments that are wrong in one way each, and on one that is not.

use tonnage_experiment::check::{self, Severity};
use tonnage_experiment::experiment::{Experiment, Question};
use tonnage_experiment::record::{Item, Total};
use tonnage_experiment::run::Run;
use tonnage_experiment::series::Series;

/// Five seeds of two configurations that learn, with held-out accuracy and equal compute.
fn sound() -> Vec<Run> {
    let mut runs = Vec::new();
    for (configuration, gain) in [("baseline", 0.2_f64), ("better", 0.4)] {
        for seed in 0..5u64 {
            let mut run =
                Run { place: format!("{configuration}{seed}"), seed_is_known: true, nodes: 1, ..Run::default() };
            (run.identity.configuration, run.identity.seed) = (configuration.to_owned(), Some(seed));
            let wobble =
                |step: u32| 0.01 * f64::from((step * 7 + seed as u32 * 3 + gain.to_bits() as u32 % 5) % 11) / 11.0;
            let points = (0..40).map(|step| (f64::from(step), 0.3 + gain * f64::from(step) / 40.0 + wobble(step)));
            run.series.insert("eval/accuracy".to_owned(), Series::of_points(points));
            run.series.insert(
                "tokens_generated".to_owned(),
                Series::of_points((0..40).map(|step| (f64::from(step), 100.0 * f64::from(step)))),
            );
            runs.push(run);
        }
    }
    runs
}

fn flags(runs: Vec<Run>) -> Vec<(String, Severity)> {
    let all = Experiment::new(runs, &Question::default()).unwrap();
    check::all_flags(&all).into_iter().map(|flag| (flag.check.to_owned(), flag.severity)).collect()
}

fn spoiled(spoil: impl Fn(&mut Run)) -> Vec<(String, Severity)> {
    let mut runs = sound();
    runs.iter_mut().for_each(spoil);
    flags(runs)
}

fn is_better(run: &Run) -> bool {
    run.identity.configuration == "better"
}

#[test]
fn a_sound_experiment_raises_nothing() {
    assert_eq!(flags(sound()), []);
}

#[test]
fn every_fault_is_seen_by_its_own_check() {
    let refuted = |name: &str| vec![(name.to_owned(), Severity::Refutes)];
    let warned = |name: &str| vec![(name.to_owned(), Severity::Warns)];
    let constant = |value: f64| Series::of_points((0..40).map(|step| (f64::from(step), value)));
    let dead = spoiled(|run| {
        run.series.insert("groups".to_owned(), constant(8.0));
        run.series.insert("groups_with_variance".to_owned(), constant(if is_better(run) { 0.1 } else { 6.0 }));
    });
    assert_eq!(dead, refuted("no reward variance"));
    let trl = spoiled(|run| drop(run.series.insert("train/frac_reward_zero_std".to_owned(), constant(0.8))));
    assert_eq!(trl, warned("no reward variance"));
    let floor = spoiled(|run| {
        let values = |step: u32| [0.0, 0.01, 0.02][(step as usize + run.identity.seed.unwrap_or(0) as usize) % 3];
        drop(
            run.series
                .insert("reward".to_owned(), Series::of_points((0..40).map(|step| (f64::from(step), values(step))))),
        );
    });
    assert_eq!(floor, refuted("reward floor"));
    let impossible = spoiled(|run| {
        run.identity.reward.of_completions = Some(Total::Mean);
        run.identity.reward.max = Some(1.0);
        let seed = run.identity.seed.unwrap_or(0) as f64;
        drop(run.series.insert(
            "reward".to_owned(),
            Series::of_points((0..40).map(|step| {
                (f64::from(step), 0.5 + (f64::from(step) + seed).sin() + if is_better(run) { 0.3 } else { -0.4 })
            })),
        ));
    });
    assert_eq!(impossible, refuted("impossible values"));
    let apart = spoiled(|run| {
        if is_better(run) {
            let points: Vec<_> =
                run.series["eval/accuracy"].points().map(|(step, value)| (step, value + 0.1)).collect();
            drop(run.series.insert("eval/accuracy".to_owned(), Series::of_points(points)));
        }
    });
    assert_eq!(apart, warned("curves start apart"));
    let seen = spoiled(|run| {
        let item = |split: &str| Item { item: "q1".to_owned(), split: split.to_owned(), samples: 1, ..Item::default() };
        run.items = if run.place == "better0" { vec![item("train"), item("eval")] } else { Vec::new() };
    });
    assert_eq!(seen, refuted("evaluated on training data"));
    let more = spoiled(|run| {
        if is_better(run) {
            drop(run.series.insert(
                "tokens_generated".to_owned(),
                Series::of_points((0..40).map(|step| (f64::from(step), 200.0 * f64::from(step)))),
            ));
        }
    });
    assert_eq!(more, warned("compute not matched"));
    let renamed = |to: &'static str| {
        spoiled(move |run| {
            let series = run.series.remove("eval/accuracy").unwrap();
            drop(run.series.insert(to.to_owned(), series));
        })
    };
    assert_eq!(
        (renamed("score"), renamed("train/score")),
        (warned("no held-out evaluation"), refuted("evaluated on training data"))
    );
    let short = spoiled(|run| {
        if run.place == "better3" {
            let points: Vec<_> = run.series["eval/accuracy"].points().take(10).collect();
            drop(run.series.insert("eval/accuracy".to_owned(), Series::of_points(points)));
        }
    });
    assert_eq!(short, warned("unfinished runs"));
}

#[test]
fn copies_are_seen_whatever_they_are_copies_of() {
    let of = |place: &str| sound().into_iter().find(|run| run.place == place).unwrap().series;
    let configurations = spoiled(|run| {
        if run.place == "better2" {
            run.series = of("baseline2")
        }
    });
    assert_eq!(configurations, [("identical configurations".to_owned(), Severity::Refutes)]);
    let seeds = spoiled(|run| {
        if run.place == "better4" {
            run.series = of("better1")
        }
    });
    assert_eq!(seeds, [("identical seeds".to_owned(), Severity::Refutes)]);
    // A saturated metric is the same everywhere and says nothing.
    let saturated = spoiled(|run| {
        drop(run.series.insert("eval/exact".to_owned(), Series::of_points((0..40).map(|step| (f64::from(step), 1.0)))))
    });
    assert!(!saturated.iter().any(|(name, _)| name.starts_with("identical")), "{saturated:?}");
}

/// Two seeds of a swarm of two nodes; `other` is what the second node's curve adds at a step.
fn swarm(other: impl Fn(u32) -> f64) -> Vec<Run> {
    let mut runs = Vec::new();
    for seed in 0..2u64 {
        for node in 0..2u32 {
            let mut run =
                Run { place: format!("seed{seed}/node{node}"), seed_is_known: true, nodes: 1, ..Run::default() };
            (run.identity.configuration, run.identity.seed) = ("four nodes".to_owned(), Some(seed));
            run.identity.node = Some(format!("node-{node}"));
            let extra = |step: u32| if node == 0 { 0.0 } else { other(step) };
            let points =
                (0..40).map(|step| (f64::from(step), 0.3 + (f64::from(step) + seed as f64).sin() / 10.0 + extra(step)));
            run.series.insert("eval/accuracy".to_owned(), Series::of_points(points));
            runs.push(run);
        }
    }
    runs
}

#[test]
fn nodes_that_stay_the_same_are_told() {
    let told =
        |runs| flags(runs).into_iter().any(|(name, severity)| name == "identical nodes" && severity == Severity::Warns);
    assert!(told(swarm(|_| 0.0)));
    assert!(!told(swarm(|step| 0.001 * f64::from(step + 1))));
}

#[test]
fn few_seeds_are_refused_and_nodes_are_none() {
    let few = |count: u64| {
        let mut runs = sound();
        runs.retain(|run| run.identity.seed.unwrap_or(0) < count);
        flags(runs)
    };
    assert_eq!(few(2), [("too few seeds".to_owned(), Severity::Refutes)]);
    assert_eq!(few(3), [("too few seeds".to_owned(), Severity::Warns)]);
    let mut nodes = sound();
    for run in &mut nodes {
        run.identity.node = Some(format!("worker_{}", run.identity.seed.take().unwrap_or(0)));
        run.seed_is_known = false;
    }
    assert_eq!(flags(nodes), [("too few seeds".to_owned(), Severity::Refutes)]);
}
