//! A node of a swarm (GenRL's GRPO trainer): generates for its questions, then one forward and backward pass over all
//! rows, with log-probabilities from the logits.

use std::rc::Rc;

use crate::building::Mode;
use crate::dtype::DType;
use crate::job::{Framework, JobSpec, SwarmLogProbs, SwarmSpec};
use crate::model::family::{ForwardCall, Model};
use crate::model::nn::Linear;
use crate::op::{Reduction, UNTOLD, cat, full};
use crate::optimizer;
use crate::tensor::{Context, Tensor, checkpoint};
use crate::trace::{Category, PhaseKind};

use super::calls::Calls;
use super::generate::{GenerateCall, GenerationConfig, SpecialTokens, generate, positions_of};
use super::inputs::input_ids;
use super::repetition::Repetition;
use super::sampling::Sampling;
use super::settled::Settled;

/// The node's process: what lives as long as the job.
pub(super) struct Node<'a> {
    pub job: &'a JobSpec,
    pub swarm: &'a SwarmSpec,
    pub context: &'a Rc<Context>,
    pub model: &'a dyn Model,
    pub mode: &'a Mode,
    pub parameters: &'a [Tensor],
    pub has_begin_token: bool,
}

/// What a step trains on.
struct Batch {
    ids: Tensor,
    mask: Tensor,
    /// The completions' part of `ids`.
    target: Tensor,
    advantages: Tensor,
    /// The completions' part of `mask`.
    completion_mask: Tensor,
}

/// Tensors of the loss that live to the end of the step.
struct Loss {
    loss: Tensor,
    _log_probs: Tensor,
    _old: Tensor,
    _ratio: Tensor,
    _per_token: Tensor,
}

impl Node<'_> {
    /// Runs the node's steps.
    pub(super) fn run_node(&self) -> Repetition {
        let mut run = Repetition::begin(self.job.gradient_accumulation_steps);
        if self.is_own_loop() {
            // Prompts are of different lengths there, and completions end.
            self.context.pad_rows();
        }
        let mut optimizer = optimizer::build(self.job, self.parameters);
        let mut calls = Calls::default();
        let mut settled = Settled::new(self.job, self.context);
        for step in 1..=self.job.steps {
            let left = u64::from(self.job.steps - step + 1);
            if self.context.has_failed() || !settled.begin_next(&mut run, (step, left)) {
                break;
            }
            self.context.phase(PhaseKind::Generate);
            if self.swarm.generates {
                self.run_rollout(&mut calls);
            }
            self.context.phase(PhaseKind::Input);
            let batch = self.make_batch();
            self.context.phase(PhaseKind::Forward);
            let loss = self.compute_loss(&batch);
            self.context.phase(PhaseKind::Backward);
            loss.loss.backward();
            self.context.phase(PhaseKind::Optimizer);
            optimizer.step();
            self.context.phase(PhaseKind::Between);
            self.parameters.iter().for_each(|parameter| parameter.set_grad(None));
            if self.swarm.empty_cache {
                self.context.empty_cache();
            }
        }
        self.context.end();
        settled.close(run)
    }

    /// Generates all rows, some at a time; the completions go to the host.
    fn run_rollout(&self, calls: &mut Calls) {
        self.mode.train(false);
        let _no_grad = self.context.set_grad_enabled(false);
        let _autocast = self.context.autocast(self.job.precision.autocast_dtype());
        let config = GenerationConfig {
            max_new_tokens: self.swarm.completion_len,
            sampling: Some(Sampling::PLAIN),
            special_tokens: SpecialTokens { begin: self.has_begin_token, end: false, pad: true },
            use_cache: true,
            output_scores: false,
        };
        let rows = self.swarm.local_questions.saturating_mul(self.swarm.num_generations);
        let most = self.swarm.generate_rows.max(1);
        for (rows, times) in [(most, rows / most), (rows % most, 1)] {
            if rows > 0 && times > 0 {
                calls.run(self.context, rows, times, || self.generate_rows(rows, &config));
            }
        }
        self.mode.train(true);
    }

    fn generate_rows(&self, rows: u64, config: &GenerationConfig) {
        let prompts = input_ids(self.context, rows, self.swarm.prompt_len);
        let mask = prompts.ones_like();
        let call = GenerateCall { input_ids: &prompts, attention_mask: &mask, config };
        generate(self.context, self.model, &call);
    }

    fn make_batch(&self) -> Batch {
        let (rows, completion_len) = (self.swarm.train_rows, self.swarm.completion_len);
        let ids = input_ids(self.context, rows, self.job.seq_len);
        let _category = self.context.enter_category(Category::Input);
        let mask = ids.ones_like();
        let target = ids.narrow_any(1, completion_len);
        let advantages = full(self.context, "_to_copy.default", &[rows, 1], DType::Float32);
        let completion_mask = mask.narrow_any(1, completion_len);
        Batch { ids, mask, target, advantages, completion_mask }
    }

    /// GRPO's clipped objective; the old policy is the one that is trained.
    fn compute_loss(&self, batch: &Batch) -> Loss {
        let _autocast = self.context.autocast(self.job.precision.autocast_dtype());
        let log_probs = match self.swarm.log_probs {
            SwarmLogProbs::Full => self.full_log_probs(batch),
            SwarmLogProbs::Chunked { rows } => self.chunked_log_probs(batch, rows.max(1)),
            SwarmLogProbs::ChunkedHead { rows } => self.chunked_head_log_probs(batch, rows.max(1)),
        };
        let old = log_probs.detach();
        let ratio = (&log_probs - &old).exp();
        let per_token = {
            let unclipped = &ratio * &batch.advantages;
            let clipped = &ratio.clamp() * &batch.advantages;
            unclipped.minimum(&clipped)
        }
        .neg();
        let total = (&per_token * &batch.completion_mask).sum();
        let loss = total.div_by(&batch.completion_mask.sum());
        Loss { loss, _log_probs: log_probs, _old: old, _ratio: ratio, _per_token: per_token }
    }

    /// Whether the program is `tonnage train`, and not GenRL.
    fn is_own_loop(&self) -> bool {
        self.job.framework == Framework::Loop
    }

    /// Positions that are rows of a table are told there, as padding stands before a prompt.
    fn position_ids(&self, batch: &Batch) -> Option<Tensor> {
        let is_told = self.is_own_loop() && self.job.model.has_position_table();
        is_told.then(|| positions_of(&batch.mask))
    }

    fn forward_call<'a>(&self, batch: &'a Batch, position_ids: Option<&'a Tensor>) -> ForwardCall<'a> {
        ForwardCall {
            attention_mask: Some(&batch.mask),
            position_ids,
            logits_to_keep: self.swarm.logits_to_keep.then_some(self.swarm.completion_len + 1),
            ..ForwardCall::new(&batch.ids)
        }
    }

    /// The logits that predict the completion's tokens, a part of those that the head computes.
    fn compute_logits(&self, batch: &Batch) -> Tensor {
        let position_ids = self.position_ids(batch);
        let output = self.model.forward(&self.forward_call(batch, position_ids.as_ref()));
        drop(position_ids);
        let logits = output.logits.unwrap_or_else(|| batch.ids.clone());
        logits.slice_any(1, self.swarm.completion_len)
    }

    fn full_log_probs(&self, batch: &Batch) -> Tensor {
        let logits = self.compute_logits(batch).contiguous();
        token_log_probs(logits, &batch.target.contiguous())
    }

    fn chunked_log_probs(&self, batch: &Batch, rows: u64) -> Tensor {
        let logits = self.compute_logits(batch);
        let chunks: Vec<Tensor> = chunk_sizes(self.swarm.train_rows, rows)
            .map(|rows| token_log_probs(logits.slice_any(0, rows), &batch.target.narrow_any(0, rows)))
            .collect();
        cat(&chunks.iter().collect::<Vec<_>>(), 0)
    }

    fn chunked_head_log_probs(&self, batch: &Batch, rows: u64) -> Tensor {
        let position_ids = self.position_ids(batch);
        let hidden_states = self.model.hidden_states(&self.forward_call(batch, position_ids.as_ref()));
        drop(position_ids);
        let head = self.model.output_embeddings();
        let chunks: Vec<Tensor> = chunk_sizes(self.swarm.train_rows, rows)
            .map(|rows| {
                // Slicing several dimensions at once leaves out those that are taken whole.
                let part =
                    if rows < hidden_states.size(0) { hidden_states.slice_any(0, rows) } else { hidden_states.clone() };
                head_log_probs(&head, &part.slice_any(1, self.swarm.completion_len), batch.target.narrow_any(0, rows))
            })
            .collect();
        cat(&chunks.iter().collect::<Vec<_>>(), 0)
    }
}

/// Rows of each chunk.
fn chunk_sizes(total: u64, rows: u64) -> impl Iterator<Item = u64> {
    (0..total.div_ceil(rows)).map(move |chunk| rows.min(total - chunk * rows))
}

/// The head and its log-probabilities, made again in backward.
fn head_log_probs(head: &Rc<Linear>, hidden_states: &Tensor, target: Tensor) -> Tensor {
    let head = Rc::clone(head);
    checkpoint(hidden_states, move |hidden_states| token_log_probs(head.forward(hidden_states), &target))
}

/// Log-probabilities of the target tokens from logits divided by the temperature, in fp32; [rows, tokens].
fn token_log_probs(logits: Tensor, target: &Tensor) -> Tensor {
    let mut scaled = logits.div_scalar(UNTOLD);
    drop(logits);
    scaled = scaled.float();
    let classes = scaled.size(-1);
    let per_token = {
        let flat = scaled.reshape(&[scaled.numel() / classes.max(1), classes]);
        flat.cross_entropy(&target.reshape(&[target.numel()]), Reduction::None)
    };
    per_token.view(target.sizes()).neg()
}
