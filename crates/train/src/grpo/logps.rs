//! `_get_per_token_logps_and_entropies` over full logits, as TRL took them up to 0.25 (`selective_log_softmax`, `entropy_from_logits`).

use super::generate::positions_of;
use super::policy::{Pass, Policy};
use super::tensors::stack;
use crate::dtype::DType;
use crate::op::cat;
use crate::tensor::Tensor;

/// Positions whose entropies are taken at once.
const ENTROPY_CHUNK: u64 = 128;

pub(super) struct LogpsCall<'a> {
    pub input_ids: &'a Tensor,
    pub attention_mask: &'a Tensor,
    pub logits_to_keep: u64,
    /// Rows at once; all when `None`.
    pub batch_size: Option<u64>,
    pub entropy: bool,
}

/// Variables of the function that live until it returns, or until the next rows replace them.
#[derive(Default)]
struct Variables {
    logits: Option<Tensor>,
    /// `sel`, or the rows' log-probabilities.
    selected: Vec<Tensor>,
    log_p: Option<Tensor>,
    entropies: Vec<Tensor>,
}

/// Log-probabilities of the completion's tokens, and the entropies if they are asked for. [rows, tokens of a completion]
pub(super) fn per_token_logps(policy: &Policy<'_>, call: &LogpsCall<'_>) -> (Tensor, Option<Tensor>) {
    let rows = call.input_ids.size(0);
    let batch_size = call.batch_size.unwrap_or(rows).max(1);
    let (mut all_logps, mut all_entropies) = (Vec::new(), Vec::new());
    let mut variables = Variables::default();
    let mut start = 0;
    while start < rows {
        let end = (start + batch_size).min(rows);
        let ids = call.input_ids.narrow(0, start..end);
        let mut logits = completion_logits(policy, call, &ids, start..end);
        variables.logits = Some(logits.clone());
        // By the temperature, which is 1.
        logits = logits.div_scalar(1.0);
        variables.logits = Some(logits.clone());
        let width = ids.size(1);
        all_logps.push(variables.log_probs(&logits, &ids.narrow(1, width - call.logits_to_keep..width)));
        if call.entropy {
            all_entropies.push(variables.take_entropies(&logits));
        }
        start = end;
    }
    let logps = cat(&all_logps.iter().collect::<Vec<_>>(), 0);
    let entropies = call.entropy.then(|| cat(&all_entropies.iter().collect::<Vec<_>>(), 0));
    (logps, entropies)
}

/// The logits that predict the completion's tokens: one more is computed, and the last dropped.
fn completion_logits(policy: &Policy<'_>, call: &LogpsCall<'_>, ids: &Tensor, rows: std::ops::Range<u64>) -> Tensor {
    let attention_mask = call.attention_mask.narrow(0, rows);
    // TRL gives none, so that padding moves the rows of a table that a prompt was generated with.
    let position_ids = policy.has_position_table.then(|| positions_of(&attention_mask));
    let logits = policy.logits(&Pass {
        input_ids: ids,
        attention_mask: &attention_mask,
        position_ids: position_ids.as_ref(),
        cache: None,
        logits_to_keep: call.logits_to_keep + 1,
        padded: true,
    });
    let all_but_last = logits.slice(1, 0..call.logits_to_keep);
    drop(logits);
    all_but_last.slice(1, 0..call.logits_to_keep)
}

impl Variables {
    /// Row by row: in fp32 the token's logit less the log-sum-exp, in half precision a log-softmax.
    fn log_probs(&mut self, logits: &Tensor, tokens: &Tensor) -> Tensor {
        if logits.dtype() == DType::Float32 {
            let selected = logits.gather_last(tokens);
            self.selected = vec![selected.clone()];
            let rows: Vec<Tensor> = logits.rows().iter().map(Tensor::logsumexp_last).collect();
            let normalizers = stack(&rows);
            return &selected - &normalizers;
        }
        self.selected.clear();
        for (row, tokens) in logits.rows().iter().zip(tokens.rows()) {
            self.selected.push(row.log_softmax_last().gather_last(&tokens));
        }
        stack(&self.selected)
    }

    /// `-(exp(log_p) * log_p).sum(-1)` in chunks, without gradients.
    fn take_entropies(&mut self, logits: &Tensor) -> Tensor {
        let _no_grad = logits.context().set_grad_enabled(false);
        let positions = logits.numel() / logits.size(-1).max(1);
        let flat = logits.reshape(&[positions, logits.size(-1)]);
        self.entropies.clear();
        let mut start = 0;
        while start < positions {
            let end = (start + ENTROPY_CHUNK).min(positions);
            let log_p: &Tensor = self.log_p.insert(flat.narrow(0, start..end).log_softmax_last());
            let sum = {
                let product = {
                    let p = log_p.exp();
                    &p * log_p
                };
                product.sum_over_last()
            };
            self.entropies.push(sum.neg());
            start = end;
        }
        let joined = cat(&self.entropies.iter().collect::<Vec<_>>(), 0);
        joined.reshape(&[logits.size(0), positions / logits.size(0).max(1)])
    }
}
