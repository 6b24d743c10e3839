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
        let is_read = |target: &String| !target.contains(['[', ']', '(', ')', '|', '+', '?', '^', '$', '{', '}']);
        self.targets.iter().find(|target| !is_read(target)).map(String::as_str)
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

/// Whether a pattern of letters, `.`, `\.` and `.*` matches all of a text (`re.fullmatch`).
fn matches_whole(pattern: &str, text: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix(".*") {
        return text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches_whole(rest, &text[at..]));
    }
    let (is_any, rest) = match pattern.strip_prefix('\\') {
        Some(rest) => (false, rest),
        None => (pattern.starts_with('.'), pattern),
    };
    match (rest.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some(wanted), Some(found)) if is_any || wanted == found => {
            matches_whole(&rest[wanted.len_utf8()..], &text[found.len_utf8()..])
        }
        _ => false,
    }
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
        for target in ["mlp", ".*.mlp.*", ".*attn", r"model\.layers\.1\..*"] {
            assert!(!names(target), "{target}");
        }
    }
}
