//! Disentangled attention: to what tokens hold, and to how far apart they are.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::model::nn::Linear;
use crate::op::arange;
use crate::tensor::Tensor;

use super::config::{Config, Relative};

/// What all layers are given beside the states.
#[derive(Clone)]
pub(super) struct LayerCall {
    pub attention_mask: Tensor,
    pub relative_pos: Option<Tensor>,
    pub rel_embeddings: Option<Tensor>,
}

/// `build_relative_position` of rows of so many tokens: [1, tokens, tokens].
pub(super) fn build_relative_position(states: &Tensor, relative: Relative) -> Tensor {
    let (context, tokens) = (states.context(), states.size(1));
    let (q_ids, k_ids) = (arange(context, tokens), arange(context, tokens));
    let mut rel_pos_ids = &q_ids.unsqueeze(1) - &k_ids.unsqueeze(0);
    if relative.has_buckets {
        rel_pos_ids = rel_pos_ids.log_buckets(relative.span, relative.max_relative_positions);
    }
    rel_pos_ids = rel_pos_ids.to(DType::Int64);
    rel_pos_ids.unsqueeze(0)
}

/// The projections of distances, where they have weights of their own.
struct Distances {
    relative: Relative,
    pos_dropout: Module,
    pos_key_proj: Option<Linear>,
    pos_query_proj: Option<Linear>,
}

impl Distances {
    fn new(at: &Builder, relative: Relative, hidden: u64) -> Self {
        let own = |name, attends: bool| {
            (attends && !relative.share_att_key).then(|| Linear::new(&at.at(name), hidden, hidden, true))
        };
        let pos_dropout = at.at("pos_dropout").module();
        let pos_key_proj = own("pos_key_proj", relative.c2p);
        Self { relative, pos_dropout, pos_key_proj, pos_query_proj: own("pos_query_proj", relative.p2c) }
    }
}

pub(super) struct DisentangledSelfAttention {
    module: Module,
    query_proj: Linear,
    key_proj: Linear,
    value_proj: Linear,
    distances: Option<Distances>,
    dropout: Module,
    config: Config,
}

impl DisentangledSelfAttention {
    pub(super) fn new(at: &Builder, config: &Config) -> Self {
        let hidden = config.bert.hidden_size;
        let linear = |name| Linear::new(&at.at(name), hidden, hidden, true);
        Self {
            module: at.module(),
            query_proj: linear("query_proj"),
            key_proj: linear("key_proj"),
            value_proj: linear("value_proj"),
            distances: config.relative.map(|relative| Distances::new(at, relative, hidden)),
            dropout: at.at("dropout").module(),
            config: config.clone(),
        }
    }

    /// [rows * heads, tokens, head size] of [rows, tokens, width]
    fn transpose_for_scores(&self, x: &Tensor) -> Tensor {
        let (rows, tokens, heads) = (x.size(0), x.size(1), self.config.bert.num_attention_heads);
        let head_size = x.size(2) / heads;
        let split = x.view(&[rows, tokens, heads, head_size]);
        split.transpose(1, 2).contiguous().view(&[rows * heads, tokens, head_size])
    }

    fn project(&self, projection: &Linear, states: &Tensor) -> Tensor {
        let projected = projection.forward(states);
        self.transpose_for_scores(&projected)
    }

    pub(super) fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let query_layer = self.project(&self.query_proj, hidden_states);
        let key_layer = self.project(&self.key_proj, hidden_states);
        let value_layer = self.project(&self.value_proj, hidden_states);
        let mut attention_scores = {
            let scaled = key_layer.transpose(1, 2).div_scalar(self.scale(&query_layer));
            query_layer.bmm(&scaled)
        };
        let rel_embeddings = self.drop_distances(call);
        let rel_att = match (&self.distances, &rel_embeddings, &call.relative_pos) {
            (Some(distances), Some(rel_embeddings), Some(relative_pos)) => {
                self.disentangled_attention_bias(distances, [&query_layer, &key_layer], (relative_pos, rel_embeddings))
            }
            _ => None,
        };
        if let Some(rel_att) = &rel_att {
            attention_scores = &attention_scores + rel_att;
        }
        let (tokens, heads) = (hidden_states.size(1), self.config.bert.num_attention_heads);
        attention_scores = attention_scores.view(&[hidden_states.size(0), heads, tokens, tokens]);
        let attention_mask = call.attention_mask.to(DType::Bool);
        attention_scores = {
            let is_hidden = attention_mask.bitwise_not();
            attention_scores.masked_fill(&is_hidden, query_layer.dtype().lowest())
        };
        let mut attention_probs = attention_scores.softmax(None);
        attention_probs = self.config.dropped(&self.dropout, &attention_probs, self.config.bert.attention_dropout);
        let mut context_layer = attention_probs.view(&[value_layer.size(0), tokens, tokens]).bmm(&value_layer);
        let head_size = value_layer.size(2);
        context_layer =
            context_layer.view(&[hidden_states.size(0), heads, tokens, head_size]).transpose(1, 2).contiguous();
        context_layer.view(&[hidden_states.size(0), tokens, heads * head_size])
    }

    /// The table of distances after its dropout, which lives as long as the forward call.
    fn drop_distances(&self, call: &LayerCall) -> Option<Tensor> {
        let (distances, rel_embeddings) = (self.distances.as_ref()?, call.rel_embeddings.as_ref()?);
        Some(self.config.dropped(&distances.pos_dropout, rel_embeddings, self.config.bert.hidden_dropout))
    }

    fn scale(&self, layer: &Tensor) -> f64 {
        ((layer.size(-1) * self.config.scale_factor()) as f64).sqrt()
    }

    fn disentangled_attention_bias(
        &self,
        distances: &Distances,
        [query_layer, key_layer]: [&Tensor; 2],
        (relative_pos, rel_embeddings): (&Tensor, &Tensor),
    ) -> Option<Tensor> {
        let (relative, rows) = (distances.relative, query_layer.size(0) / self.config.bert.num_attention_heads);
        let rel_embeddings = rel_embeddings.alias_all().unsqueeze(0);
        let of_rows = |projection: &Linear| self.project(projection, &rel_embeddings).repeat_first(rows);
        let (pos_query_layer, pos_key_layer) = if relative.share_att_key {
            (Some(of_rows(&self.query_proj)), Some(of_rows(&self.key_proj)))
        } else {
            let pos_key_layer = distances.pos_key_proj.as_ref().map(of_rows);
            (distances.pos_query_proj.as_ref().map(of_rows), pos_key_layer)
        };
        let mut score: Option<Tensor> = None;
        let _c2p = pos_key_layer.as_ref().filter(|_| relative.c2p).map(|pos_key_layer| {
            let mut c2p_att = query_layer.bmm(&pos_key_layer.transpose(1, 2));
            let c2p_pos = relative_pos.add_int(relative.span).clamp_places(2 * relative.span);
            c2p_att = gather_places(&c2p_att, &c2p_pos);
            add_score(&mut score, &c2p_att, self.scale(pos_key_layer));
            (c2p_att, c2p_pos)
        });
        let _p2c = pos_query_layer.as_ref().filter(|_| relative.p2c).map(|pos_query_layer| {
            let p2c_pos = {
                let shifted = {
                    let negated = relative_pos.neg();
                    negated.add_int(relative.span)
                };
                shifted.clamp_places(2 * relative.span)
            };
            let mut p2c_att = key_layer.bmm(&pos_query_layer.transpose(1, 2));
            p2c_att = gather_places(&p2c_att, &p2c_pos).transpose(1, 2);
            add_score(&mut score, &p2c_att, self.scale(pos_query_layer));
            (p2c_att, p2c_pos)
        });
        score
    }
}

/// `gather(attended, dim=-1, index=places.expand(...))` of places [1, tokens, tokens]
fn gather_places(attended: &Tensor, places: &Tensor) -> Tensor {
    let (stacked, tokens) = (attended.size(0), places.size(1));
    attended.gather(&places.expand(&[stacked, tokens, tokens]))
}

/// `score += attended / scale`, of which the first is added to the number 0.
fn add_score(score: &mut Option<Tensor>, attended: &Tensor, scale: f64) {
    let scaled = attended.div_scalar(scale);
    *score = Some(match score.take() {
        Some(score) => score.add_in_place(&scaled),
        None => scaled.add_scalar(0.0),
    });
}
