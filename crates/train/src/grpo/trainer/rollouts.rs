//! Generation batches: completions that are drawn, paid and compared within their groups.

use std::rc::Rc;

use tonnage_verifiable::Split;

use super::super::asker::Asked;
use super::super::batch::{Batch, Shape};
use super::super::evaluate::pay;
use super::super::logps::{LogpsCall, per_token_logps};
use super::super::pay::{Pay, give_advantages, is_dead};
use super::super::policy::Policy;
use super::super::rollout::Row;
use super::super::settings::GrpoSettings;
use super::Trainer;
use crate::error::TrainError;
use crate::tensor::{Tensor, caught};

/// Draws of a group whose rewards are all the same, at most, the first included.
const MOST_DRAWS: u64 = 4;

impl Trainer<'_> {
    /// `_generate_and_score_completions`, then `shuffle_sequence_dict`.
    pub(super) fn generation_batch(&mut self) -> Result<Batch, TrainError> {
        let settings = self.parts.settings;
        self.parts.model.set_checkpointing(false);
        let mut rows = self.paid_rows()?;
        let pay = give_advantages(&mut rows, self.group(), settings.how.scale_rewards);
        let spec = &settings.spec;
        let shape = Shape {
            pad: self.parts.ends.first().copied().unwrap_or(0),
            lengths: (!self.reads_values()).then_some((spec.prompt_len, spec.completion_len)),
            masks_truncated: settings.how.mask_truncated_completions,
        };
        let mut batch = caught(|| Batch::new(self.policy.context(), &rows, shape))?;
        if settings.keeps_old_logps() {
            batch.old_per_token_logps = Some(frozen(&self.policy, &batch, settings)?);
        }
        batch.ref_per_token_logps = self.reference_logps(&batch)?;
        caught(|| batch.take_advantages(&rows))?;
        self.parts.model.set_checkpointing(settings.checkpoints);
        self.note(&rows, pay);
        let seed = settings.plain.training.seed ^ self.progress.rounds.rotate_left(32);
        caught(|| batch.shuffled(seed))
    }

    fn reference_logps(&self, batch: &Batch) -> Result<Option<Tensor>, TrainError> {
        if self.parts.settings.spec.beta == 0.0 {
            return Ok(None);
        }
        let Some(reference) = &self.reference else {
            // The policy without its adapters.
            self.parts.model.enable_adapters(false);
            let logps = frozen(&self.policy, batch, self.parts.settings);
            self.parts.model.enable_adapters(true);
            return logps.map(Some);
        };
        frozen(reference, batch, self.parts.settings).map(Some)
    }

    fn group(&self) -> usize {
        usize::try_from(self.parts.settings.spec.num_generations).unwrap_or(usize::MAX)
    }

    fn note(&mut self, rows: &[Row], pay: Pay) {
        self.lately.pays.push(pay);
        self.lately.completions += rows.len() as u64;
        self.lately.completion_tokens += rows.iter().map(|row| row.tokens.len() as u64).sum::<u64>();
        self.lately.truncated += rows.iter().filter(|row| row.is_truncated).count() as u64;
    }

    /// A generation batch of whole groups; with DAPO's filter, groups whose rewards differ take the place of those whose do not.
    fn paid_rows(&mut self) -> Result<Vec<Row>, TrainError> {
        let mut rows = self.one_draw()?;
        let draws = if self.parts.settings.how.dynamic_sampling && self.reads_values() { MOST_DRAWS } else { 1 };
        for _ in 1..draws {
            let group = self.group();
            let is_alike = |rows: &[Row]| is_dead(&rows.iter().map(|row| row.reward).collect::<Vec<_>>());
            let dead: Vec<usize> =
                (0..rows.len() / group).filter(|at| is_alike(&rows[at * group..][..group])).collect();
            if dead.is_empty() {
                break;
            }
            let fresh = self.one_draw()?;
            let alive: Vec<&[Row]> = fresh.chunks(group).filter(|rows| !is_alike(rows)).collect();
            for (at, group_rows) in dead.iter().zip(alive) {
                rows[at * group..][..group].clone_from_slice(group_rows);
                self.lately.redrawn += 1;
            }
        }
        Ok(rows)
    }

    fn one_draw(&mut self) -> Result<Vec<Row>, TrainError> {
        let round = self.progress.rounds;
        self.progress.rounds += 1;
        let group = self.parts.settings.spec.num_generations;
        let questions = self.parts.settings.generation_rows() / group.max(1);
        let mut asked: Vec<Rc<Asked>> = Vec::new();
        for slot in 0..questions {
            let one = Rc::new(self.parts.asker.ask(Split::Training, round, slot)?);
            asked.extend((0..group).map(|_| Rc::clone(&one)));
        }
        let mut rows = self.sampler(true).complete(&asked)?;
        self.progress.tokens_generated += rows.iter().map(|row| row.tokens.len() as u64).sum::<u64>();
        if self.reads_values() {
            pay(&mut rows, self.parts.judge.as_ref())?;
        } else if let Some(judge) = &self.parts.judge {
            judge.rehearse(&rows)?;
        }
        Ok(rows)
    }
}

/// Log-probabilities without gradients, a micro-batch at a time.
pub(super) fn frozen(policy: &Policy<'_>, batch: &Batch, settings: &GrpoSettings) -> Result<Tensor, TrainError> {
    let _no_grad = policy.context().torch.no_grad();
    caught(|| {
        let (input_ids, attention_mask) = batch.joined();
        let call = LogpsCall {
            input_ids: &input_ids,
            attention_mask: &attention_mask,
            logits_to_keep: batch.completion_ids.size(1),
            batch_size: Some(settings.plain.micro_batch_size),
            entropy: false,
        };
        per_token_logps(policy, &call).0
    })
}
