//! Optimizers, a file each: what each keeps between steps, and what one step allocates.
//!
//! One more optimizer is one file here and one line in [`build_uncounted`].

mod adafactor;
mod adagrad;
mod adam;
mod adam_atan2;
mod apollo;
mod bitsandbytes;
mod clip;
mod galore;
mod galore_8bit;
mod grokadamw;
mod in_backward;
mod lion;
mod low_rank;
#[cfg(test)]
mod measured;
mod muon;
mod rmsprop;
mod scaler;
mod schedule_free;
mod sgd;
mod sparse_sign_sgd;
mod stable_adamw;
mod state;
mod torchao;
mod traffic;
mod transformers_adafactor;

pub(crate) use clip::{clip_divided_grad_norm, clip_flat_grad_norm, clip_grad_norm, clip_sharded_grad_norm};
pub(crate) use in_backward::step_in_backward;
pub(crate) use scaler::GradScaler;
pub(crate) use sparse_sign_sgd::SparseSignSgd;

use crate::job::{JobSpec, LowRankSpec, OptimizerKind};
use crate::tensor::Tensor;

use adam::{Adam, Implementation};
use apollo::Apollo;
use bitsandbytes::{Bitsandbytes, Moments, Storage};
use galore::Galore;
use low_rank::LowRankAdamW;
use schedule_free::{Averaged, ScheduleFree};
use torchao::{Codes, TorchaoAdamW};
use traffic::Counted;
pub(crate) use traffic::Traffic;
use transformers_adafactor::TransformersAdafactor;

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

/// bitsandbytes' with moments of so many bits.
fn bitsandbytes(moments: Moments, bits: u64, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(Bitsandbytes::new(parameters, Storage { moments, eight_bits: bits == 8, paged: false }))
}

/// The same in managed memory.
fn paged(moments: Moments, bits: u64, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(Bitsandbytes::new(parameters, Storage { moments, eight_bits: bits == 8, paged: true }))
}

fn schedule_free(averaged: Averaged, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(ScheduleFree::new(parameters, averaged))
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
        OptimizerKind::TransformersAdafactor => Box::new(TransformersAdafactor::new(parameters)),
        OptimizerKind::Rmsprop => Box::new(rmsprop::Rmsprop::new(parameters)),
        OptimizerKind::Adagrad => Box::new(adagrad::Adagrad::new(parameters)),
        OptimizerKind::Adamw8bit => bitsandbytes(Moments::Two, 8, parameters),
        OptimizerKind::PagedAdamw8bit => paged(Moments::Two, 8, parameters),
        OptimizerKind::PagedAdamw32bit => paged(Moments::Two, 32, parameters),
        OptimizerKind::Lion8bit | OptimizerKind::RmspropBnb8bit => bitsandbytes(Moments::One, 8, parameters),
        OptimizerKind::Lion32bit | OptimizerKind::RmspropBnb32bit => bitsandbytes(Moments::One, 32, parameters),
        OptimizerKind::PagedLion8bit => paged(Moments::One, 8, parameters),
        OptimizerKind::PagedLion32bit => paged(Moments::One, 32, parameters),
        OptimizerKind::Ademamix => bitsandbytes(Moments::Three, 32, parameters),
        OptimizerKind::Ademamix8bit => bitsandbytes(Moments::Three, 8, parameters),
        OptimizerKind::PagedAdemamix32bit => paged(Moments::Three, 32, parameters),
        OptimizerKind::PagedAdemamix8bit => paged(Moments::Three, 8, parameters),
        OptimizerKind::AdamwTorch8bit => torchao(Codes::EightBits, parameters),
        OptimizerKind::AdamwTorch4bit => torchao(Codes::FourBits { block: 256 }, parameters),
        OptimizerKind::AoAdamw4bit => torchao(Codes::FourBits { block: 128 }, parameters),
        OptimizerKind::Lion => Box::new(lion::Lion::new(parameters)),
        OptimizerKind::AdamAtan2 => Box::new(adam_atan2::AdamAtan2::new(parameters)),
        OptimizerKind::ScheduleFreeAdamw => schedule_free(Averaged::AdamW, parameters),
        OptimizerKind::ScheduleFreeRadam => schedule_free(Averaged::RAdam, parameters),
        OptimizerKind::ScheduleFreeSgd => schedule_free(Averaged::Sgd, parameters),
        OptimizerKind::StableAdamw => Box::new(stable_adamw::StableAdamW::new(parameters)),
        OptimizerKind::Grokadamw => Box::new(grokadamw::GrokAdamW::new(parameters)),
        OptimizerKind::GaloreAdamw => Box::new(LowRankAdamW::new(parameters, low_rank, Galore)),
        OptimizerKind::GaloreAdamw8bit => Box::new(galore_8bit::GaloreAdamW8bit::new(parameters, low_rank)),
        OptimizerKind::GaloreAdafactor => Box::new(TransformersAdafactor::in_low_rank(parameters, low_rank)),
        OptimizerKind::ApolloAdamw => {
            Box::new(LowRankAdamW::new(parameters, low_rank, Apollo::new(low_rank.scales_whole)))
        }
        OptimizerKind::Muon => Box::new(muon::Muon::new(parameters)),
    }
}
