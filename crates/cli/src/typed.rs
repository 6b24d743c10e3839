//! Optional values as people type them: `--top 5` and `--use-cache false` mean `--top=5` and `--use-cache=false`, and a number
//! below zero is a value, not a flag.

use std::ffi::OsString;

use tonnage_core::job::{KEYS, Kind};

/// The arguments, with each optional value joined to its flag. A model's name is neither a number nor a truth value.
pub fn split_arguments(typed: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    // What follows `--` is another program's.
    let mut is_ours = true;
    for argument in typed {
        is_ours &= argument != "--";
        match arguments.last_mut().filter(|_| is_ours) {
            Some(flag) if belongs_to(flag, &argument) => {
                flag.push("=");
                flag.push(argument);
            }
            _ => arguments.push(argument),
        }
    }
    arguments
}

fn belongs_to(flag: &OsString, value: &OsString) -> bool {
    let (Some(flag), Some(value)) = (flag.to_str(), value.to_str()) else { return false };
    let number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let below_zero = value.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let takes_it = below_zero && (flag.starts_with("--") || flag == "-g") && !flag.contains('=');
    let truth = matches!(value.to_lowercase().as_str(), "true" | "false");
    (flag == "--top" && number) || (truth && is_switch(flag)) || takes_it
}

fn is_switch(flag: &str) -> bool {
    KEYS.iter().any(|key| matches!(key.kind, Kind::Switch) && key.flag() == flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_values_join_their_flag() {
        let cases = [
            ("estimate gpt2 --top 5", "estimate gpt2 --top=5"),
            ("estimate --top gpt2", "estimate --top gpt2"),
            ("estimate --use-cache false gpt2", "estimate --use-cache=false gpt2"),
            ("estimate --gradient-checkpointing gpt2", "estimate --gradient-checkpointing gpt2"),
            ("estimate gpt2 --json true", "estimate gpt2 --json true"),
            ("estimate gpt2 -b 8 --top=3 5", "estimate gpt2 -b 8 --top=3 5"),
            ("run -- search --top 5", "run -- search --top 5"),
            ("plan gpt2 --budget -5 -g -5GiB", "plan gpt2 --budget=-5 -g=-5GiB"),
            ("estimate gpt2 -1 -b -5", "estimate gpt2 -1 -b -5"),
        ];
        for (typed, meant) in cases {
            let joined = split_arguments(typed.split(' ').map(OsString::from));
            assert_eq!(joined, meant.split(' ').map(OsString::from).collect::<Vec<_>>(), "{typed}");
        }
    }
}
