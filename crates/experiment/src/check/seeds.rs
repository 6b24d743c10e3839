//! Too few seeds, and seeds that are not known.

use super::{Check, Flag, Severity, first_lines};
use crate::compare::FEWEST;
use crate::experiment::{Configuration, Experiment};

/// With fewer, intervals are wide: five show gaps of about twice the scatter.
const FEW: usize = 5;

pub(super) const CHECK: Check = Check {
    name: "too few seeds",
    looks_for: "configurations with fewer than three runs, of which no spread is known, or fewer than five",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    if all.configurations.len() < 2 {
        return Vec::new();
    }
    let count = |one: &Configuration| {
        all.runs_of(one).filter(|run| all.metrics.iter().any(|metric| run.metric(metric).is_some())).count()
    };
    let of = |range: std::ops::Range<usize>| {
        all.configurations.iter().filter(|one| range.contains(&count(one))).collect::<Vec<_>>()
    };
    let flag = |these: Vec<&Configuration>, severity: Severity, said: &str| {
        let evidence = these.iter().map(|one| {
            let nodes = all.runs_of(one).map(|run| run.nodes).max().unwrap_or(1);
            let of =
                if nodes > 1 { format!(" of {nodes} nodes, which share data and are no seeds") } else { String::new() };
            format!("{}: {} run{}{of}", one.name, count(one), if count(one) == 1 { "" } else { "s" })
        });
        let evidence = first_lines(evidence.collect());
        let configurations = these.iter().map(|one| one.name.clone()).collect();
        (!these.is_empty()).then_some(Flag {
            check: CHECK.name,
            severity,
            configurations,
            said: said.to_owned(),
            evidence,
        })
    };
    let hardly = flag(
        of(0..FEWEST),
        Severity::Refutes,
        "with fewer than three seeds the spread is not known, and no difference can be told from chance",
    );
    let few =
        flag(of(FEWEST..FEW), Severity::Warns, "with three or four seeds only large gaps can be told from chance");
    hardly.into_iter().chain(few).collect()
}
