//! What a loop keeps an average of its weights with (an exponential moving average, EMA).

use serde::{Deserialize, Serialize};

/// The class that averages, how it steps, and where its copy of the weights lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ema {
    /// Nothing averages the weights.
    #[default]
    Off,
    /// `torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(...))`, on the model's device.
    AveragedModel,
    /// The same with `device="cpu"`.
    AveragedModelCpu,
    /// diffusers' `EMAModel` on the device, a parameter at a time.
    EmaModel,
    /// `EMAModel(foreach=True)`: all differences at once.
    EmaModelForeach,
    /// `EMAModel` on the host between steps (`--offload_ema`).
    EmaModelOffload,
    /// `EMAModel(foreach=True)` on the host between steps.
    EmaModelForeachOffload,
}

impl Ema {
    /// Whether there is one.
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether diffusers' class averages.
    pub const fn is_ema_model(self) -> bool {
        self.is_on() && !matches!(self, Self::AveragedModel | Self::AveragedModelCpu)
    }

    /// Whether a step takes all parameters at once.
    pub const fn is_foreach(self) -> bool {
        matches!(self, Self::EmaModelForeach | Self::EmaModelForeachOffload)
    }

    /// Whether it comes to the device for a step alone.
    pub const fn is_offloaded(self) -> bool {
        matches!(self, Self::EmaModelOffload | Self::EmaModelForeachOffload)
    }

    /// Whether it lies on the host between steps.
    pub const fn is_on_host(self) -> bool {
        self.is_offloaded() || matches!(self, Self::AveragedModelCpu)
    }
}
