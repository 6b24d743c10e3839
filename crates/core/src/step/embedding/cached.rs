//! `CachedMultipleNegativesRankingLoss` (sentence-transformers 6.2, base/losses/gradcache.py): embeddings without gradients in parts of
//! the batch, the loss and its gradient of them, and in backward each part once more, with gradients.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, UNTOLD, arange, cat};
use crate::tensor::Tensor;

use super::encode::{Embedder, Features};
use super::ranking::Scores;

/// The loss, whose backward pass embeds all parts once more (`forward_cached`); `size`: rows of a part.
pub(super) fn cached_loss(embedder: &Rc<Embedder>, columns: &[Features], size: u64) -> Option<Tensor> {
    let reps: Vec<Vec<Tensor>> = columns.iter().map(|features| embed_without_grad(embedder, features, size)).collect();
    let loss = calculate_loss(&reps, size)?.detach().into_parameter();
    let cache: Vec<Vec<Option<Tensor>>> = reps.iter().map(|reps| reps.iter().map(Tensor::grad).collect()).collect();
    let (embedder, columns) = (Rc::clone(embedder), columns.to_vec());
    Some(loss.with_gradient_hook("GradCache", move |grad| replay(&embedder, (&columns, &cache), size, grad)))
}

/// How many rows each part of a column has.
fn parts(rows: u64, size: u64) -> impl Iterator<Item = u64> {
    (0..rows).step_by(usize::try_from(size.max(1)).unwrap_or(usize::MAX)).map(move |begin| size.min(rows - begin))
}

/// `_create_minibatch`: the rows, whose trailing padding is looked for.
fn create_minibatch(features: &Features, rows: u64) -> Features {
    let active = features.attention_mask.narrow_any(0, rows).to(DType::Bool);
    let active_columns = active.any_row();
    drop(active_columns.any());
    {
        let places = active_columns.places(active_columns.size(0));
        places.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64);
    }
    features.map(|tensor| tensor.narrow_any(0, rows))
}

fn embed_without_grad(embedder: &Embedder, features: &Features, size: u64) -> Vec<Tensor> {
    let _no_grad = embedder.context.set_grad_enabled(false);
    let embed = |rows| embedder.embed(&mut create_minibatch(features, rows)).detach().into_parameter();
    parts(features.input_ids.size(0), size).map(embed).collect()
}

/// `calculate_loss(reps, with_backward=True)`: parts of the rows in turn, each with its backward pass.
fn calculate_loss(reps: &[Vec<Tensor>], size: u64) -> Option<Tensor> {
    let whole = |parts: &Vec<Tensor>| cat(&parts.iter().collect::<Vec<_>>(), 0);
    let (queries, docs) = reps.split_first()?;
    let (queries, docs): (Tensor, Vec<Tensor>) = (whole(queries), docs.iter().map(whole).collect());
    let docs_all = cat(&docs.iter().collect::<Vec<_>>(), 0);
    let local_indices = arange(queries.context(), queries.size(0));
    let (mut losses, mut scores) = (Vec::new(), Scores::default());
    let (mut row_indices, mut local_queries, mut local_docs, mut per_sample_loss) = (None, None, None, None);
    for rows in parts(queries.size(0), size) {
        let local_batch = local_indices.narrow_any(0, rows);
        let row_indices = &*row_indices.insert(arange(queries.context(), rows));
        let local_queries = &*local_queries.insert(queries.at_places(&[&local_batch]));
        local_docs.replace(docs.first()?.at_places(&[&local_batch]));
        let negated = {
            let differences = scores.score(local_queries, &docs_all, &[row_indices, &local_batch]);
            differences.neg()
        };
        let per_sample_loss = &*per_sample_loss.insert(negated);
        let loss_mbatch = {
            let scaled = {
                let mean = per_sample_loss.mean();
                mean.mul_scalar(UNTOLD)
            };
            scaled.div_scalar(UNTOLD)
        };
        loss_mbatch.backward();
        losses.push(loss_mbatch.detach());
    }
    let mut sum: Option<Tensor> = None;
    for loss in &losses {
        sum = Some(sum.map_or_else(|| loss.add_scalar(0.0), |sum| &sum + loss));
    }
    sum
}

/// `_backward_hook`, whose variables live from one part to the next.
fn replay(
    embedder: &Embedder,
    (columns, cache): (&[Features], &[Vec<Option<Tensor>>]),
    size: u64,
    grad_output: &Tensor,
) {
    let _grad = embedder.context.set_grad_enabled(true);
    let (mut reps_mb, mut surrogate) = (None, None);
    for (features, grads) in columns.iter().zip(cache) {
        for (rows, grad) in parts(features.input_ids.size(0), size).zip(grads.iter().flatten()) {
            let reps_mb = &*reps_mb.insert(embedder.embed(&mut create_minibatch(features, rows)));
            let product = {
                let [reps_mb, grad] = [reps_mb, grad].map(|x| x.reshape(&[x.numel()]).float());
                let dot = reps_mb.dot(&grad);
                dot.mul(grad_output)
            };
            surrogate.insert(product).backward();
        }
    }
}
