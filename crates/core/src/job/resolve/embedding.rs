//! Decides the keys of embeddings as sentence-transformers trains them.

use super::chooser::Chooser;
use super::job::Lengths;
use crate::job::keys;
use crate::job::{EmbeddingSpec, JobError, Task};
use crate::model_type::ModelKind;

pub(super) fn resolve_embedding(
    choose: &mut Chooser<'_>,
    lengths: &Lengths,
    kind: ModelKind,
) -> Result<Task, JobError> {
    choose.notes.push("behaviour is that of sentence-transformers 6.2".to_owned());
    let anchor_len = choose.size_or(keys::EMBEDDING_ANCHOR_LEN, lengths.seq_len, "those of seq_len");
    let negatives = choose.take_size(keys::EMBEDDING_NEGATIVES);
    let (pooling, why) = match kind {
        ModelKind::Decoder => ("lasttoken", "a decoder's last token has seen all others"),
        _ => ("mean", "sentence-transformers' of a model without modules of its own"),
    };
    let pooling = choose.word_or(keys::EMBEDDING_POOLING, pooling, why)?;
    let normalize = choose.take_switch(keys::EMBEDDING_NORMALIZE);
    let mini_batch_size = Some(choose.take_size(keys::EMBEDDING_MINI_BATCH_SIZE)).filter(|rows| *rows > 0);
    Ok(EmbeddingSpec { anchor_len, negatives, pooling, normalize, mini_batch_size }.into())
}
