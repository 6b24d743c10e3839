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
mod decayed;
mod ema;
mod galore;
mod galore_8bit;
mod grokadamw;
mod in_backward;
mod lion;
mod lomo;
mod low_rank;
#[cfg(test)]
mod measured;
mod muon;
mod rmsprop;
mod scaler;
mod schedule_free;
mod sgd;
mod shampoo;
mod soap;
mod sparse_sign_sgd;
mod stable_adamw;
mod state;
mod torchao;
mod traffic;
mod transformers_adafactor;

pub(crate) use clip::{clip_divided_grad_norm, clip_flat_grad_norm, clip_grad_norm, clip_sharded_grad_norm};
pub(crate) use ema::Average;
pub(crate) use in_backward::step_in_backward;
pub(crate) use scaler::GradScaler;
pub(crate) use sparse_sign_sgd::SparseSignSgd;

use crate::job::{Framework, JobSpec, LowRankSpec, OptimizerKind, PreconditionerSpec, Strategy};
use crate::tensor::Tensor;

use adam::{Adam, Implementation};
use apollo::Apollo;
use bitsandbytes::{Bitsandbytes, Moments, Storage};
use decayed::Decay;
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

    /// A backward pass of its own that steps, if it has one.
    fn fused_backward(&mut self, _loss: &Tensor) -> bool {
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

/// What an optimizer is told beside its kind.
#[derive(Clone, Copy)]
struct Told<'a> {
    low_rank: &'a LowRankSpec,
    preconditioner: PreconditionerSpec,
    /// Whether the Trainer makes it.
    by_trainer: bool,
    /// What `weight_decay` is to one that adds it to its gradients.
    decay: Decay,
}

/// The optimizer of a job over some of its parameters.
pub(crate) fn build(job: &JobSpec, parameters: &[Tensor]) -> Box<dyn Optimizer> {
    build_decaying(job, parameters, job.decays)
}

/// The Trainer's two groups (`create_optimizer`), each stepped by itself: what decays, and what does not whatever `weight_decay` is.
pub(crate) fn build_groups(job: &JobSpec, decaying: &[Tensor], rest: &[Tensor]) -> Vec<Box<dyn Optimizer>> {
    vec![build(job, decaying), build_decaying(job, rest, false)]
}

fn build_decaying(job: &JobSpec, parameters: &[Tensor], decays: bool) -> Box<dyn Optimizer> {
    // Shards that ranks step are no module's weights.
    let has_modules = matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_));
    let by_trainer = has_modules && matches!(job.framework, Framework::Trainer | Framework::Trl);
    let decay = if decays { Decay::Added } else { Decay::Off };
    build_kind(
        job.optimizer,
        Told { low_rank: &job.low_rank, preconditioner: job.preconditioner, by_trainer, decay },
        parameters,
    )
}

fn build_kind(kind: OptimizerKind, told: Told<'_>, parameters: &[Tensor]) -> Box<dyn Optimizer> {
    let parameters = parameters.to_vec();
    let optimizer = build_uncounted(kind, told, parameters.clone());
    Box::new(Counted::new(optimizer, parameters))
}

/// bitsandbytes' with moments of so many bits. `create_optimizer` has the weights of embeddings keep 32 (transformers 5.17, trainer.py).
fn bitsandbytes(
    (moments, bits, paged): (Moments, u64, bool),
    told: Told<'_>,
    parameters: Vec<Tensor>,
) -> Box<dyn Optimizer> {
    Box::new(Bitsandbytes::new(parameters, Storage { moments, eight_bits: bits == 8, paged }, told.by_trainer))
}

fn schedule_free(averaged: Averaged, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(ScheduleFree::new(parameters, averaged))
}

fn torchao(codes: Codes, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    Box::new(TorchaoAdamW::new(parameters, codes))
}

fn build_uncounted(kind: OptimizerKind, told: Told<'_>, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    let low_rank = told.low_rank;
    match kind {
        OptimizerKind::Adamw => Box::new(Adam::new(parameters, Implementation::Foreach)),
        OptimizerKind::Adam => Box::new(Adam::coupled(parameters, told.decay)),
        OptimizerKind::AdamwFused => Box::new(Adam::new(parameters, Implementation::Fused)),
        OptimizerKind::AdamwForloop => Box::new(Adam::new(parameters, Implementation::ForLoop)),
        OptimizerKind::Sgd => Box::new(sgd::Sgd::plain(parameters, told.decay)),
        OptimizerKind::SgdMomentum => Box::new(sgd::Sgd::with_momentum(parameters, told.decay)),
        OptimizerKind::Adafactor => Box::new(adafactor::Adafactor::new(parameters)),
        OptimizerKind::TransformersAdafactor => Box::new(TransformersAdafactor::new(parameters)),
        OptimizerKind::Rmsprop => Box::new(rmsprop::Rmsprop::new(parameters, told.decay)),
        OptimizerKind::Adagrad => Box::new(adagrad::Adagrad::new(parameters, told.decay)),
        OptimizerKind::Adamw8bit => bitsandbytes((Moments::Two, 8, false), told, parameters),
        OptimizerKind::PagedAdamw8bit => bitsandbytes((Moments::Two, 8, true), told, parameters),
        OptimizerKind::PagedAdamw32bit => bitsandbytes((Moments::Two, 32, true), told, parameters),
        OptimizerKind::Lion8bit | OptimizerKind::RmspropBnb8bit => {
            bitsandbytes((Moments::One, 8, false), told, parameters)
        }
        OptimizerKind::Lion32bit | OptimizerKind::RmspropBnb32bit => {
            bitsandbytes((Moments::One, 32, false), told, parameters)
        }
        OptimizerKind::PagedLion8bit => bitsandbytes((Moments::One, 8, true), told, parameters),
        OptimizerKind::PagedLion32bit => bitsandbytes((Moments::One, 32, true), told, parameters),
        OptimizerKind::Ademamix => bitsandbytes((Moments::Three, 32, false), told, parameters),
        OptimizerKind::Ademamix8bit => bitsandbytes((Moments::Three, 8, false), told, parameters),
        OptimizerKind::PagedAdemamix32bit => bitsandbytes((Moments::Three, 32, true), told, parameters),
        OptimizerKind::PagedAdemamix8bit => bitsandbytes((Moments::Three, 8, true), told, parameters),
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
        OptimizerKind::Lomo => Box::new(lomo::Lomo::plain(parameters)),
        OptimizerKind::Adalomo => Box::new(lomo::Lomo::adaptive(parameters)),
        OptimizerKind::Soap => Box::new(soap::Soap::new(parameters, told.preconditioner)),
        OptimizerKind::Shampoo => Box::new(shampoo::Shampoo::new(parameters)),
        OptimizerKind::GaloreAdamw => Box::new(LowRankAdamW::new(parameters, low_rank, Galore)),
        OptimizerKind::GaloreAdamw8bit => Box::new(galore_8bit::GaloreAdamW8bit::new(parameters, low_rank)),
        OptimizerKind::GaloreAdafactor => Box::new(TransformersAdafactor::in_low_rank(parameters, low_rank)),
        OptimizerKind::ApolloAdamw => {
            Box::new(LowRankAdamW::new(parameters, low_rank, Apollo::new(low_rank.scales_whole)))
        }
        OptimizerKind::Muon => Box::new(muon::Muon::new(parameters)),
    }
}
