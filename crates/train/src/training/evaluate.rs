//! The loss of text that is not trained on.

use super::model::call_with_labels;
use super::step::{Maker, Variables, host_number};
use crate::data::Position;
use crate::data::batches::Examples;
use crate::error::TrainError;

impl Maker<'_> {
    /// The mean loss of a token over all of `examples`, each once over all ranks, without dropout.
    pub fn evaluate(&self, examples: &Examples) -> Result<f64, TrainError> {
        self.model.train(false);
        let result = self.mean_loss(examples);
        self.model.train(true);
        result
    }

    fn mean_loss(&self, examples: &Examples) -> Result<f64, TrainError> {
        let _no_grad = self.torch.no_grad();
        let autocast = self.settings.autocast.map(|dtype| self.torch.autocast(self.device, Some(dtype))).transpose()?;
        let mut walk = examples.walk(Position::default());
        let mut variables = Variables::default();
        let (mut sum, mut learnt) = (0.0, 0_u64);
        let mut left = examples.rows_of_rank();
        while left > 0 {
            let batch = walk.next_batch(left.min(self.settings.micro_batch_size), self.settings.seq_len);
            left -= left.min(self.settings.micro_batch_size);
            self.load_batch(&batch, &mut variables)?;
            let Some((ids, labels)) = variables.inputs() else { continue };
            let output = call_with_labels(self.model, ids, labels, false)?;
            sum += host_number(&output.loss)? * batch.learnt as f64;
            learnt += batch.learnt;
        }
        drop(autocast);
        let all = self.ranks.sum(&[sum, learnt as f64])?;
        Ok(all[0] / all[1].max(1.0))
    }
}
