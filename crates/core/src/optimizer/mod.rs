//! Optimizers, a file each: what each keeps between steps, and what one step allocates.
//!
//! One more optimizer is one file here and one line in [`build_uncounted`].

mod adafactor;
mod adam;
mod adam_atan2;
mod apollo;
mod bitsandbytes;
mod clip;
mod galore;
mod in_backward;
mod lion;
mod low_rank;
#[cfg(test)]
mod measured;
mod muon;
mod scaler;
mod schedule_free;
mod sgd;
mod sparse_sign_sgd;
mod state;
mod torchao;
mod traffic;

pub(crate) use clip::{clip_divided_grad_norm, clip_flat_grad_norm, clip_grad_norm, clip_sharded_grad_norm};
pub(crate) use in_backward::step_in_backward;
pub(crate) use scaler::GradScaler;
pub(crate) use sparse_sign_sgd::SparseSignSgd;

use crate::job::{JobSpec, LowRankSpec, OptimizerKind};
use crate::tensor::Tensor;

use adam::{Adam, Implementation};
use apollo::Apollo;
use bitsandbytes::{BitsandbytesAdamW, Storage};
use galore::Galore;
use low_rank::LowRankAdamW;
use torchao::{Codes, TorchaoAdamW};
use traffic::Counted;
pub(crate) use traffic::Traffic;

/// An optimizer over the trained parameters.
pub(crate) trait Optimizer {
    /// One `optimizer.step()` over the parameters that have gradients.
    fn step(&mut self);

    /// Whether the step unscales gradients itself (`_step_supports_amp_scaling`), as fused ones do.
    fn unscales(&self) -> bool {
        false
    }

    /// What a step moves in place.
    fn traffic(&self) -> Traffic;
}

/// Whether the Trainer has an optimizer decay the parameter: norms' weights and biases do not (`get_decay_parameter_names`, transformers
/// 5.17, trainer.py, which goes by their names).
pub(crate) fn decays(parameter: &Tensor) -> bool {
    parameter.sizes().len() >= 2
}

/// The optimizer of a job over some of its parameters.
pub(crate) fn build(job: &JobSpec, parameters: &[Tensor]) -> Box<dyn Optimizer> {
    build_kind((job.optimizer, &job.low_rank), parameters)
}

fn build_kind((kind, low_rank): (OptimizerKind, &LowRankSpec), parameters: &[Tensor]) -> Box<dyn Optimizer> {
    let parameters = parameters.to_vec();
    let optimizer = build_uncounted(kind, low_rank, parameters.clone());
    Box::new(Counted::new(optimizer, parameters))
}

fn bitsandbytes(storage: Storage, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(BitsandbytesAdamW::new(parameters, storage))
}

fn torchao(codes: Codes, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(TorchaoAdamW::new(parameters, codes))
}

fn build_uncounted(kind: OptimizerKind, low_rank: &LowRankSpec, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    match kind {
        OptimizerKind::Adamw | OptimizerKind::Adam => Box::new(Adam::new(parameters, Implementation::Foreach)),
        OptimizerKind::AdamwFused => Box::new(Adam::new(parameters, Implementation::Fused)),
        OptimizerKind::AdamwForloop => Box::new(Adam::new(parameters, Implementation::ForLoop)),
        OptimizerKind::Sgd => Box::new(sgd::Sgd::plain()),
        OptimizerKind::SgdMomentum => Box::new(sgd::Sgd::with_momentum(parameters)),
        OptimizerKind::Adafactor => Box::new(adafactor::Adafactor::new(parameters)),
        OptimizerKind::Adamw8bit => bitsandbytes(Storage { eight_bits: true, paged: false }, parameters),
        OptimizerKind::PagedAdamw8bit => bitsandbytes(Storage { eight_bits: true, paged: true }, parameters),
        OptimizerKind::PagedAdamw32bit => bitsandbytes(Storage { eight_bits: false, paged: true }, parameters),
        OptimizerKind::AdamwTorch8bit => torchao(Codes::EightBits, parameters),
        OptimizerKind::AdamwTorch4bit => torchao(Codes::FourBits { block: 256 }, parameters),
        OptimizerKind::AoAdamw4bit => torchao(Codes::FourBits { block: 128 }, parameters),
        OptimizerKind::Lion => Box::new(lion::Lion::new(parameters)),
        OptimizerKind::AdamAtan2 => Box::new(adam_atan2::AdamAtan2::new(parameters)),
        OptimizerKind::ScheduleFreeAdamw => Box::new(schedule_free::AdamWScheduleFree::new(parameters)),
        OptimizerKind::GaloreAdamw => Box::new(LowRankAdamW::new(parameters, low_rank, Galore)),
        OptimizerKind::ApolloAdamw => {
            Box::new(LowRankAdamW::new(parameters, low_rank, Apollo::new(low_rank.scales_whole)))
        }
        OptimizerKind::Muon => Box::new(muon::Muon::new(parameters)),
    }
}
