//! `MultipleNegativesRankingLoss` (sentence-transformers 6.2, sentence_transformer/losses/multiple_negatives_ranking.py): of all
//! candidates of a batch each anchor's own is the right one.

use crate::dtype::DType;
use crate::op::{UNTOLD, arange, cat};
use crate::tensor::Tensor;

/// The mean loss over all anchors (`compute_loss_from_embeddings`): `docs` are positives first, as many as anchors.
pub(super) fn ranking_loss(queries: &Tensor, docs: &[&Tensor]) -> Option<Tensor> {
    let docs_all = cat(docs, 0);
    let local_indices = arange(queries.context(), queries.size(0));
    let row_indices = arange(queries.context(), queries.size(0));
    let local_queries = queries.at_places(&[&local_indices]);
    let _local_docs = docs.first()?.at_places(&[&local_indices]);
    let mut scores = Scores::default();
    let mean = {
        let differences = scores.score(&local_queries, &docs_all, &[&row_indices, &local_indices]);
        differences.mean()
    };
    Some(mean.neg())
}

/// The variables that a part of the rows is scored with.
#[derive(Default)]
pub(super) struct Scores {
    sim_matrix: Option<Tensor>,
    positive_scores: Option<Tensor>,
    scores: Option<Tensor>,
    log_z: Option<Tensor>,
}

impl Scores {
    /// `positive_scores - log_z`: the scaled similarity of each query to its own document, less what the softmax divides by.
    pub(super) fn score(&mut self, queries: &Tensor, docs_all: &Tensor, places: &[&Tensor]) -> Tensor {
        self.sim_matrix = None;
        let similarity = cos_sim(queries, docs_all);
        let sim_matrix = &*self.sim_matrix.insert(similarity.mul_scalar(UNTOLD));
        drop(similarity);
        let positive_scores = &*self.positive_scores.insert(sim_matrix.at_places(places));
        let scores = &*self.scores.insert(cat(&[sim_matrix], 1));
        let log_z = &*self.log_z.insert(scores.logsumexp());
        positive_scores - log_z
    }
}

/// `cos_sim` (util/similarity.py), in fp32 at least.
fn cos_sim(a: &Tensor, b: &Tensor) -> Tensor {
    let wide = |x: &Tensor| if x.dtype().is_half() { x.to(DType::Float32) } else { x.clone() };
    let (a, b) = (wide(a), wide(b));
    let [a_norm, b_norm] = [&a, &b].map(Tensor::unit_length);
    a_norm.mm(&b_norm.t())
}
