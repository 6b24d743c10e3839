//! Kernels of other packages, which are not PyTorch's operators: jobs that ask for them are refused before anything runs.

use tonnage_torch::TorchError;

use crate::tensor::{Tensor, stop};

fn refused(kernel: &str) -> ! {
    stop(TorchError::of_program(format!("{kernel} is a kernel of another package, which is not run here")))
}

impl Tensor {
    pub(crate) fn liger_rms_norm(&self, _weight: &Tensor, _in_place: bool) -> Tensor {
        refused("Liger's RMS norm")
    }

    pub(crate) fn fast_rms_layernorm(&self, _weight: &Tensor) -> Tensor {
        refused("fms-acceleration's RMS norm")
    }

    pub(crate) fn fast_cross_entropy(&self, _labels: &Tensor, _num_items: Option<&Tensor>) -> Tensor {
        refused("fms-acceleration's cross-entropy")
    }

    pub(crate) fn depthwise_conv1d(&self, _weight: &Tensor, _bias: Option<&Tensor>, _padding: u64) -> Tensor {
        refused("a convolution of each channel")
    }

    pub(crate) fn matmul_stack(&self, _other: &Tensor) -> Tensor {
        refused("what goes before Mamba's scan")
    }

    pub(crate) fn log_buckets(&self, _bucket_size: u64, _max_position: u64) -> Tensor {
        refused("a function in TorchScript")
    }

    pub(crate) fn liger_act_mul(&self, _up: &Tensor) -> Tensor {
        refused("Liger's gated activation")
    }
}

pub(crate) fn liger_rope(_q: &Tensor, _k: &Tensor, _cos: &Tensor, _sin: &Tensor) -> (Tensor, Tensor) {
    refused("Liger's rotary embedding")
}

pub(crate) fn fast_rope_embedding(_q: &Tensor, _k: &Tensor, _cos: &Tensor, _sin: &Tensor) -> (Tensor, Tensor) {
    refused("fms-acceleration's rotary embedding")
}

pub(crate) fn upcast_linear_cross_entropy(_hidden: &Tensor, _weight: &Tensor, _target: &Tensor) -> Tensor {
    refused("fms-acceleration's fused cross-entropy")
}

pub(crate) fn chunk_gated_delta_rule(_states: [&Tensor; 3], _g: &Tensor, _beta: &Tensor) -> Tensor {
    refused("the gated delta rule")
}

/// What enters Mamba-2's scan.
#[expect(dead_code, reason = "nothing is computed of it here")]
pub(crate) struct ScanInputs<'a> {
    pub hidden_states: &'a Tensor,
    pub dt: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub c: &'a Tensor,
    pub d: &'a Tensor,
    pub dt_bias: &'a Tensor,
}

pub(crate) fn chunk_scan(_inputs: &ScanInputs, _chunk_size: u64, _states: Option<&Tensor>) -> (Tensor, Tensor) {
    refused("Mamba-2's scan")
}

pub(crate) fn update_state(_state: &Tensor, _inputs: &ScanInputs, _gate: Option<&Tensor>) -> Tensor {
    refused("Mamba-2's step")
}

/// What enters Mamba's scan.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "nothing is computed of it here")]
pub(crate) struct SelectiveInputs<'a> {
    pub hidden_states: &'a Tensor,
    pub dt: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub c: &'a Tensor,
    pub d: &'a Tensor,
    pub gate: &'a Tensor,
    pub dt_bias: &'a Tensor,
}

pub(crate) fn selective_scan(_inputs: &SelectiveInputs) -> (Tensor, Tensor) {
    refused("Mamba's scan")
}

pub(crate) fn update_selective_state(_state: &Tensor, _inputs: &SelectiveInputs) -> Tensor {
    refused("Mamba's step")
}

pub(crate) fn fused_linear_cross_entropy(_hidden: &Tensor, _weight: &Tensor, _target: &Tensor) -> Tensor {
    refused("Liger's cross-entropy")
}

pub(crate) fn package_flash_attn_func(
    _query: &Tensor,
    _key: &Tensor,
    _value: &Tensor,
    _dropout: f64,
    _is_causal: bool,
) -> Tensor {
    refused("flash_attn_func")
}
