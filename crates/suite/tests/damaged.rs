//! Suite files, damaged: the reader answers or says in a sentence what is wrong.

#[path = "../../core/tests/damage/mod.rs"]
mod damage;

use damage::{damage, damaged};
use proptest::prelude::*;
use tonnage_suite::expand::{Typed, expand_file, settle_all};
use tonnage_suite::file::SuiteFile;

const SUITE: &str = "name = \"s\"\njob = \"gpt2\"\ncommand = [\"t\", \"{lr}\"]\nseeds = [1, 2]\ncode = [\"t.py\"]\n\
    [parameters]\nlr = 1e-3\n[set]\nprecision = \"bf16\"\n[matrix]\nlr = [1e-3, 2e-3]\n[scaling]\nfrom = 1\nlr = \"sqrt\"\n\
    [run]\nslots = 2\n[limits]\nhours = 12\n[slurm]\naccount = \"a\"\ngpus = 2\ngoes_on = \"chain\"\nlinks = 3\nshm_gib = 8\njobset = true\n[[exclude]]\nlr = 2e-3\nseq_len = 512\n\
    [[constraint]]\nsum = [\"lr\"]\nat_least = 0\n\
    [[configuration]]\nname = \"a\"\nmicro_batch_size = [1, 2, 4]\nseq_len = 512\n\
    [[configuration]]\nname = \"b\"\ngrpo.num_generations = 8\nmodel.n_layer = [2, 3]\n";

fn configurations(text: &str) -> Result<usize, tonnage_core::job::JobError> {
    let file = SuiteFile::read(text)?;
    let mut all = expand_file(&file, &Typed::default())?;
    settle_all(&mut all, &file, &|changes, key| {
        changes.iter().rfind(|set| set.key == key).map(|set| set.value.clone())
    })?;
    Ok(all.len())
}

#[test]
fn the_seed_is_valid() {
    assert_eq!(configurations(SUITE), Ok(3 + 4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn suites(damages in damage()) {
        let text = String::from_utf8_lossy(&damaged(SUITE.as_bytes().to_vec(), &damages)).into_owned();
        match configurations(&text) {
            Ok(count) => prop_assert!(count > 0),
            Err(error) => {
                let said = error.to_string();
                prop_assert!(!said.is_empty() && said.len() < 2_000 && !said.contains('\u{1b}'), "{}", said);
            }
        }
    }
}
