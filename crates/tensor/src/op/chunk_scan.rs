//! What transformers runs for Mamba-2's state spaces where mamba-ssm is not installed (transformers/models/mamba2/modeling_mamba2.py):
//! the scan in chunks, whose products stand side by side before they are summed, and the step of one token.

use std::rc::Rc;

use super::create::ones;
use super::join::cat;
use super::view::{channels_last_layout, is_channels_last};
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Tensor, gradients};

/// What enters the scan: [rows, tokens, heads, width], steps by heads, a decay of each head, and two of [rows, tokens, groups, state].
pub struct ScanInputs<'a> {
    pub hidden_states: &'a Tensor,
    pub dt: &'a Tensor,
    pub a: &'a Tensor,
    pub b: &'a Tensor,
    pub c: &'a Tensor,
    pub d: &'a Tensor,
    pub dt_bias: &'a Tensor,
}

/// `mamba2_chunk_scan(..., dt_softplus=True)`: the output and the last state. All that Python's variables hold lives until it returns.
pub fn chunk_scan(inputs: &ScanInputs, chunk_size: u64, initial_states: Option<&Tensor>) -> (Tensor, Tensor) {
    let [batch_size, sequence_length, num_heads, head_dim] = [0, 1, 2, 3].map(|at| inputs.hidden_states.size(at));
    let dt = bounded_steps(inputs);
    let mut hidden_states = inputs.hidden_states.float();
    let mut b = repeat_groups(inputs.b, num_heads);
    let mut c = repeat_groups(inputs.c, num_heads);
    let pad_size = (chunk_size - sequence_length % chunk_size) % chunk_size;
    let d_residual = &inputs.d.unsqueeze(1) * &hidden_states.pad_tokens_by(pad_size);
    hidden_states = &hidden_states * &dt.unsqueeze(3).float();
    let mut a = &inputs.a.to(hidden_states.dtype()) * &dt.float();
    [hidden_states, a, b, c] = [&hidden_states, &a, &b, &c].map(|x| x.reshape_into_chunks(pad_size, chunk_size));
    a = a.permute([0, 3, 1, 2]);
    let a_cumsum = a.cumsum();
    let chunks = Chunks { hidden_states, a_cumsum, b, c };
    let (y_diag, _held) = chunks.attend_within(&a);
    let (states, _decayed) = chunks.sum_states();
    let (states, final_state, _passed) = chunks.pass_states(states, initial_states);
    let (y_off, _read) = chunks.read_states(&states);
    let mut output = &y_diag + &y_off;
    output = output.reshape(&[batch_size, sequence_length + pad_size, num_heads, head_dim]);
    output = &output + &d_residual;
    if pad_size > 0 {
        output = output.slice(1, 0..sequence_length);
    }
    (output, final_state)
}

/// What the scan reads, [rows, chunks, tokens, heads, ...] each but the sums of decays, [rows, heads, chunks, tokens].
struct Chunks {
    hidden_states: Tensor,
    a_cumsum: Tensor,
    b: Tensor,
    c: Tensor,
}

impl Chunks {
    /// `Y_diag`, and what is held of its making.
    fn attend_within(&self, a: &Tensor) -> (Tensor, [Tensor; 3]) {
        let l = segment_sum(a.clone()).exp();
        let g = {
            let product = &self.c.unsqueeze(3) * &self.b.unsqueeze(2);
            product.sum_over(5)
        };
        let m = {
            let product = &g.unsqueeze(5) * &l.permute([0, 2, 3, 4, 1]).unsqueeze(5);
            product.sum_over(5)
        };
        let product = &m.unsqueeze(5) * &self.hidden_states.unsqueeze(2);
        (product.sum_over(3), [l, g, m])
    }

    /// The state that each chunk adds.
    fn sum_states(&self) -> (Tensor, [Tensor; 2]) {
        let decay_states = {
            let left = &self.a_cumsum.slice_last_token() - &self.a_cumsum;
            left.exp()
        };
        let b_decay = &self.b * &decay_states.permute([0, 2, 3, 1]).unsqueeze(4);
        let product = &b_decay.unsqueeze(4) * &self.hidden_states.unsqueeze(5);
        (product.sum_over(2), [decay_states, b_decay])
    }

    /// The state before each chunk, and behind the last.
    fn pass_states(&self, mut states: Tensor, initial: Option<&Tensor>) -> (Tensor, Tensor, [Tensor; 2]) {
        let previous_states = match initial {
            Some(states) => states.unsqueeze(1),
            None => states.narrow(1, 0..1).zeros_like(),
        };
        states = cat(&[&previous_states, &states], 1);
        let last = self.a_cumsum.size(3) - 1;
        let decay_chunk = {
            let sums = segment_sum(self.a_cumsum.select(3, last).pad_first());
            sums.exp().transpose(1, 3)
        };
        let new_states = {
            let product = &decay_chunk.unsqueeze(4).unsqueeze(5) * &states.unsqueeze(2);
            product.sum_over(1)
        };
        let chunks = new_states.size(1) - 1;
        let final_state = new_states.select(1, chunks);
        (new_states.slice(1, 0..chunks), final_state, [previous_states, decay_chunk])
    }

    /// `Y_off`
    fn read_states(&self, states: &Tensor) -> (Tensor, [Tensor; 2]) {
        let state_decay_out = self.a_cumsum.exp();
        let c_times_states = &self.c.unsqueeze(4) * &states.unsqueeze(2);
        let summed = c_times_states.sum_over(5);
        let y_off = &summed * &state_decay_out.permute([0, 2, 3, 1]).unsqueeze(4);
        (y_off, [state_decay_out, c_times_states])
    }
}

/// `clamp(softplus(dt + dt_bias), ...)`
fn bounded_steps(inputs: &ScanInputs) -> Tensor {
    let mut dt = inputs.dt + &inputs.dt_bias.to(inputs.dt.dtype());
    dt = dt.softplus();
    dt.clamp_both(f64::INFINITY)
}

/// `x.float().repeat_interleave(num_heads // num_groups, dim=2)`
fn repeat_groups(x: &Tensor, num_heads: u64) -> Tensor {
    let s = *x.sizes();
    let repeated = x.float().unsqueeze(3).expand(&[s[0], s[1], s[2], num_heads / s[2], s[3]]).clone_contiguous();
    repeated.view(&[s[0], s[1], num_heads, s[3]])
}

/// `segment_sum`: sums over every stretch of the last dimension, in a matrix of them.
fn segment_sum(x: Tensor) -> Tensor {
    let (last, chunk_size, context) = (x.sizes().len(), x.size(-1), Rc::clone(x.context()));
    let new_mask = || ones(&context, &[chunk_size, chunk_size], DType::Bool).tril();
    let mut input = x.unsqueeze(last).expand(&x.sizes().inserted(last, chunk_size));
    drop(x);
    let mut mask = new_mask();
    input = input.masked_fill(&mask.bitwise_not(), 0.0);
    let tensor_segsum = input.cumsum_along(last - 1);
    mask = new_mask();
    tensor_segsum.masked_fill(&mask.bitwise_not(), f64::NEG_INFINITY)
}

impl Tensor {
    /// `pad_tensor_by_size`: so many more tokens, a copy in any case. Four dimensions stay channels last.
    fn pad_tokens_by(&self, count: u64) -> Tensor {
        let node = NodeBuilder::new("ConstantPadNdBackward0", [self]);
        let (op, tokens) = ("constant_pad_nd.default", self.size(1));
        let sizes = self.sizes().with(1, tokens + count);
        let out = match count {
            0 => self.map(op, self.dtype()),
            _ if is_channels_last(self.layout()) => {
                Tensor::empty_strided(self.context(), op, channels_last_layout(&sizes), self.dtype())
            }
            _ => Tensor::empty(self.context(), op, sizes, self.dtype()),
        };
        node.finish(out, move |grad| gradients![grad.narrow_any(1, tokens).map(op, grad.dtype())])
    }

    /// `F.pad(self, (1, 0))` of three dimensions
    fn pad_first(&self) -> Tensor {
        let node = NodeBuilder::new("ConstantPadNdBackward0", [self]);
        let (op, numbers) = ("constant_pad_nd.default", self.size(2));
        let out = Tensor::empty(self.context(), op, self.sizes().with(2, numbers + 1), self.dtype());
        node.finish(out, move |grad| gradients![grad.narrow_any(2, numbers).map(op, grad.dtype())])
    }

    fn reshape_into_chunks(&self, pad_size: u64, chunk_size: u64) -> Tensor {
        let padded = self.pad_tokens_by(pad_size);
        padded.reshape(&padded.sizes().with(1, padded.size(1) / chunk_size).inserted(2, chunk_size))
    }

    /// `self[:, :, :, -1:]`
    fn slice_last_token(&self) -> Tensor {
        let last = self.size(3);
        if last == 1 { self.alias_all() } else { self.slice(3, last - 1..last) }
    }
}

/// `mamba2_selective_state_update(..., dt_softplus=True)` of one token, whose hidden states are [rows, heads, width] and steps [rows, 1,
/// heads]; `gate` is `z`.
pub fn update_state(state: &Tensor, inputs: &ScanInputs, gate: Option<&Tensor>) -> Tensor {
    let hidden_states = inputs.hidden_states;
    let [rows, heads, width] = [0, 1, 2].map(|at| hidden_states.size(at));
    let by_width = |x: &Tensor| x.unsqueeze(1).expand(&[heads, width]);
    let mut dt = inputs.dt.transpose(1, 2).expand(&[rows, heads, width]);
    dt = &dt + &by_width(inputs.dt_bias).to(dt.dtype());
    dt = dt.softplus();
    dt = dt.unsqueeze(3);
    let states = inputs.b.size(2);
    let da = {
        let exponent = {
            let steps = dt.float();
            &steps * &inputs.a.unsqueeze(1).unsqueeze(2).expand(&[heads, width, states])
        };
        exponent.exp()
    };
    let of_heads = |x: &Tensor| {
        let groups = x.size(1);
        x.reshape(&[rows, groups, 1, states]).expand(&[rows, groups, heads / groups, states]).contiguous()
    };
    let b = of_heads(inputs.b).reshape(&[rows, heads, 1, states]);
    let db = &dt * &b;
    let dbx = &db * &hidden_states.unsqueeze(3);
    let mut ssm_states = {
        let kept = state * &da;
        &kept + &dbx
    };
    state.copy_from(&ssm_states.to(state.dtype()));
    let c = of_heads(inputs.c).reshape(&[rows, heads, states]);
    ssm_states = ssm_states.to(c.dtype());
    let mut out = ssm_states
        .view(&[rows * heads, width, states])
        .matmul(&c.view(&[rows * heads, states, 1]))
        .view(&[rows, heads, width]);
    out = {
        let skipped = hidden_states * &by_width(inputs.d);
        (&out + &skipped).to(out.dtype())
    };
    if let Some(gate) = gate {
        out = &out * &gate.silu();
    }
    out.to(hidden_states.dtype())
}
