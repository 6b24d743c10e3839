//! Tensors made from nothing or from several.

use std::ops::Range;
use std::rc::Rc;

use tonnage_torch::{Argument, Operator, operator};

use crate::dtype::DType;
use crate::precision::scalar_type;
use crate::tensor::{Context, Tensor, ints, or_stop};

fn made(context: &Rc<Context>, operator: &'static Operator, arguments: &[Argument<'_>]) -> Tensor {
    Tensor::of(context, or_stop(context.torch.call(operator, arguments).and_then(|made| made.tensor())))
}

fn int(number: u64) -> Argument<'static> {
    Argument::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `arange(count)`, int64.
pub(crate) fn arange(context: &Rc<Context>, count: u64) -> Tensor {
    made(context, operator!("arange"), &[int(count), Argument::None, Argument::None, context.device.into()])
}

/// `arange(start, end)`, int64.
pub(crate) fn arange_from(context: &Rc<Context>, range: Range<u64>) -> Tensor {
    let arguments = [int(range.start), int(range.end), Argument::None, Argument::None, context.device.into()];
    made(context, operator!("arange", "start"), &arguments)
}

/// `torch.empty(sizes, dtype=dtype)`
pub(crate) fn empty(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    let arguments = [ints(sizes), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("empty", "memory_format"), &arguments)
}

/// `torch.full(sizes, number, dtype=dtype)`
pub(crate) fn filled(context: &Rc<Context>, sizes: &[u64], number: f64, dtype: DType) -> Tensor {
    let arguments = [ints(sizes), number.into(), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("full"), &arguments)
}

/// Ones on the diagonal of a [count, count] matrix (`torch.eye`).
pub(crate) fn eye(context: &Rc<Context>, count: u64, dtype: DType) -> Tensor {
    let arguments = [int(count), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("eye"), &arguments)
}

/// `torch.ones(sizes, dtype=dtype)`
pub(crate) fn ones(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    let arguments = [ints(sizes), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("ones"), &arguments)
}

/// `torch.rand(sizes, dtype=dtype)`
pub(crate) fn rand(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    let arguments = [ints(sizes), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("rand"), &arguments)
}

/// `torch.zeros(sizes, dtype=dtype)`
pub(crate) fn zeros(context: &Rc<Context>, sizes: &[u64], dtype: DType) -> Tensor {
    let arguments = [ints(sizes), scalar_type(dtype).into(), Argument::None, context.device.into()];
    made(context, operator!("zeros"), &arguments)
}

/// `arange(0, end, step)` in fp32
pub(crate) fn arange_floats(context: &Rc<Context>, end: u64, step: u64) -> Tensor {
    let dtype = scalar_type(DType::Float32).into();
    let arguments = [int(0), int(end), int(step), dtype, Argument::None, context.device.into()];
    made(context, operator!("arange", "start_step"), &arguments)
}

/// `new_ones((), dtype=torch.bool)`
pub(crate) fn true_scalar(context: &Rc<Context>) -> Tensor {
    ones(context, &[], DType::Bool)
}

impl Tensor {
    /// `number ** self`
    pub(crate) fn power_of(&self, number: f64) -> Tensor {
        made(self.context(), operator!("pow", "Scalar"), &[number.into(), self.into()])
    }
}

/// A number of the host on the device.
pub(crate) fn number_from_host(context: &Rc<Context>, _op: &'static str, number: f64, dtype: DType) -> Tensor {
    Tensor::of_numbers(context, &[number], &[], dtype)
}

/// `where(condition, kept, number)`
pub(crate) fn where_number(condition: &Tensor, kept: Tensor, number: f64, _dtype: DType) -> Tensor {
    condition.run(operator!("where", "ScalarOther"), [(&kept).into(), number.into()])
}

/// `tensor[indices]`; `None` is a full range.
pub(crate) fn index(tensor: &Tensor, _sizes: &[u64], indices: &[Option<&Tensor>]) -> Tensor {
    let indices = indices.iter().map(|index| index.map(Tensor::inner));
    tensor.run(operator!("index", "Tensor"), [Argument::optional_tensors(indices)])
}

/// `cat(tensors, dim=at)`
pub(crate) fn cat(tensors: &[&Tensor], at: usize) -> Tensor {
    let parts = Argument::tensors(tensors.iter().map(|tensor| tensor.inner()));
    made(tensors[0].context(), operator!("cat"), &[parts, int(at as u64)])
}

/// Both beside each other in the last dimension, in the first's dtype.
pub(crate) fn copied_beside(first: &Tensor, second: &Tensor) -> Tensor {
    cat(&[first, &second.to(first.dtype())], first.sizes().len() - 1)
}

/// `stack(tensors)` along a new first dimension; `None` of none.
pub(crate) fn stack(tensors: &[Tensor]) -> Option<Tensor> {
    let parts = Argument::tensors(tensors.iter().map(Tensor::inner));
    tensors.first().map(|first| made(first.context(), operator!("stack"), &[parts]))
}

/// `stack(pair, dim=-1)`
pub(crate) fn stack_last(pair: [&Tensor; 2]) -> Tensor {
    let parts = Argument::tensors(pair.iter().map(|tensor| tensor.inner()));
    made(pair[0].context(), operator!("stack"), &[parts, Argument::Int(-1)])
}
