//! The optimizers that a job can name, and what others ask of them.

use serde::{Deserialize, Serialize};

/// The optimizer and its implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// `torch.optim.AdamW`, foreach (the default on CUDA).
    Adamw,
    /// `torch.optim.AdamW(fused=True)`.
    AdamwFused,
    /// `torch.optim.AdamW(foreach=False)`.
    AdamwForloop,
    /// `torch.optim.Adam`, foreach.
    Adam,
    /// `torch.optim.SGD` without momentum, foreach.
    Sgd,
    /// `torch.optim.SGD(momentum=0.9)`, foreach.
    SgdMomentum,
    /// `torch.optim.Adafactor`.
    Adafactor,
    /// transformers' own Adafactor, as the Trainer makes it.
    TransformersAdafactor,
    /// `torch.optim.RMSprop` without momentum, foreach.
    Rmsprop,
    /// `torch.optim.Adagrad`, foreach.
    Adagrad,
    /// bitsandbytes `AdamW8bit`.
    Adamw8bit,
    /// bitsandbytes `PagedAdamW8bit`: moments in managed memory.
    #[serde(rename = "paged_adamw_8bit")]
    PagedAdamw8bit,
    /// bitsandbytes `PagedAdamW32bit`: fp32 moments in managed memory.
    #[serde(rename = "paged_adamw_32bit")]
    PagedAdamw32bit,
    /// bitsandbytes `Lion8bit`.
    #[serde(rename = "lion_8bit")]
    Lion8bit,
    /// bitsandbytes `Lion32bit`: an fp32 momentum.
    #[serde(rename = "lion_32bit")]
    Lion32bit,
    /// bitsandbytes `PagedLion8bit`.
    #[serde(rename = "paged_lion_8bit")]
    PagedLion8bit,
    /// bitsandbytes `PagedLion32bit`.
    #[serde(rename = "paged_lion_32bit")]
    PagedLion32bit,
    /// bitsandbytes `AdEMAMix`: two averages of gradients and one of squares, in fp32.
    Ademamix,
    /// bitsandbytes `AdEMAMix8bit`.
    #[serde(rename = "ademamix_8bit")]
    Ademamix8bit,
    /// bitsandbytes `PagedAdEMAMix`.
    #[serde(rename = "paged_ademamix_32bit")]
    PagedAdemamix32bit,
    /// bitsandbytes `PagedAdEMAMix8bit`.
    #[serde(rename = "paged_ademamix_8bit")]
    PagedAdemamix8bit,
    /// bitsandbytes `RMSprop8bit`.
    #[serde(rename = "rmsprop_bnb_8bit")]
    RmspropBnb8bit,
    /// bitsandbytes `RMSprop32bit`.
    #[serde(rename = "rmsprop_bnb_32bit")]
    RmspropBnb32bit,
    /// torchao's `AdamW8bit`, whose step is compiled.
    #[serde(rename = "adamw_torch_8bit")]
    AdamwTorch8bit,
    /// torchao's `AdamW4bit` in blocks of 256, as transformers makes it (trainer_optimizer.py, `_get_torchao_optimizer`).
    #[serde(rename = "adamw_torch_4bit")]
    AdamwTorch4bit,
    /// torchao's `AdamW4bit` in its own blocks of 128, as Axolotl's word means it.
    #[serde(rename = "ao_adamw_4bit")]
    AoAdamw4bit,
    /// Lion, one momentum per weight.
    Lion,
    /// AdamW without a schedule, whose weights are averages of its own (`schedulefree.AdamWScheduleFree`, foreach).
    ScheduleFreeAdamw,
    /// `schedulefree.RAdamScheduleFree`, foreach.
    ScheduleFreeRadam,
    /// `schedulefree.SGDScheduleFree`, foreach.
    ScheduleFreeSgd,
    /// torch-optimi's `StableAdamW`, with Triton.
    StableAdamw,
    /// grokadamw's `GrokAdamW`: states on the host.
    Grokadamw,
    /// AdamATan2: AdamW whose step is an arc tangent, as adam-atan2's fused kernel runs it.
    AdamAtan2,
    /// `torch.optim.Muon` for matrices, AdamW for the rest.
    Muon,
    /// LOMO (lomo-optim), which steps in a backward pass of its own.
    Lomo,
    /// AdaLomo (lomo-optim): the same with Adafactor's variances.
    Adalomo,
    /// `pytorch_optimizer.SOAP` (4.1): Adam in the eigenvectors of Shampoo's preconditioners.
    Soap,
    /// `pytorch_optimizer.Shampoo` (4.1), with a singular value decomposition of each preconditioner in every step.
    Shampoo,
    /// GaLore's AdamW (galore-torch), on gradients projected by their singular vectors.
    GaloreAdamw,
    /// GaLore's AdamW in 8 bits, over bitsandbytes.
    #[serde(rename = "galore_adamw_8bit")]
    GaloreAdamw8bit,
    /// GaLore's Adafactor (galore-torch), with fp32 variances of the projected gradients.
    GaloreAdafactor,
    /// APOLLO's AdamW (apollo-torch), on gradients projected at random.
    ApolloAdamw,
}

impl OptimizerKind {
    /// Whether it projects the gradients of linear layers into a low rank.
    pub const fn is_low_rank(self) -> bool {
        matches!(self, Self::GaloreAdamw | Self::GaloreAdamw8bit | Self::GaloreAdafactor | Self::ApolloAdamw)
    }

    /// Whether bitsandbytes has it, whose states are no parameter's sizes.
    pub const fn is_bitsandbytes(self) -> bool {
        matches!(
            self,
            Self::Adamw8bit
                | Self::PagedAdamw8bit
                | Self::PagedAdamw32bit
                | Self::Lion8bit
                | Self::Lion32bit
                | Self::PagedLion8bit
                | Self::PagedLion32bit
                | Self::Ademamix
                | Self::Ademamix8bit
                | Self::PagedAdemamix32bit
                | Self::PagedAdemamix8bit
                | Self::RmspropBnb8bit
                | Self::RmspropBnb32bit
                | Self::GaloreAdamw8bit
        )
    }

    /// Whether one step goes through the parameters of all groups, with variables and tables that are the next group's too.
    pub const fn walks_groups(self) -> bool {
        self.is_low_rank() || self.is_bitsandbytes() || matches!(self, Self::TransformersAdafactor)
    }

    /// Whether it steps in a backward pass of its own.
    pub const fn fuses_backward(self) -> bool {
        matches!(self, Self::Lomo | Self::Adalomo)
    }

    /// Whether it preconditions gradients by the sides of each matrix.
    pub const fn preconditions(self) -> bool {
        matches!(self, Self::Soap | Self::Shampoo)
    }

    /// Whether it was measured on whole parameters alone: on one GPU and under DDP.
    pub const fn needs_whole(self) -> bool {
        let of_bitsandbytes = self.is_bitsandbytes()
            && !matches!(self, Self::Adamw8bit | Self::PagedAdamw8bit | Self::PagedAdamw32bit | Self::GaloreAdamw8bit);
        of_bitsandbytes
            || self.is_compiled()
            || matches!(
                self,
                Self::TransformersAdafactor
                    | Self::Rmsprop
                    | Self::Adagrad
                    | Self::ScheduleFreeRadam
                    | Self::ScheduleFreeSgd
                    | Self::StableAdamw
                    | Self::Grokadamw
            )
            || self.fuses_backward()
            || self.preconditions()
    }

    /// Whether its kernels take gradients in bf16.
    pub const fn takes_bf16(self) -> bool {
        !matches!(self, Self::RmspropBnb8bit | Self::RmspropBnb32bit)
    }

    /// Whether `weight_decay` is added to a copy of the gradients, and does not shrink the weights in place.
    pub const fn adds_decay(self) -> bool {
        matches!(self, Self::Adam | Self::Sgd | Self::SgdMomentum | Self::Rmsprop | Self::Adagrad)
    }

    /// What `optim` means where the same word is a class of transformers' own.
    #[must_use]
    pub const fn in_trainer(self) -> Self {
        match self {
            Self::Adafactor => Self::TransformersAdafactor,
            other => other,
        }
    }

    /// Whether `torch.compile` compiles its step (torchao's).
    pub const fn is_compiled(self) -> bool {
        matches!(self, Self::AdamwTorch8bit | Self::AdamwTorch4bit | Self::AoAdamw4bit)
    }
}
