//! What time estimates assume: rows of `efficiency.toml`, each with its source.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Range;

static ASSUMPTIONS: LazyLock<Vec<Assumption>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        assumption: Vec<Assumption>,
    }
    // The text is part of the program and a test reads it, so the empty list never happens.
    toml::from_str::<File>(include_str!("efficiency.toml")).map_or_else(|_| Vec::new(), |file| file.assumption)
});

/// A figure that nobody can know of a job in advance.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// What it is of.
    pub name: String,
    low: f64,
    typical: f64,
    high: f64,
    /// What it is measured in, if not in shares of the peak.
    #[serde(default)]
    pub unit: Option<String>,
    /// Where it comes from.
    pub source: String,
}

impl Assumption {
    /// The range in the unit of its row in efficiency.toml.
    pub const fn range(&self) -> Range {
        Range { low: self.low, typical: self.typical, high: self.high }
    }
}

/// All that is assumed.
pub fn assumptions() -> &'static [Assumption] {
    &ASSUMPTIONS
}

/// The figure called `name`; a test asks for every name in use.
pub(super) fn assumed_range(name: &str) -> Range {
    let found = assumptions().iter().find(|assumption| assumption.name == name);
    found.map_or(Range::exactly(1.0), Assumption::range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_assumption_is_ordered_and_sourced() {
        let names: Vec<&str> = assumptions().iter().map(|assumption| assumption.name.as_str()).collect();
        let used = [
            "tensor_cores",
            "cuda_cores",
            "bandwidth",
            "microseconds_per_launch",
            "link",
            "host_link",
            "exposed_communication",
            "power",
        ];
        assert_eq!(names, used);
        for assumption in assumptions() {
            let Range { low, typical, high } = assumption.range();
            assert!(0.0 <= low && low < typical && typical < high, "{}", assumption.name);
            assert!(assumption.unit.is_some() || high <= 1.0, "{}", assumption.name);
            assert!(
                assumption.source.contains("mli/transformers-benchmarks") || assumption.source.starts_with("assumed")
            );
        }
    }
}
