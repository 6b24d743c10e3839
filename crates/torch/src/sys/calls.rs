//! Calls of operators: arguments and results as the shim's plain values.

use std::ffi::{CString, c_void};

use smallvec::SmallVec;

use super::{Handle, LOADED, OperatorHandle, Torch};
use crate::error::{ErrorKind, TorchError};
use crate::operator::{Argument, Output};
use crate::tensor::Tensor;

/// `Tag` of shim/values.h.
mod tag {
    pub const NONE: i64 = 0;
    pub const TENSOR: i64 = 1;
    pub const INT: i64 = 2;
    pub const DOUBLE: i64 = 3;
    pub const BOOL: i64 = 4;
    pub const INTS: i64 = 5;
    pub const TENSORS: i64 = 6;
    pub const OPTIONAL_TENSORS: i64 = 7;
    pub const STRING: i64 = 8;
    pub const DEVICE: i64 = 9;
    pub const DEFAULT: i64 = 10;
    pub const DOUBLES: i64 = 11;
    pub const BOOLS: i64 = 12;
}

/// `Value` of shim/values.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    tag: i64,
    first: i64,
    second: i64,
}

impl Torch {
    pub(crate) fn operator(&self, name: &str, overload: &str) -> Result<OperatorHandle, TorchError> {
        let c_text = |text: String| {
            CString::new(text).map_err(|_| TorchError::new(ErrorKind::Operator, "a name with a zero byte"))
        };
        let (name, overload) = (c_text(format!("aten::{name}"))?, c_text(overload.to_owned())?);
        // SAFETY: both are C strings that outlive the call.
        let found = unsafe { (self.functions.tonnage_operator)(name.as_ptr(), overload.as_ptr()) };
        if found.is_null() { Err(self.error()) } else { Ok(OperatorHandle(found as usize)) }
    }

    /// Calls an operator; `take` gets each result in order.
    pub(crate) fn call_operator(
        &self,
        operator: OperatorHandle,
        arguments: &[Argument<'_>],
        take: &mut dyn FnMut(Output),
    ) -> Result<(), TorchError> {
        const ROOM: usize = 4;
        let values: SmallVec<[Value; 12]> = arguments.iter().map(value_of).collect();
        let mut results = [Value { tag: tag::NONE, first: 0, second: 0 }; ROOM];
        // SAFETY: the operator lives as long as the process; `values` points into `arguments`, which outlive the call.
        let count = unsafe {
            (self.functions.tonnage_call)(
                operator.0 as *mut c_void,
                values.as_ptr(),
                values.len() as i64,
                results.as_mut_ptr(),
                ROOM as i64,
            )
        };
        let count = usize::try_from(count).map_err(|_| self.error())?;
        for result in results.iter().take(count) {
            take(self.output(*result));
        }
        for _ in ROOM..count {
            let mut result = Value { tag: tag::NONE, first: 0, second: 0 };
            // SAFETY: the shim keeps `count - ROOM` further results for this thread.
            unsafe { (self.functions.tonnage_next_result)(&raw mut result) };
            take(self.output(result));
        }
        Ok(())
    }

    fn output(&self, value: Value) -> Output {
        match value.tag {
            // The process's own `Torch` is the only one that there is.
            tag::TENSOR => {
                LOADED.get().map_or(Output::None, |torch| Output::Tensor(Tensor::owning(torch, Handle(value.first))))
            }
            tag::INT => Output::Int(value.first),
            tag::DOUBLE => Output::Double(f64::from_bits(value.first as u64)),
            tag::BOOL => Output::Bool(value.first != 0),
            _ => Output::None,
        }
    }
}

fn value_of(argument: &Argument<'_>) -> Value {
    let list = |tag, start: *const c_void, length: usize| Value { tag, first: start as i64, second: length as i64 };
    let plain = |tag, first| Value { tag, first, second: 0 };
    match argument {
        Argument::None => plain(tag::NONE, 0),
        Argument::Default => plain(tag::DEFAULT, 0),
        Argument::Tensor(tensor) => plain(tag::TENSOR, tensor.handle().0),
        Argument::Int(number) => plain(tag::INT, *number),
        Argument::Double(number) => plain(tag::DOUBLE, number.to_bits() as i64),
        Argument::Bool(on) => plain(tag::BOOL, i64::from(*on)),
        Argument::Ints(numbers) => list(tag::INTS, numbers.as_ptr().cast(), numbers.len()),
        Argument::Doubles(numbers) => list(tag::DOUBLES, numbers.as_ptr().cast(), numbers.len()),
        Argument::Bools(flags) => list(tag::BOOLS, flags.as_ptr().cast(), flags.len()),
        // `Handle` is transparent over the shim's int64_t.
        Argument::Tensors(handles) => list(tag::TENSORS, handles.as_ptr().cast(), handles.len()),
        Argument::OptionalTensors(handles) => list(tag::OPTIONAL_TENSORS, handles.as_ptr().cast(), handles.len()),
        Argument::Text(text) => list(tag::STRING, text.as_ptr().cast(), text.len()),
        Argument::Device(device) => {
            Value { tag: tag::DEVICE, first: i64::from(device.kind()), second: i64::from(device.index()) }
        }
    }
}
