//! [`Embedder`]: a `SentenceTransformer` (sentence-transformers 6.2, base/model.py), the bare model, its pooling and what makes its
//! embeddings one long.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{EmbeddingSpec, Pooling};
use crate::model::family::{ForwardCall, Model};
use crate::op::{cat, where_number};
use crate::tensor::{Context, Tensor};

/// What the tokenizer makes of a column of texts.
#[derive(Clone)]
pub(super) struct Features {
    pub input_ids: Tensor,
    pub token_type_ids: Option<Tensor>,
    pub attention_mask: Tensor,
    /// What a forward pass has put among them: `token_embeddings` and `sentence_embedding`.
    pub made: Option<[Tensor; 2]>,
}

impl Features {
    /// What `map` makes of each tensor, in their order.
    pub(super) fn map(&self, map: impl Fn(&Tensor) -> Tensor) -> Self {
        let input_ids = map(&self.input_ids);
        let token_type_ids = self.token_type_ids.as_ref().map(&map);
        Self { input_ids, token_type_ids, attention_mask: map(&self.attention_mask), made: None }
    }

    /// `merge_feature_batches`: columns of one width one below the other.
    pub(super) fn merge(columns: &[Self]) -> Option<Self> {
        let merged = |part: fn(&Self) -> Option<&Tensor>| {
            let parts: Vec<&Tensor> = columns.iter().filter_map(part).collect();
            (!parts.is_empty()).then(|| cat(&parts, 0))
        };
        let input_ids = merged(|features| Some(&features.input_ids))?;
        let token_type_ids = merged(|features| features.token_type_ids.as_ref());
        let attention_mask = merged(|features| Some(&features.attention_mask))?;
        Some(Self { input_ids, token_type_ids, attention_mask, made: None })
    }
}

/// The model that embeds texts.
pub(super) struct Embedder {
    pub context: Rc<Context>,
    pub model: Rc<dyn Model>,
    pub spec: EmbeddingSpec,
    /// What accelerate has its forward run under.
    pub autocast: Option<DType>,
}

impl Embedder {
    /// An embedding of each text: [rows, width], in fp32 under autocast (`model(features)["sentence_embedding"]`).
    pub(super) fn embed(&self, features: &mut Features) -> Tensor {
        let made = {
            let _autocast = self.autocast.map(|dtype| self.context.autocast(Some(dtype)));
            self.forward(features)
        };
        let made = features.made.insert(made);
        if self.autocast.is_none() {
            return made[1].clone();
        }
        // accelerate's `convert_outputs_to_fp32` makes a dictionary of its own.
        let [_, sentence_embedding] = made.each_ref().map(Tensor::float);
        sentence_embedding
    }

    fn forward(&self, features: &Features) -> [Tensor; 2] {
        let token_embeddings = self.token_embeddings(features);
        let pooled = {
            let vector = self.pool(&token_embeddings, &features.attention_mask);
            cat(&[&vector], 1)
        };
        let sentence_embedding = if self.spec.normalize { pooled.unit_length() } else { pooled };
        [token_embeddings, sentence_embedding]
    }

    fn token_embeddings(&self, features: &Features) -> Tensor {
        let (states, _pooled) = self.model.base_outputs(&ForwardCall {
            attention_mask: Some(&features.attention_mask),
            token_type_ids: features.token_type_ids.as_ref(),
            ..ForwardCall::new(&features.input_ids)
        });
        states
    }

    /// One state of each text's tokens: [rows, width] (sentence_transformer/modules/pooling.py).
    fn pool(&self, token_embeddings: &Tensor, attention_mask: &Tensor) -> Tensor {
        match self.spec.pooling {
            Pooling::Mean => pool_mean(token_embeddings, attention_mask),
            Pooling::Cls => {
                let first_indices = {
                    let mask = attention_mask.to(DType::Int32);
                    mask.argmax_last()
                };
                token_embeddings.gather_token(&first_indices)
            }
            Pooling::Lasttoken => pool_last(token_embeddings, attention_mask),
        }
    }
}

fn pool_mean(token_embeddings: &Tensor, attention_mask: &Tensor) -> Tensor {
    let dtype = token_embeddings.dtype();
    let sums = if dtype.is_half() { DType::Float32 } else { dtype };
    let mask = attention_mask.unsqueeze(2).to(dtype);
    let mean_sum = {
        let masked = token_embeddings * &mask;
        masked.sum_as(1, sums)
    };
    let mut mean_mask = mask.sum_as(1, sums);
    mean_mask = mean_mask.clamp_min(1e-9);
    mean_sum.div(&mean_mask).to(dtype)
}

/// The last token that is no padding: at the end of the row where padding is before it.
fn pool_last(token_embeddings: &Tensor, attention_mask: &Tensor) -> Tensor {
    let [values, mut indices] = {
        let flipped = attention_mask.map("flip.default", DType::Int64);
        flipped.largest_last()
    };
    indices = {
        let is_empty = values.eq_number(0.0);
        where_number(&is_empty, indices, 0.0, DType::Int64)
    };
    let gather_indices = {
        let behind = indices.map("rsub.Scalar", DType::Int64);
        behind.sub_int(1)
    };
    let mask = attention_mask.unsqueeze(2).expand(token_embeddings.sizes()).to(token_embeddings.dtype());
    let masked = token_embeddings * &mask;
    masked.gather_token(&gather_indices)
}
