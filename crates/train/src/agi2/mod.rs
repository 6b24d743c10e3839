//! The small GPT of the guide's trainer (roby2358/agi2 at 6e54453) with numbers: the layers that `core/src/family/agi2.rs` mirrors,
//! in the order and with the variable lives of that trainer's Python. Its first weights are its own (`_init_weights`).

mod block;
mod decode;
mod make;
mod ops;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonnage_core::job::JobSpec;
use tonnage_core::model_type::AGI2;
use tonnage_torch::{Argument, Device, ScalarType, Tensor, Torch, TorchError, operator};

use block::{Affine, Block};
use ops::{add, dropout, matmul, narrowed, unsqueezed};

use crate::error::TrainError;
use crate::training::{Forward, Outputs, Trainable};

/// `AGI2Model`
pub struct Agi2 {
    torch: &'static Torch,
    device: Device,
    embedding: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Affine,
    head: Option<Tensor>,
    mask: RefCell<Option<Tensor>>,
    dropout: f64,
    recomputes: bool,
    trains: Arc<AtomicBool>,
    named: Vec<(String, Tensor)>,
}

/// Whether a job's model is this one.
pub fn is_one(job: &JobSpec) -> bool {
    job.model.model_type == AGI2
}

impl Agi2 {
    /// All weights by their names.
    pub fn named(&self) -> &[(String, Tensor)] {
        &self.named
    }

    /// Logits of all positions.
    pub(crate) fn logits(&self, input_ids: &Tensor) -> Result<Tensor, TorchError> {
        let torch = self.torch;
        let trains = self.trains.load(Ordering::Relaxed);
        let tokens = input_ids.sizes().get(1).copied().unwrap_or(0);
        let mask = self.causal_mask(tokens)?;
        let words = {
            let embedded =
                torch.call(operator!("embedding"), &[(&self.embedding).into(), input_ids.into()])?.tensor()?;
            dropout(&embedded, self.dropout, trains)?
        };
        let places = narrowed(&self.positions, 0, 0, tokens)?;
        let mut x = add(&words, &unsqueezed(&places, 0)?)?;
        x = dropout(&x, self.dropout, trains)?;
        let mask = unsqueezed(&unsqueezed(&mask, 0)?, 0)?;
        for block in &self.blocks {
            x = self.call(block, &x, &mask)?;
        }
        x = self.norm.norm(&x)?;
        match &self.head {
            Some(head) => torch.call(operator!("linear"), &[(&x).into(), head.into()])?.tensor(),
            None => {
                let turned = torch.call(operator!("t"), &[(&self.embedding).into()])?.tensor()?;
                matmul(&x, &turned)
            }
        }
    }

    fn call(&self, block: &Block, x: &Tensor, mask: &Tensor) -> Result<Tensor, TorchError> {
        if !(self.recomputes && self.trains.load(Ordering::Relaxed)) {
            return block.forward(x, mask);
        }
        let (block, x, mask) = (block.clone(), x.clone(), mask.clone());
        self.torch.checkpoint(self.device, move || block.forward(&x, &mask))
    }

    /// True where a token may look: `~triu(ones, 1).bool()`, made for the length of a row and cut for shorter ones.
    fn causal_mask(&self, tokens: i64) -> Result<Tensor, TorchError> {
        let torch = self.torch;
        let mut kept = self.mask.borrow_mut();
        if let Some(mask) = kept.as_ref().filter(|mask| mask.sizes()[0] == tokens) {
            return Ok(mask.clone());
        }
        let mut mask = {
            let upper = {
                let sizes = [[tokens, tokens].into(), Argument::None, Argument::Default, self.device.into()];
                let ones = torch.call(operator!("ones"), &sizes)?.tensor()?;
                torch.call(operator!("triu"), &[(&ones).into(), 1_i64.into()])?.tensor()?
            };
            torch.call(operator!("to", "dtype"), &[(&upper).into(), ScalarType::Bool.into()])?.tensor()?
        };
        mask = torch.call(operator!("bitwise_not"), &[(&mask).into()])?.tensor()?;
        Ok(kept.insert(mask).clone())
    }

    /// The mean loss of `targets` by logits of as many positions.
    pub(crate) fn loss(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor, TorchError> {
        let torch = self.torch;
        let vocabulary = logits.sizes().last().copied().unwrap_or(0);
        let rows = targets.numel();
        let flat = torch.call(operator!("reshape"), &[logits.into(), [rows, vocabulary].into()])?.tensor()?;
        let targets = torch.call(operator!("reshape"), &[targets.into(), [rows].into()])?.tensor()?;
        torch.call(operator!("cross_entropy_loss"), &[(&flat).into(), (&targets).into()])?.tensor()
    }

    /// All tokens of rows but the last, all labels but the first.
    pub(crate) fn shifted(ids: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor), TorchError> {
        let tokens = ids.sizes().get(1).copied().unwrap_or(0);
        Ok((narrowed(ids, 1, 0, tokens - 1)?, narrowed(labels, 1, 1, tokens)?))
    }
}

impl Trainable for Agi2 {
    fn forward(&self, call: Forward<'_>) -> Result<Outputs, TrainError> {
        let (ids, targets) = Self::shifted(call.input_ids, call.labels)?;
        let logits = self.logits(&ids)?;
        Ok(Outputs { loss: self.loss(&logits, &targets)?, logits: Some(logits), cache: None })
    }

    fn trained(&self) -> Vec<(String, Tensor)> {
        self.named.clone()
    }

    fn train(&self, training: bool) {
        self.trains.store(training, Ordering::Relaxed);
    }

    fn module_that_failed(&self) -> Option<String> {
        None
    }

    fn own_loop(&self) -> Option<&Agi2> {
        Some(self)
    }
}
