//! Log-probabilities from the completion's full logits, as TRL 0.25 took them: divided by the temperature, then row by row.

use std::rc::Rc;

use crate::dtype::DType;
use crate::model::family::ForwardCall;
use crate::op::{ReduceKind, UNTOLD, cat, stack};
use crate::tensor::{Context, Tensor};

use super::logps::LogpsCall;
use crate::step::generate::positions_of;
use crate::step::schedule::pieces_left_out;
use crate::step::wrapped::Called;

/// Positions whose entropies are taken at once.
const ENTROPY_CHUNK: u64 = 128;

/// Variables of the function that live until it returns, or until the next rows replace them.
#[derive(Default)]
struct Variables {
    logits: Option<Tensor>,
    /// `sel`, or the rows' log-probabilities.
    selected: Vec<Tensor>,
    log_p: Option<Tensor>,
    entropies: Vec<Tensor>,
}

/// Log-probabilities of the completion's tokens, and the entropies if they are asked for.
pub(super) fn per_token_logps(context: &Rc<Context>, model: &dyn Called, call: &LogpsCall) -> (Tensor, Option<Tensor>) {
    let rows = call.input_ids.size(0);
    let batch_size = call.batch_size.unwrap_or(rows).max(1);
    let (mut all_logps, mut all_entropies) = (Vec::new(), Vec::new());
    let mut variables = Variables::default();
    let pieces = rows.div_ceil(batch_size);
    let mut piece = 0;
    while piece < pieces && (piece == 0 || !context.has_failed()) {
        let count = batch_size.min(rows - piece * batch_size);
        let moment = context.moment();
        piece += 1;
        let ids = call.input_ids.narrow_any(0, count);
        let Some(mut logits) = completion_logits(model, call, &ids, count) else { continue };
        variables.logits = Some(logits.clone());
        logits = logits.div_scalar(UNTOLD);
        variables.logits = Some(logits.clone());
        all_logps.extend(variables.log_probs(&logits, &ids.narrow_any(1, call.logits_to_keep)));
        if call.entropy {
            all_entropies.push(variables.take_entropies(&logits));
        }
        let left_out = pieces_left_out(context, piece, pieces);
        if let Some(logps) = all_logps.last().filter(|_| left_out > 0).cloned() {
            piece += left_out;
            context.count_again(&moment, left_out);
            all_logps.extend((0..left_out).map(|_| logps.another()));
        }
    }
    let logps = cat(&all_logps.iter().collect::<Vec<_>>(), 0);
    let entropies = call.entropy.then(|| cat(&all_entropies.iter().collect::<Vec<_>>(), 0));
    (logps, entropies)
}

/// The logits that predict the completion's tokens: one more is computed, and the last dropped.
fn completion_logits(model: &dyn Called, call: &LogpsCall, ids: &Tensor, rows: u64) -> Option<Tensor> {
    let attention_mask = call.attention_mask.narrow_any(0, rows);
    let position_ids = call.own_positions.then(|| positions_of(&attention_mask));
    let output = model.call(&ForwardCall {
        attention_mask: Some(&attention_mask),
        position_ids: position_ids.as_ref(),
        logits_to_keep: Some(call.logits_to_keep + 1),
        ..ForwardCall::new(ids)
    })?;
    let all_but_last = output.logits?.slice_any(1, call.logits_to_keep);
    Some(all_but_last.slice_any(1, call.logits_to_keep))
}

impl Variables {
    /// Row by row: in fp32 the token's logit less the log-sum-exp, in half precision a log-softmax.
    fn log_probs(&mut self, logits: &Tensor, tokens: &Tensor) -> Option<Tensor> {
        if logits.dtype() == DType::Float32 {
            let selected = logits.gather_one(tokens);
            self.selected = vec![selected.clone()];
            let rows: Vec<Tensor> = logits.unbind().iter().map(Tensor::logsumexp).collect();
            let normalizers = stack(&rows)?;
            return Some(&selected - &normalizers);
        }
        self.selected.clear();
        for (row, tokens) in logits.unbind().iter().zip(tokens.unbind()) {
            if logits.context().is_full("log-probabilities row by row") {
                break;
            }
            self.selected.push(row.log_softmax().gather_one(&tokens));
        }
        stack(&self.selected)
    }

    /// `-(exp(log_p) * log_p).sum(-1)` in chunks, without gradients.
    fn take_entropies(&mut self, logits: &Tensor) -> Tensor {
        let _no_grad = logits.context().set_grad_enabled(false);
        let positions = logits.numel() / logits.size(-1).max(1);
        let flat = logits.reshape(&[positions, logits.size(-1)]);
        self.entropies.clear();
        let context = logits.context();
        let pieces = positions.div_ceil(ENTROPY_CHUNK);
        let mut piece = 0;
        while piece < pieces && (piece == 0 || !context.is_full("entropies of so many tokens")) {
            let moment = context.moment();
            let chunk = flat.narrow_any(0, ENTROPY_CHUNK.min(positions - piece * ENTROPY_CHUNK));
            piece += 1;
            let log_p: &Tensor = self.log_p.insert(chunk.log_softmax());
            let sum = {
                let product = {
                    let p = log_p.exp();
                    p.binary("mul.Tensor", log_p, log_p.dtype())
                };
                product.reduce_last("sum.dim_IntList", ReduceKind::Sum, log_p.dtype())
            };
            let entropies = sum.neg();
            drop(sum);
            let left_out = pieces_left_out(context, piece, pieces);
            if left_out > 0 {
                piece += left_out;
                context.count_again(&moment, left_out);
                self.entropies.extend((0..left_out).map(|_| entropies.another()));
            }
            self.entropies.push(entropies);
        }
        let joined = cat(&self.entropies.iter().collect::<Vec<_>>(), 0);
        joined.reshape(&[logits.size(0), positions / logits.size(0).max(1)])
    }
}
