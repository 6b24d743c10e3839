//! What transformers runs for Mamba's state spaces where neither mamba-ssm nor mambapy is installed
//! (transformers/models/mamba/modeling_mamba.py): a loop over the tokens, and the step of one.

use super::create::zeros;
use super::join::stack_along;
use crate::tensor::{Shape, Tensor, cast_arguments};

/// What enters the scan: [rows, channels, tokens], steps alike, a decay of [channels, states], and two of [rows, tokens, states].
#[derive(Clone, Copy)]
pub struct SelectiveInputs<'a> {
    pub hidden_states: &'a Tensor,
    pub dt: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub c: &'a Tensor,
    pub d: &'a Tensor,
    pub gate: &'a Tensor,
    pub dt_bias: &'a Tensor,
}

/// `mamba_selective_scan(..., delta_softplus=True)`: the output and the last state. All that Python's variables hold lives until it
/// returns.
pub fn selective_scan(inputs: &SelectiveInputs) -> (Tensor, Tensor) {
    let SelectiveInputs { hidden_states, a, b, c, .. } = inputs;
    let input_dtype = hidden_states.dtype();
    let mut dt = inputs.dt + &inputs.dt_bias.to(inputs.dt.dtype()).unsqueeze(1);
    dt = dt.softplus();
    let discrete_a = {
        let exponent = &a.unsqueeze(0).unsqueeze(2) * &dt.unsqueeze(3);
        exponent.exp()
    };
    let discrete_b = &dt.unsqueeze(3) * &b.unsqueeze(1).float();
    let delta_b_u = &discrete_b * &hidden_states.unsqueeze(3).float();
    let sizes = [hidden_states.size(0), hidden_states.size(1), a.size(1)];
    let mut ssm_state = zeros(hidden_states.context(), &sizes, input_dtype);
    let mut scan_outputs = Vec::new();
    for index in 0..hidden_states.size(2) {
        ssm_state = {
            let kept = &discrete_a.select(2, index) * &ssm_state;
            &kept + &delta_b_u.select(2, index)
        };
        let scan_output = ssm_state.to(input_dtype).matmul(&c.select(1, index).unsqueeze(2));
        scan_outputs.push(scan_output.select(2, 0));
    }
    let mut scan_output = stack_along(&scan_outputs, 2).unwrap_or_else(|| ssm_state.clone());
    scan_output = {
        let skipped = *hidden_states * &inputs.d.unsqueeze(0).unsqueeze(2);
        &scan_output + &skipped
    };
    scan_output = &scan_output * &inputs.gate.silu();
    (scan_output, ssm_state)
}

/// `mamba_selective_state_update(..., dt_softplus=True)` of one token: hidden states, steps and gate are [rows, channels], `b` and `c`
/// [rows, states].
pub fn update_selective_state(state: &Tensor, inputs: &SelectiveInputs) -> Tensor {
    let hidden_states = inputs.hidden_states;
    let mut dt = inputs.dt + &inputs.dt_bias.to(inputs.dt.dtype());
    dt = dt.softplus();
    let da = {
        let exponent = &dt.float().unsqueeze(2) * &inputs.a.float();
        exponent.exp()
    };
    let db = &dt.float().unsqueeze(2) * &inputs.b.float().unsqueeze(1);
    let dbx = &db * &hidden_states.float().unsqueeze(2);
    let ssm_state = {
        let kept = &state.float() * &da;
        &kept + &dbx
    };
    state.copy_from(&ssm_state.to(state.dtype()));
    let mut out = ssm_state.to(inputs.c.dtype()).matmul(&inputs.c.unsqueeze(2)).squeeze(2);
    out = {
        let skipped = hidden_states * inputs.d;
        &out + &skipped
    };
    out = &out * &inputs.gate.silu();
    out.to(hidden_states.dtype())
}

impl Tensor {
    /// `self @ other` of a matrix and a stack of them (LinearAlgebra.cpp, `matmul`): where the matrix is trained, one product of all rows,
    /// whose transpose is copied.
    pub fn matmul_stack(&self, other: &Tensor) -> Tensor {
        let [matrix, stack] = cast_arguments([self, other]);
        let [rows, columns] = [stack.size(0), stack.size(2)];
        if matrix.requires_grad() {
            let folded = stack.transpose(1, 2).reshape(&[rows * columns, stack.size(1)]).mm(&matrix.t());
            let output = folded.unsafe_view(Shape::new(&[rows, columns, matrix.size(0)]));
            drop(folded);
            return output.transpose(1, 2).contiguous();
        }
        matrix.expand(&[rows, matrix.size(0), matrix.size(1)]).bmm(&stack)
    }
}
