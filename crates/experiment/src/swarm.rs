//! What a swarm's configuration shares: I own and J foreign questions of a round, by its name or its parameters.

use crate::run::Run;

/// I and J of a name: `4/4`, `8-0`, `sapo_gpt2_config2_4loc4ext`, `I6J2`.
pub fn split_name(name: &str) -> Option<(u64, u64)> {
    let mut numbers: Vec<(usize, usize, u64)> = Vec::new();
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let count = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count > 0 {
            numbers.push((at, at + count, name[at..at + count].parse().ok()?));
        }
        at += count.max(1);
    }
    numbers.windows(2).rev().find_map(|pair| {
        let ((start, end, own), (next, after, foreign)) = (pair[0], pair[1]);
        let (between, behind) = (&name[end..next], &name[after..]);
        let marked = matches!(between, "/" | "loc" | "J" | "j")
            || (between == "-" && (start == 0 || !bytes[start - 1].is_ascii_alphanumeric()));
        let is_end = behind.is_empty() || behind.starts_with("ext") || !behind.as_bytes()[0].is_ascii_alphanumeric();
        (marked && is_end && own + foreign > 0 && own + foreign <= 1_024).then_some((own, foreign))
    })
}

/// I and J of each of `names`, if all have them and train on equally many questions: else the numbers in their names mean something else.
pub fn split_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Vec<(u64, u64)>> {
    let all: Vec<(u64, u64)> = names.map(split_name).collect::<Option<_>>()?;
    let total = |one: &(u64, u64)| one.0 + one.1;
    (all.len() > 1 && all.iter().all(|one| total(one) == total(&all[0]))).then_some(all)
}

/// I and J of a run: its parameters, or its name.
pub fn split_of(run: &Run) -> Option<(u64, u64)> {
    let parameter = |name: &str| run.identity.parameters.get(name).and_then(serde_json::Value::as_u64);
    parameter("I").zip(parameter("J")).or_else(|| split_name(&run.identity.configuration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_shared() {
        let cases = [
            ("8/0", Some((8, 0))),
            ("gpt2-4-4", Some((4, 4))),
            ("4-4", Some((4, 4))),
            ("sapo_gpt2_baseline_8loc0ext", Some((8, 0))),
            ("config2_4loc4ext", Some((4, 4))),
            ("I6J2", Some((6, 2))),
            ("lr1e-4", None),
            ("0/0", None),
            ("99999999999999999999/4", None),
        ];
        for (name, expected) in cases {
            assert_eq!(split_name(name), expected, "{name}");
        }
    }
}
