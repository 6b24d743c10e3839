//! Operators by name, as PyTorch's dispatcher knows them (native_functions.yaml), with their arguments and results.

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::device::Device;
use crate::error::{ErrorKind, TorchError};
use crate::scalar::ScalarType;
use crate::sys::{Handle, OperatorHandle, Torch};
use crate::tensor::Tensor;

/// An operator of `aten`, looked up once. Made by [`operator!`](crate::operator!).
#[derive(Debug)]
pub struct Operator {
    name: &'static str,
    overload: &'static str,
    handle: OnceLock<OperatorHandle>,
}

impl Operator {
    /// `add`, `Tensor` for `aten::add.Tensor`; the overload is empty where the schema has none.
    pub const fn new(name: &'static str, overload: &'static str) -> Self {
        Self { name, overload, handle: OnceLock::new() }
    }

    fn handle(&self, torch: &Torch) -> Result<OperatorHandle, TorchError> {
        if let Some(handle) = self.handle.get() {
            return Ok(*handle);
        }
        let found = torch.operator(self.name, self.overload)?;
        Ok(*self.handle.get_or_init(|| found))
    }
}

/// The operator `aten::name.overload`, looked up when it is first called: `operator!("add", "Tensor")`, `operator!("relu")`.
#[macro_export]
macro_rules! operator {
    ($name:literal) => {
        $crate::operator!($name, "")
    };
    ($name:literal, $overload:literal) => {{
        static OPERATOR: $crate::Operator = $crate::Operator::new($name, $overload);
        &OPERATOR
    }};
}

/// An argument, in the order of the operator's schema. What is left out at the end, or is `Default`, has the schema's default.
#[derive(Debug)]
#[non_exhaustive]
pub enum Argument<'a> {
    /// Python's `None`.
    None,
    /// The schema's default.
    Default,
    /// Lent for the call.
    Tensor(&'a Tensor),
    /// Also a dtype (`ScalarType::number`), a layout, a scalar.
    Int(i64),
    /// Also a scalar.
    Double(f64),
    /// Python's `bool`.
    Bool(bool),
    /// `int[]`: sizes, dimensions.
    Ints(SmallVec<[i64; 6]>),
    /// `float[]` and `Scalar[]`.
    Doubles(&'a [f64]),
    /// A schema's `bool[]`.
    Bools(SmallVec<[bool; 4]>),
    /// A schema's `Tensor[]`.
    Tensors(Handles<'a>),
    /// A schema's `Tensor?[]`, as an index has it.
    OptionalTensors(Handles<'a>),
    /// A schema's `str`.
    Text(&'a str),
    /// Where a result is made.
    Device(Device),
}

/// Handles of tensors that are lent for a call.
#[derive(Debug)]
pub struct Handles<'a> {
    handles: Vec<Handle>,
    lent: std::marker::PhantomData<&'a Tensor>,
}

impl<'a> Handles<'a> {
    fn of(tensors: impl Iterator<Item = Option<&'a Tensor>>) -> Self {
        let handles = tensors.map(|tensor| tensor.map_or(Handle::NONE, Tensor::handle)).collect();
        Self { handles, lent: std::marker::PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *const Handle {
        self.handles.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }
}

impl<'a> Argument<'a> {
    /// A `Tensor[]` of tensors that lie apart.
    pub fn tensors(tensors: impl IntoIterator<Item = &'a Tensor>) -> Self {
        Self::Tensors(Handles::of(tensors.into_iter().map(Some)))
    }

    /// A `Tensor?[]`, as an index has it.
    pub fn optional_tensors(tensors: impl IntoIterator<Item = Option<&'a Tensor>>) -> Self {
        Self::OptionalTensors(Handles::of(tensors.into_iter()))
    }

    /// An `int[]`, copied.
    pub fn ints(numbers: &[i64]) -> Self {
        Self::Ints(SmallVec::from_slice(numbers))
    }
}

impl<'a> From<&'a Tensor> for Argument<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'a> From<Option<&'a Tensor>> for Argument<'a> {
    fn from(tensor: Option<&'a Tensor>) -> Self {
        tensor.map_or(Self::None, Self::Tensor)
    }
}

impl From<i64> for Argument<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<f64> for Argument<'_> {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<bool> for Argument<'_> {
    fn from(on: bool) -> Self {
        Self::Bool(on)
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [Tensor]> for Argument<'a> {
    fn from(tensors: &'a [Tensor]) -> Self {
        Self::tensors(tensors)
    }
}

impl<const N: usize> From<[i64; N]> for Argument<'_> {
    fn from(numbers: [i64; N]) -> Self {
        Self::ints(&numbers)
    }
}

impl From<ScalarType> for Argument<'_> {
    fn from(scalar_type: ScalarType) -> Self {
        Self::Int(scalar_type.number())
    }
}

impl From<Device> for Argument<'_> {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

/// What an operator returned, one of several perhaps. Lists are flattened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// A tensor of its own.
    Tensor(Tensor),
    /// Python's `int`.
    Int(i64),
    /// Python's `float`.
    Double(f64),
    /// Python's `bool`.
    Bool(bool),
    /// Nothing, or an undefined tensor.
    None,
}

/// All that an operator returned, in order.
#[derive(Debug)]
pub struct Results {
    operator: &'static str,
    outputs: SmallVec<[Output; 2]>,
}

impl Results {
    fn missing(&self, wanted: &str) -> TorchError {
        TorchError::new(
            ErrorKind::Operator,
            format!("returned {} results, where {wanted} was expected", self.outputs.len()),
        )
        .of_operator(self.operator)
    }

    /// The first result, which is a tensor.
    ///
    /// # Errors
    /// When it is none.
    pub fn tensor(self) -> Result<Tensor, TorchError> {
        let missing = self.missing("a tensor");
        match self.outputs.into_iter().next() {
            Some(Output::Tensor(tensor)) => Ok(tensor),
            _ => Err(missing),
        }
    }

    /// All tensors among them.
    pub fn tensors(self) -> Vec<Tensor> {
        let tensor = |output| if let Output::Tensor(tensor) = output { Some(tensor) } else { None };
        self.outputs.into_iter().filter_map(tensor).collect()
    }

    /// Exactly `N` tensors.
    ///
    /// # Errors
    /// When there are more or fewer.
    pub fn into_array<const N: usize>(self) -> Result<[Tensor; N], TorchError> {
        let missing = self.missing("another number of tensors");
        <[Tensor; N]>::try_from(self.tensors()).map_err(|_| missing)
    }

    /// The outputs as they are.
    pub fn into_outputs(self) -> SmallVec<[Output; 2]> {
        self.outputs
    }
}

impl Torch {
    /// Calls an operator. Under autograd, autocast and checkpoints it does what the same call does in Python.
    ///
    /// # Errors
    /// PyTorch's own: shapes, dtypes, devices, and memory ([`ErrorKind::OutOfMemory`]).
    pub fn call(&self, operator: &'static Operator, arguments: &[Argument<'_>]) -> Result<Results, TorchError> {
        let handle = operator.handle(self)?;
        let mut outputs = SmallVec::new();
        self.call_operator(handle, arguments, &mut |output| outputs.push(output))
            .map_err(|error| error.of_operator(operator.name))?;
        Ok(Results { operator: operator.name, outputs })
    }
}
