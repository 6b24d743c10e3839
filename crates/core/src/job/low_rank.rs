//! What optimizers that keep their moments in a low rank (GaLore, APOLLO) are told: transformers' `optim_args` and `optim_target_modules`.

use super::error::JobErrorKind;
use super::{JobError, keys};

/// The arguments of a projection, and the linear layers whose gradients are projected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LowRankSpec {
    /// Rank of the projected gradients and of the moments.
    pub rank: u64,
    /// Steps after which a projection is made anew.
    pub update_proj_gap: u64,
    /// Whether APOLLO scales a gradient as a whole (`scale_type=tensor`) and not by its rows or columns.
    pub scales_whole: bool,
    /// Names of layers, parts of names or patterns; `all-linear` is all of them.
    pub targets: Vec<String>,
}

impl Default for LowRankSpec {
    /// Of `_get_galore_optimizer` and `_get_apollo_optimizer` (transformers 5.17, trainer_optimizer.py).
    fn default() -> Self {
        Self { rank: 128, update_proj_gap: 200, scales_whole: false, targets: vec!["all-linear".to_owned()] }
    }
}

impl LowRankSpec {
    /// With transformers' `optim_args`: `rank=64, update_proj_gap=200`.
    pub(crate) fn with_arguments(mut self, text: &str) -> Result<Self, JobError> {
        let text = text.replace(' ', "");
        for argument in text.split(',').filter(|argument| !argument.is_empty()) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let known = match name {
                "rank" => set_size(&mut self.rank, value),
                "update_proj_gap" => set_size(&mut self.update_proj_gap, value),
                "scale_type" => {
                    self.scales_whole = value == "tensor";
                    matches!(value, "tensor" | "channel")
                }
                "scale" => value.parse::<f64>().is_ok(),
                "proj" => value == "random",
                "proj_type" => value == "std",
                _ => false,
            };
            if !known {
                return Err(refused(argument));
            }
        }
        Ok(self)
    }

    /// Whether a linear layer is one whose gradient is projected (`check_target_module_exists`, transformers 5.17, trainer_utils.py).
    pub(crate) fn names(&self, path: &str) -> bool {
        let is_all = |target: &str| matches!(target, "all-linear" | "all_linear");
        self.targets.iter().any(|target| is_all(target) || path.contains(target) || matches_whole(target, path))
    }

    /// Of the targets one whose pattern is not understood.
    pub(crate) fn unread_pattern(&self) -> Option<&str> {
        self.targets.iter().map(String::as_str).find(|target| parts_of(target).is_none())
    }
}

fn set_size(size: &mut u64, value: &str) -> bool {
    let read = value.parse().ok().filter(|read| (1..=1 << 20).contains(read));
    *size = read.unwrap_or(*size);
    read.is_some()
}

fn refused(argument: &str) -> JobError {
    let problem = format!("`{}`: `{argument}` is not simulated", keys::OPTIM_ARGS);
    JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::OPTIM_ARGS])
        .hint("rank, update_proj_gap, scale and scale_type are, of the standard projection")
        .or_rehearse()
}

/// What a part of a pattern stands for.
#[derive(Clone, Copy)]
enum Part {
    Letter(char),
    Any,
    /// `.*`
    Run,
}

/// The parts of a pattern of letters, `.`, `\\.` and `.*`; `None` of any other.
fn parts_of(pattern: &str) -> Option<Vec<Part>> {
    let (mut parts, mut letters) = (Vec::new(), pattern.chars().peekable());
    while let Some(letter) = letters.next() {
        parts.push(match letter {
            '\\' => Part::Letter(letters.next().filter(|letter| !letter.is_alphanumeric())?),
            '.' if letters.next_if_eq(&'*').is_some() => Part::Run,
            '.' => Part::Any,
            '*' | '+' | '?' | '|' | '^' | '$' | '(' | ')' | '[' | ']' | '{' | '}' => return None,
            other => Part::Letter(other),
        });
    }
    Some(parts)
}

/// Whether such a pattern matches all of a text (`re.fullmatch`), in as many steps as both are long.
fn matches_whole(pattern: &str, text: &str) -> bool {
    let Some(parts) = parts_of(pattern) else { return false };
    // Whether the parts so far match so many letters of the text.
    let letters: Vec<char> = text.chars().collect();
    let mut matched = vec![false; letters.len() + 1];
    matched[0] = true;
    for part in parts {
        let mut next = vec![false; matched.len()];
        for at in 0..matched.len() {
            next[at] = match part {
                Part::Run => matched[at] || at > 0 && next[at - 1],
                Part::Any => at > 0 && matched[at - 1],
                Part::Letter(letter) => at > 0 && matched[at - 1] && letters[at - 1] == letter,
            };
        }
        matched = next;
    }
    matched[letters.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_transformers() {
        let spec = LowRankSpec::default().with_arguments("rank=64, update_proj_gap=100, scale=0.10").unwrap();
        assert_eq!((spec.rank, spec.update_proj_gap), (64, 100));
        assert!(LowRankSpec::default().with_arguments("scale_type=tensor").unwrap().scales_whole);
        for wrong in ["rank", "rank=0", "proj_type=full", "proj=svd", "beta=3"] {
            assert!(LowRankSpec::default().with_arguments(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn layers_are_named_in_whole_in_part_or_by_a_pattern() {
        let path = "model.layers.0.self_attn.q_proj";
        let names =
            |target: &str| LowRankSpec { targets: vec![target.to_owned()], ..LowRankSpec::default() }.names(path);
        for target in ["all-linear", path, "attn", ".*.attn.*", r"model\.layers\.0\..*q_proj"] {
            assert!(names(target), "{target}");
        }
        for target in ["mlp", ".*.mlp.*", ".*attn", r"model\.layers\.1\..*", &".*x".repeat(2000)] {
            assert!(!names(target), "{target}");
        }
        let unread = |target: &str| {
            LowRankSpec { targets: vec![target.to_owned()], ..LowRankSpec::default() }.unread_pattern().is_some()
        };
        assert!(["attn*", r"layers\.\d", r"a\.*", "(q|k)"].into_iter().all(unread));
    }
}
