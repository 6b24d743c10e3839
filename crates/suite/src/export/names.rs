//! Names of runs that folders may have, each another.

use std::collections::{HashMap, HashSet};

use super::Measured;

/// The names that were given; a run keeps its own.
#[derive(Default)]
pub(super) struct Names {
    of: HashMap<String, String>,
    taken: HashSet<String>,
}

impl Names {
    pub fn run_label(&mut self, one: &Measured) -> String {
        if let Some(name) = self.of.get(&one.id) {
            return name.clone();
        }
        let name = plain_name(&one.run.name());
        let (mut own, mut count) = (name.clone(), 1);
        while !self.taken.insert(own.clone()) {
            count += 1;
            own = format!("{name}-{count}");
        }
        self.of.insert(one.id.clone(), own.clone());
        own
    }
}

fn plain_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.".contains(c);
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(120).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use tonnage_experiment::run::Run;

    use super::*;

    #[test]
    fn names_stay_in_their_folder_and_apart() {
        let mut names = Names::default();
        let mut name = |id: &str, configuration: &str| {
            let mut run = Run::default();
            run.identity.configuration = configuration.to_owned();
            names.run_label(&Measured { id: id.to_owned(), run, looks: Vec::new(), began: 0.0, has_ended: false })
        };
        assert_eq!([name("1", "../a b"), name("2", "../a/b"), name("3", "x\n")], ["_.._a_b", "_.._a_b-2", "x_"]);
        assert_eq!(name("2", "../a/b"), "_.._a_b-2");
    }
}
