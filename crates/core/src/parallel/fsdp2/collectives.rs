//! What gathering and reducing allocate, and on which stream (_fsdp_collectives.py).

use crate::dtype::DType;
use crate::op::scratch::jagged::{chunk_cat_table, split_copy_table};
use crate::tensor::{Scratch, Shape, Tensor};
use crate::trace::Category;

use super::group::ParamGroup;
use super::param::FsdpParam;

/// Side streams of a sharded model that allocate.
pub(super) const SIDE_STREAMS: u8 = 3;

/// `reduce_scatter_stream`, behind `all_gather_copy_in_stream`: side streams are numbered in the order that they first allocate, and on one
/// rank nothing is gathered before.
fn reduce_scatter_stream(group: &ParamGroup) -> u8 {
    group.comm.first_side_stream + u8::from(group.mesh.world_size != 1)
}

/// The gathered shards of a group, on this stream. Shards that are cast are first put together in the dtype that is gathered.
pub(super) fn foreach_all_gather(group: &ParamGroup, stream: u8) -> Tensor {
    let context = &group.comm.context;
    let _stream = context.enter_stream(stream);
    let _category = context.enter_category(Category::Communication);
    let flat = |numel, dtype| Tensor::empty(context, "FSDP::all_gather", Shape::new(&[numel]), dtype);
    let from_host = group.params.iter().filter(|param| param.cpu_offload.is_some());
    let _from_host: Vec<Tensor> = from_host.map(|param| param.all_gather_input(context)).collect();
    // Those from the host are cast one by one.
    let cast = |param: &&FsdpParam| param.precision.param_dtype.is_some() && param.cpu_offload.is_none();
    let to_cast = group.params.iter().filter(cast).map(|param| param.sharded_data().numel());
    let cast_dtype = group.params.iter().filter(cast).find_map(|param| param.precision.param_dtype);
    let _cast_inputs = cast_dtype.map(|dtype| flat(total(to_cast), dtype));
    let bytes =
        total(group.params.iter().map(FsdpParam::gathered_bytes_per_rank)).saturating_mul(group.mesh.world_size);
    let dtype = gathered_dtype(group);
    flat(bytes / dtype.size(), dtype)
}

/// Parameters of several dtypes are gathered as bytes.
fn gathered_dtype(group: &ParamGroup) -> DType {
    let mut dtypes = group.params.iter().map(|param| param.unsharded.dtype());
    let first = dtypes.next().unwrap_or(DType::Uint8);
    if dtypes.all(|dtype| dtype == first) { first } else { DType::Uint8 }
}

/// Memory for the unsharded parameters, and the kernel that fills it.
pub(super) fn foreach_all_gather_copy_out(group: &ParamGroup) {
    let context = &group.comm.context;
    group.params.iter().for_each(FsdpParam::alloc_all_gather_output);
    let pieces: Vec<u64> = group.params.iter().map(FsdpParam::gathered_bytes_per_rank).collect();
    let table = context.ask(|device| split_copy_table(&pieces, group.mesh.world_size, device));
    let _table = Tensor::scratch(context, "_to_copy.default", table);
}

fn all_reduce_stream(group: &ParamGroup) -> u8 {
    reduce_scatter_stream(group) + 1
}

/// Reduces the gradients, if there are any; they are views of one tensor after that. Returns the reduce-scatter input and, with
/// HSDP, what is all-reduced.
pub(super) fn foreach_reduce(
    group: &ParamGroup,
    params: &[&FsdpParam],
    unsharded_grads: Vec<Tensor>,
) -> Option<(Tensor, Option<Tensor>)> {
    let context = &group.comm.context;
    let world_size = group.mesh.world_size;
    // The variable of a loop over the gradients keeps the last one; on one rank there is no loop.
    let _unsharded_grad = unsharded_grads.last().filter(|_| world_size > 1).cloned();
    // Parameters that are trained together have the same dtypes.
    let precision = params.first()?.precision;
    let grad_dtype = unsharded_grads.first().map_or(precision.orig_dtype, Tensor::dtype);
    let reduce_dtype = precision.reduce_dtype.unwrap_or(grad_dtype);
    let numel = total(params.iter().map(|param| param.padded_unsharded_numel()));
    let flat = |numel| Tensor::empty(context, "FSDP::post_backward_reduce", Shape::new(&[numel]), reduce_dtype);
    let reduce_scatter_input = {
        let _category = context.enter_category(Category::Communication);
        flat(numel)
    };
    chunk_cat(group, params, &unsharded_grads, reduce_dtype);
    drop(unsharded_grads);
    let _stream = context.enter_stream(reduce_scatter_stream(group));
    let _category = context.enter_category(Category::Gradient);
    let mut reduce_output = flat(numel / world_size);
    let all_reduce_input = group.mesh.replicates.then(|| reduce_output.clone());
    let _stream = group.mesh.replicates.then(|| context.enter_stream(all_reduce_stream(group)));
    reduce_output = reduce_output.to(precision.orig_dtype);
    params.iter().for_each(|param| param.accumulate_sharded_grad(&reduce_output));
    Some((reduce_scatter_input, all_reduce_input))
}

/// `_chunk_cat` of the gradients into the reduce-scatter input. A kernel with a table does it for equal dtypes and from
/// bf16 to fp32; else gradients that do not divide are padded first (TensorShape.cu, `_chunk_cat_out_cuda`).
fn chunk_cat(group: &ParamGroup, params: &[&FsdpParam], grads: &[Tensor], reduce_dtype: DType) {
    let (context, world_size) = (&group.comm.context, group.mesh.world_size);
    let has_kernel = |dtype| dtype == reduce_dtype || (dtype, reduce_dtype) == (DType::Bfloat16, DType::Float32);
    if grads.first().is_some_and(|grad| has_kernel(grad.dtype())) {
        let piece = |param: &&FsdpParam| param.sharded_data().numel().saturating_mul(reduce_dtype.size());
        let pieces: Vec<u64> = params.iter().map(piece).collect();
        drop(Tensor::scratch(context, "_to_copy.default", chunk_cat_table(&pieces)));
        return;
    }
    let uneven = params.iter().zip(grads).filter(|(_, grad)| grad.size(0) % world_size != 0);
    let padded = uneven.map(|(param, grad)| {
        let bytes = param.padded_unsharded_numel().saturating_mul(grad.dtype().size());
        Tensor::scratch(context, "new_zeros.default", bytes)
    });
    drop(padded.collect::<Vec<Scratch>>());
}

fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}
