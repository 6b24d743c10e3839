//! [`Counted`]: the answers of a checkout's recipes as a table.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::answer::Answer;

/// How many recipes were answered how.
#[derive(Default)]
pub struct Counted {
    exact: usize,
    ranges: usize,
    open: usize,
    reasons: BTreeMap<String, usize>,
}

impl Counted {
    pub fn add(&mut self, answer: &Answer) {
        match answer {
            Answer::Exact => self.exact += 1,
            Answer::Range { .. } => self.ranges += 1,
            Answer::Open => self.open += 1,
            Answer::Refused(reason) => *self.reasons.entry(reason.clone()).or_default() += 1,
        }
    }

    /// Prints the table, and the reasons by how many recipes each refuses.
    pub fn print(&self, name: &str, commit: Option<&str>) {
        let refused: usize = self.reasons.values().sum();
        let answered = self.exact + self.ranges + self.open;
        let all = answered + refused;
        let share = |count: usize| 100.0 * count as f64 / all.max(1) as f64;
        println!("{name} {}", commit.unwrap_or("(no commit)"));
        println!("| {all} recipes | number | share |\n|---|---|---|");
        for (what, count) in [
            ("answered", answered),
            ("of them exactly", self.exact),
            ("with a range", self.ranges),
            ("without an upper bound", self.open),
            ("refused", refused),
        ] {
            println!("| {what} | {count} | {:.0} % |", share(count));
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(reason, count)| (Reverse(**count), reason.as_str()));
        reasons.iter().for_each(|(reason, count)| println!("  {count:>4}  {reason}"));
    }
}
