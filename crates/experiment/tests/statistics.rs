//! Every statistic beside the same one of scipy, statsmodels or rliable, on fixed arrays (testdata/experiment/statistics.py).

use serde_json::Value;
use tonnage_experiment::statistics::{
    Effect, MeanTest, Resampling, bootstrap_interval, cliffs_delta, hedges_paired, hedges_unpaired, holm_correction,
    improvement_probability, iqm, mcnemar_test, mean, mean_interval, median, nct_cdf, paired_items, paired_t, pass_all,
    pass_at, performance_profile, permute_paired, permute_unpaired, power_paired, power_unpaired, sd,
    seeds_needed_paired, seeds_needed_unpaired, t_cdf, t_quantile, task_improvement, task_iqm, welch_test,
};

fn expected() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/experiment/statistics.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect(path)).expect("JSON")
}

fn rows(value: &Value) -> &[Value] {
    let rows = value.as_array().expect("a list");
    assert!(!rows.is_empty());
    rows
}

fn numbers(value: &Value) -> Vec<f64> {
    rows(value).iter().map(|number| number.as_f64().expect("a number")).collect()
}

#[track_caller]
fn close(found: f64, expected: &Value, tolerance: f64, what: &str) {
    let expected = expected.as_f64().expect("a number");
    assert!((found - expected).abs() <= tolerance * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
}

fn check_interval(found: [f64; 2], expected: &Value, tolerance: f64, what: &str) {
    close(found[0], &expected[0], tolerance, what);
    close(found[1], &expected[1], tolerance, what);
}

fn check_test(found: MeanTest, row: &Value, what: &str) {
    close(found.difference, &row["difference"], 1e-12, what);
    close(found.t, &row["t"], 1e-9, what);
    close(found.p, &row["p"], 1e-9, what);
    check_interval(found.interval, &row["interval"], 1e-9, what);
}

fn check_effect(found: Effect, row: &Value, what: &str) {
    close(found.value, &row["hedges_g"], 1e-9, what);
    check_interval(found.interval.expect("an interval"), &row["hedges_interval"], 1e-6, what);
}

#[test]
fn summaries_equal_scipys() {
    for row in rows(&expected()["summaries"]) {
        let values = numbers(&row["values"]);
        close(mean(&values), &row["mean"], 1e-12, "mean");
        close(median(&values), &row["median"], 1e-12, "median");
        close(sd(&values), &row["sd"], 1e-12, "sd");
        close(iqm(&values), &row["iqm"], 1e-12, "iqm");
        check_interval(mean_interval(&values).unwrap(), &row["interval"], 1e-9, "interval");
    }
}

#[test]
fn two_samples_equal_scipys() {
    for row in rows(&expected()["unpaired"]) {
        let (name, a, b) = (row["name"].as_str().unwrap(), numbers(&row["a"]), numbers(&row["b"]));
        let test = welch_test(&a, &b).unwrap();
        check_test(test, &row["welch"], name);
        close(test.df, &row["welch"]["df"], 1e-9, name);
        let permuted = permute_unpaired(&a, &b).unwrap();
        assert!(permuted.is_exact);
        close(permuted.p, &row["permutation_p"], 1e-9, name);
        check_effect(hedges_unpaired(&a, &b).unwrap(), row, name);
        close(cliffs_delta(&a, &b, Resampling::default()).unwrap().value, &row["cliffs_delta"], 1e-12, name);
        close(improvement_probability(&a, &b).unwrap(), &row["improvement"], 1e-12, name);
    }
}

#[test]
fn pairs_equal_scipys() {
    for row in rows(&expected()["paired"]) {
        let pairs: Vec<(f64, f64)> = numbers(&row["a"]).into_iter().zip(numbers(&row["b"])).collect();
        let name = row["name"].as_str().unwrap();
        check_test(paired_t(&pairs).unwrap(), row, name);
        close(permute_paired(&pairs).unwrap().p, &row["permutation_p"], 1e-9, name);
        check_effect(hedges_paired(&pairs).unwrap(), row, name);
    }
}

#[test]
fn effects_of_many_runs_are_scipys_within_a_hundredth_of_their_width() {
    let expected = expected();
    let rows = rows(&expected["many"]);
    assert!(rows.len() >= 4);
    for row in rows {
        let effect = hedges_unpaired(&numbers(&row["a"]), &numbers(&row["b"])).unwrap();
        close(effect.value, &row["hedges_g"], 1e-9, "g");
        let limits = numbers(&row["hedges_interval"]);
        let (found, width) = (effect.interval.unwrap(), limits[1] - limits[0]);
        assert!((0..2).all(|at| (found[at] - limits[at]).abs() <= 0.01 * width), "{found:?}, {limits:?}");
    }
}

/// Below 30 degrees of freedom the limits are exact, whatever t is; from there on an approximation.
#[test]
fn effects_far_beyond_the_spread_are_scipys() {
    let expected = expected();
    let rows = rows(&expected["far"]);
    assert!(rows.iter().filter(|row| row["t"].as_f64().unwrap().abs() > 100.0).count() >= 4);
    for row in rows {
        let effect = hedges_unpaired(&numbers(&row["a"]), &numbers(&row["b"])).unwrap();
        close(effect.value, &row["hedges_g"], 1e-9, "g");
        let limits = numbers(&row["hedges_interval"]);
        let (found, width) = (effect.interval.unwrap(), limits[1] - limits[0]);
        let allowed = if row["df"].as_f64().unwrap() < 30.0 { 1e-6 } else { 0.01 };
        assert!((0..2).all(|at| (found[at] - limits[at]).abs() <= allowed * width), "{found:?}, {limits:?}, {row}");
    }
}

#[test]
fn the_paired_bootstrap_is_scipys() {
    for row in rows(&expected()["paired_items"]) {
        let how = Resampling { resamples: 50_000, seed: 3 };
        let (difference, interval) = paired_items(&numbers(&row["differences"]), how).unwrap();
        close(difference, &row["mean"], 1e-12, "mean");
        let limits = numbers(&row["interval"]);
        let width = limits[1] - limits[0];
        // Of means of eighths the limits stand on a grid; on both sides a few thousandths of the width are chance.
        assert!((0..2).all(|at| (interval[at] - limits[at]).abs() < 0.02 * width), "{interval:?}, {limits:?}");
    }
}

#[test]
fn distributions_equal_scipys() {
    let expected = expected();
    for row in rows(&expected["distributions"]["t_cdf"]) {
        let at = numbers(row);
        close(t_cdf(at[0], at[1]), &row[2], 1e-12, "t_cdf");
    }
    for row in rows(&expected["distributions"]["t_quantile"]) {
        let at = numbers(row);
        close(t_quantile(at[0], at[1]), &row[2], 1e-9, "t_quantile");
    }
    for row in rows(&expected["distributions"]["nct_cdf"]) {
        let at = numbers(row);
        close(nct_cdf(at[0], at[1], at[2]), &row[3], 1e-9, &format!("nct_cdf {row}"));
    }
}

/// A list of runs for each task.
fn tasks(rows_of_runs: &Value) -> Vec<Vec<f64>> {
    let runs: Vec<Vec<f64>> = rows(rows_of_runs).iter().map(numbers).collect();
    (0..runs[0].len()).map(|task| runs.iter().map(|run| run[task]).collect()).collect()
}

#[test]
fn aggregates_equal_rliables() {
    let case = &expected()["rliable"];
    let (x, y) = (tasks(&case["x"]), tasks(&case["y"]));
    for (name, scores) in [("x", &x), ("y", &y)] {
        let (point, interval) = task_iqm(scores, Resampling { resamples: 50_000, seed: 1 }).unwrap();
        close(point, &case["iqm"][name], 1e-12, "iqm");
        // Theirs are of another random sequence: the limits agree to a small part of the width.
        check_interval(interval.unwrap(), &case["iqm_interval"][name], 2e-3, "stratified interval");
        let profile = performance_profile(scores, &numbers(&case["taus"]));
        for (found, expected) in profile.iter().zip(rows(&case["profile"][name])) {
            close(*found, expected, 1e-12, "profile");
        }
        let of_tasks: Vec<f64> = scores.iter().map(|task| mean(task)).collect();
        close(mean(&of_tasks), &case["mean"][name], 1e-12, "mean over tasks");
        close(median(&of_tasks), &case["median"][name], 1e-12, "median over tasks");
    }
    close(task_improvement(&y, &x).unwrap(), &case["improvement"], 1e-12, "probability of improvement");
}

#[test]
fn many_comparisons_equal_statsmodels() {
    for row in rows(&expected()["holm"]) {
        for (found, expected) in holm_correction(&numbers(&row["p"])).iter().zip(rows(&row["adjusted"])) {
            close(*found, expected, 1e-12, "holm");
        }
    }
}

#[test]
fn power_and_seeds_equal_statsmodels() {
    for row in rows(&expected()["power"]) {
        let effect = row["effect"].as_f64().unwrap();
        let count = |key: &str| row[key].as_u64().unwrap() as usize;
        close(power_unpaired(effect, count("n")), &row["power"], 1e-7, "power");
        close(power_paired(effect, count("paired_n")), &row["paired_power"], 1e-7, "paired power");
        assert_eq!(seeds_needed_unpaired(effect), Some(count("n")), "{row}");
        assert_eq!(seeds_needed_paired(effect), Some(count("paired_n")), "{row}");
    }
    assert_eq!((seeds_needed_paired(0.0), seeds_needed_unpaired(1e-4)), (None, None));
}

/// Cohen (1988), table 2.4.1: two-sided .05, power .80.
#[test]
fn seeds_equal_cohens_table() {
    let found = [0.2, 0.5, 0.8].map(|effect| seeds_needed_unpaired(effect).unwrap());
    assert_eq!(found, [394, 64, 26]);
}

#[test]
fn answers_to_questions_equal_others() {
    let expected = expected();
    for row in rows(&expected["mcnemar"]) {
        let count = |key: &str| row[key].as_u64().unwrap();
        close(mcnemar_test(count("only_a"), count("only_b")).p, &row["p"], 1e-9, "mcnemar");
    }
    for row in rows(&expected["pass"]) {
        let count = |key: &str| row[key].as_u64().unwrap();
        close(pass_at(count("n"), count("c"), count("k")).unwrap(), &row["pass_at"], 1e-12, "pass@k");
        close(pass_all(count("n"), count("c"), count("k")).unwrap(), &row["pass_all"], 1e-12, "pass^k");
    }
}

/// With ten values, the percentile bootstrap of a mean is near Student's interval, and inside it: it is known to be narrow.
#[test]
fn the_bootstrap_is_near_students_interval() {
    let values = [0.31, 0.52, 0.44, 0.61, 0.38, 0.47, 0.55, 0.29, 0.50, 0.42];
    let [low, high] = bootstrap_interval(&values, Resampling::default(), |drawn| mean(drawn)).unwrap();
    let [from, to] = mean_interval(&values).unwrap();
    assert!(from < low && high < to && (high - low) > 0.7 * (to - from), "{low} {high}, {from} {to}");
}
