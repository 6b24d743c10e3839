//! What is recorded of a command holds no secret, and the command comes back from it.

#[path = "../../secrets/tests/grammar/mod.rs"]
mod grammar;

use proptest::prelude::*;
use tonnage_run::secrets::Secrets;

/// As much of a secret as may be seen.
const PART: usize = 4;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_command_is_recorded_without_secrets_and_comes_back(typed in grammar::typed()) {
        let secrets = Secrets::found_in(&typed.words, std::iter::empty());
        let recorded = secrets.hide_command(&typed.words);
        let text = recorded.join(" ");
        let parts = |length: usize| (0..=typed.secret.len() - length).map(move |at| at..at + length);
        let shown = parts(PART + 1).any(|part| text.contains(&typed.secret[part]));
        prop_assert!(!shown, "{:?} -> {}", typed.words, text);
        let revealed: Result<Vec<String>, String> = recorded.iter().map(|word| secrets.reveal_in(word)).collect();
        prop_assert_eq!(revealed, Ok(typed.words));
    }
}
