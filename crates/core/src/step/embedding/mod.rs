//! Embeddings as sentence-transformers' `SentenceTransformerTrainer` trains them (6.2, base/trainer.py) with in-batch negatives, or a
//! loop of one's own with the same loss: the columns of a batch are embedded one after the other.

mod cached;
mod encode;
mod plain;
mod ranking;

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{EmbeddingSpec, Framework, JobSpec};
use crate::op::{TokenOutputs, full};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::batches::Batches;
use super::models::Policy;
use super::repetition::Repetition;
use super::trainer::{self, Recipe};
use super::wrapped::Wrapped;
use cached::cached_loss;
use encode::{Embedder, Features};
use ranking::ranking_loss;

/// Trains under the trainer, or in a plain loop.
pub(super) fn train_embedding(
    job: &JobSpec,
    spec: &EmbeddingSpec,
    context: &Rc<Context>,
    policy: Policy,
) -> Repetition {
    policy.builder.load_adapters_last();
    let is_plain = job.framework == Framework::Loop;
    let autocast = job.precision.autocast_dtype().filter(|_| !is_plain);
    let embedder =
        Embedder { context: Rc::clone(context), model: Rc::clone(&policy.model), spec: spec.clone(), autocast };
    let losses = Losses { job, embedder: Rc::new(embedder) };
    let parameters = policy.builder.trainable();
    if is_plain {
        return plain::train_plainly(&losses, context, &parameters);
    }
    let wrapped = Wrapped::new(job, context, policy.into_loaded(), TokenOutputs::default());
    let trainer = Trainer { losses, wrapped, batches: Batches::default() };
    trainer::run_trainer(job, context, &parameters, &trainer)
}

struct Trainer<'a> {
    losses: Losses<'a>,
    wrapped: Wrapped<'a>,
    /// The columns of each: anchors, positives, negatives.
    batches: Batches<Vec<Features>>,
}

impl Recipe for Trainer<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.wrapped
    }

    fn get_batch_samples(&self) {
        self.batches.load(self.losses.job.gradient_accumulation_steps, || self.losses.make_columns());
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        // `collect_features`: what a forward pass leaves in them goes with the features.
        let mut columns = self.batches.read(pass, Clone::clone)?;
        let loss = self.losses.loss(&mut columns);
        while columns.pop().is_some() {}
        loss
    }

    fn divides_loss(&self) -> bool {
        true
    }

    fn end(&self) {
        self.batches.clear();
    }
}

/// What makes batches and their losses.
struct Losses<'a> {
    job: &'a JobSpec,
    embedder: Rc<Embedder>,
}

impl Losses<'_> {
    fn make_columns(&self) -> Vec<Features> {
        let _category = self.embedder.context.enter_category(Category::Input);
        let spec = &self.embedder.spec;
        let tokens = [spec.anchor_len].into_iter().chain((0..=spec.negatives).map(|_| self.job.seq_len));
        tokens.map(|tokens| self.make_features(tokens)).collect()
    }

    fn make_features(&self, tokens: u64) -> Features {
        let sizes = [self.job.micro_batch_size, tokens];
        let ids = || full(&self.embedder.context, "_to_copy.default", &sizes, DType::Int64);
        let input_ids = ids();
        let token_type_ids = self.job.model.facts().token_types.then(ids);
        Features { input_ids, token_type_ids, attention_mask: ids(), made: None }
    }

    fn loss(&self, columns: &mut [Features]) -> Option<Tensor> {
        match self.embedder.spec.mini_batch_size {
            Some(size) => cached_loss(&self.embedder, columns, size),
            None => self.in_batch_loss(columns),
        }
    }

    /// `embed_columns`, then the loss: candidates of one width are embedded at once.
    fn in_batch_loss(&self, columns: &mut [Features]) -> Option<Tensor> {
        let (anchors, candidates) = columns.split_first_mut()?;
        let anchors = self.embedder.embed(anchors);
        if let [positives] = candidates {
            let positives = self.embedder.embed(positives);
            return ranking_loss(&anchors, &[&positives]);
        }
        let documents = {
            let mut merged = Features::merge(candidates)?;
            let embeddings = self.embedder.embed(&mut merged);
            let columns = candidates.len() as u64;
            let shape = [columns, embeddings.size(0) / columns, embeddings.size(1)];
            embeddings.reshape(&shape).unbind()
        };
        ranking_loss(&anchors, &documents.iter().collect::<Vec<_>>())
    }
}
