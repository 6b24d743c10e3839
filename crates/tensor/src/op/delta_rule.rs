//! What transformers runs for layers with the gated delta rule where flash-linear-attention is not installed
//! (transformers/models/qwen3_next/modeling_qwen3_next.py): the rule in chunks.

use super::create::{ones, zeros};
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};

/// Tokens of a chunk.
const CHUNK: u64 = 64;

/// `torch_chunk_gated_delta_rule(query, key, value, g, beta, use_qk_l2norm_in_kernel=True)` without a state before or after it.
pub fn chunk_gated_delta_rule([query, key, value]: [&Tensor; 3], g: &Tensor, beta: &Tensor) -> Tensor {
    let (initial_dtype, sequence_length) = (query.dtype(), key.size(1));
    let heads_first = |x: &Tensor| x.transpose(1, 2).to_contiguous(DType::Float32);
    let [mut query, mut key, mut value, mut beta, mut decay] = [query, key, value, beta, g].map(heads_first);
    query = l2norm(&query);
    key = l2norm(&key);
    query = query.mul_scalar((query.size(-1) as f64).powf(-0.5));
    let pad_size = (CHUNK - sequence_length % CHUNK) % CHUNK;
    [query, key, value] = [&query, &key, &value].map(|x| x.pad_tokens(pad_size));
    [beta, decay] = [&beta, &decay].map(|x| x.pad_tokens(pad_size));
    let num_chunks = (sequence_length + pad_size) / CHUNK;
    let mut v_beta = &value * &beta.unsqueeze(3);
    let mut k_beta = &key * &beta.unsqueeze(3);
    let chunked = |x: &Tensor| x.reshape(&[x.size(0), x.size(1), num_chunks, CHUNK, x.size(-1)]);
    [query, key, k_beta, v_beta] = [&query, &key, &k_beta, &v_beta].map(chunked);
    decay = decay.reshape(&[decay.size(0), decay.size(1), num_chunks, CHUNK]);
    let strictly_upper_mask = ones(query.context(), &[CHUNK, CHUNK], DType::Bool).triu();
    let cum_decay = decay.cumsum();
    let mut pairwise_decay = &cum_decay.unsqueeze(4) - &cum_decay.unsqueeze(3);
    pairwise_decay = pairwise_decay.masked_fill(&strictly_upper_mask, f64::NEG_INFINITY);
    pairwise_decay = pairwise_decay.exp();
    // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
    let within = |left: &Tensor| {
        let product = left.matmul(&key.transpose(3, 4));
        &product * &pairwise_decay
    };
    let ut_system = within(&k_beta);
    let intra_chunk_attn = within(&query);
    let decayed_k_beta = &k_beta * &cum_decay.exp().unsqueeze(4);
    let new_values = ut_system.solve_triangular(&v_beta);
    let k_cumdecay = ut_system.solve_triangular(&decayed_k_beta);
    let state = [query.size(0), query.size(1), key.size(-1), value.size(-1)];
    let last_recurrent_state = zeros(query.context(), &state, DType::Float32);
    let mut core_attn_out = new_values.map("zeros_like.default", new_values.dtype());
    query = &query * &cum_decay.exp().unsqueeze(4);
    key = {
        let rest = {
            let left = &cum_decay.slice(3, CHUNK - 1..CHUNK) - &cum_decay;
            left.exp()
        };
        &key * &rest.unsqueeze(4)
    };
    let chunk_decay = cum_decay.select(3, CHUNK - 1).exp().unsqueeze(3).unsqueeze(4);
    let chunks = Chunks { query, key, intra_chunk_attn, new_values, k_cumdecay, chunk_decay };
    let mut of_last_chunk = [None, None];
    core_attn_out = chunks.scan(core_attn_out, last_recurrent_state, &mut of_last_chunk);
    core_attn_out = core_attn_out.reshape(&[state[0], state[1], num_chunks * CHUNK, state[3]]);
    core_attn_out = if pad_size == 0 { core_attn_out.alias_all() } else { core_attn_out.slice(2, 0..sequence_length) };
    core_attn_out.transpose(1, 2).to_contiguous(initial_dtype)
}

/// What the scan over chunks reads, [rows, heads, chunks, ...] each.
struct Chunks {
    query: Tensor,
    key: Tensor,
    intra_chunk_attn: Tensor,
    new_values: Tensor,
    k_cumdecay: Tensor,
    chunk_decay: Tensor,
}

impl Chunks {
    /// The second phase, one chunk after the other: `core_attn_out` with what each attends to. Python's variables `v_new` and
    /// `inter_chunk_attn` live until those of the next chunk are there, and the last ones on in `held`.
    fn scan(
        &self,
        mut core_attn_out: Tensor,
        mut last_recurrent_state: Tensor,
        held: &mut [Option<Tensor>; 2],
    ) -> Tensor {
        let [values_of_chunk, attended_before] = held;
        for i in 0..self.new_values.size(2) {
            let v_new = values_of_chunk.insert({
                let values = self.new_values.select(2, i);
                let read = self.k_cumdecay.select(2, i).matmul(&last_recurrent_state);
                &values - &read
            });
            let inter_chunk_attn = attended_before.insert(self.query.select(2, i).matmul(&last_recurrent_state));
            core_attn_out = {
                let attended = {
                    let within_chunk = self.intra_chunk_attn.select(2, i).matmul(v_new);
                    &*inter_chunk_attn + &within_chunk
                };
                core_attn_out.set_selected(2, i, &attended)
            };
            last_recurrent_state = {
                let kept = &last_recurrent_state * &self.chunk_decay.select(2, i);
                let update = self.key.select(2, i).transpose(2, 3).matmul(v_new);
                &kept + &update
            };
        }
        core_attn_out
    }
}

/// `x * rsqrt((x * x).sum(-1) + eps)`
fn l2norm(x: &Tensor) -> Tensor {
    let inv_norm = {
        let shifted = {
            let squares = {
                let product = x * x;
                product.sum_last()
            };
            squares.add_scalar(1e-6)
        };
        shifted.rsqrt()
    };
    x * &inv_norm
}

impl Tensor {
    /// `self.to(dtype, memory_format=torch.contiguous_format)`: itself where it has the dtype, however it lies, unless it lies with its
    /// channels last (TensorConversions.cpp, `to_will_alias`).
    fn to_contiguous(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype {
            return self.clone();
        }
        let node = NodeBuilder::new("ToCopyBackward0", [self]);
        let source = self.dtype();
        let out = Tensor::empty(self.context(), "_to_copy.default", *self.sizes(), dtype);
        node.finish(out, move |grad| gradients![grad.to(source)])
    }

    /// `F.pad` by so many tokens at the end of dimension 2: a copy in any case, which keeps its strides where none are added.
    fn pad_tokens(&self, count: u64) -> Tensor {
        let node = NodeBuilder::new("ConstantPadNdBackward0", [self]);
        let (op, at, tokens) = ("constant_pad_nd.default", 2, self.size(2));
        let out = match count {
            0 => self.map(op, self.dtype()),
            _ => Tensor::empty(self.context(), op, self.sizes().with(at, tokens + count), self.dtype()),
        };
        node.finish(out, move |grad| gradients![grad.narrow_any(at, tokens).map(op, grad.dtype())])
    }

    /// `linalg.solve_triangular(self, right, upper=False, unitriangular=True)` of stacks of matrices of [`CHUNK`] rows
    /// (FunctionsManual.cpp, `linalg_solve_triangular_backward`).
    fn solve_triangular(&self, right: &Tensor) -> Tensor {
        let node = NodeBuilder::new("LinalgSolveTriangularBackward0", [self, right]);
        let needs_system = node.needs(0);
        let saved_system = node.save(self);
        let out = solve(self, right);
        let saved_result = node.save(&out);
        node.finish(out, move |grad| {
            let (system, result) = (saved_system.unpack(), saved_result.unpack());
            let right_grad = solve(&system, grad);
            let system_grad = needs_system.then(|| {
                let negated = {
                    let product = right_grad.matmul(&result.transpose(3, 4));
                    product.neg()
                };
                negated.map("tril.default", negated.dtype())
            });
            gradients![system_grad, right_grad]
        })
    }
}

/// cuBLAS is given so many systems one by one (BatchLinearAlgebra.cpp, `triangular_solve_kernel`), more of them by their addresses.
const SYSTEMS_ONE_BY_ONE: u64 = 8;

/// A result that is column-major, and the addresses of the systems and of their right sides.
fn solve(system: &Tensor, right: &Tensor) -> Tensor {
    let op = "linalg_solve_triangular.default";
    let rank = right.sizes().len();
    let swapped = Shape::new(right.sizes()).swapped(rank - 2, rank - 1);
    let layout = crate::tensor::Layout::contiguous(swapped).transposed(rank - 2, rank - 1);
    let out = Tensor::empty_strided(right.context(), op, layout, right.dtype());
    let systems = system.numel() / (CHUNK * CHUNK);
    let addresses = || (systems > SYSTEMS_ONE_BY_ONE).then(|| Tensor::scratch(right.context(), op, 8 * systems));
    let _addresses = [addresses(), addresses()];
    out
}
