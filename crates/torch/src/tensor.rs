//! A tensor: a handle on PyTorch's own, freed with the last handle.

use std::fmt::{self, Debug, Formatter};

use smallvec::SmallVec;

use crate::device::Device;
use crate::error::{ErrorKind, TorchError};
use crate::operator;
use crate::operator::Argument;
use crate::scalar::{Element, ScalarType};
use crate::sys::{Handle, Torch};

/// A tensor. A clone is another handle on the same tensor, as a second Python name is.
pub struct Tensor {
    torch: &'static Torch,
    handle: Handle,
}

impl Tensor {
    pub(crate) fn owning(torch: &'static Torch, handle: Handle) -> Self {
        Self { torch, handle }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// The library that it lives in.
    pub fn torch(&self) -> &'static Torch {
        self.torch
    }

    /// Its sizes, outermost first.
    pub fn sizes(&self) -> SmallVec<[i64; 8]> {
        self.torch.sizes(self.handle)
    }

    /// Its number of elements.
    pub fn numel(&self) -> i64 {
        self.sizes().iter().product()
    }

    /// Its element type.
    ///
    /// # Errors
    /// When it is complex or quantized, which nothing here makes.
    pub fn scalar_type(&self) -> Result<ScalarType, TorchError> {
        let number = self.torch.scalar_type(self.handle);
        let unknown =
            || TorchError::new(ErrorKind::Operator, format!("a tensor of c10::ScalarType {number} is not supported"));
        ScalarType::of_number(number).ok_or_else(unknown)
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        let (kind, index) = self.torch.device(self.handle);
        Device::of_numbers(kind, index)
    }

    /// Whether both are handles of one tensor.
    pub fn is_same(&self, other: &Self) -> bool {
        self.torch.identity(self.handle) == self.torch.identity(other.handle)
    }

    /// Itself, as a leaf whose gradient is kept.
    ///
    /// # Errors
    /// When its elements are no floating-point numbers.
    pub fn requiring_grad(self) -> Result<Self, TorchError> {
        self.torch.set_requires_grad(self.handle, true)?;
        Ok(self)
    }

    /// Whether gradients are computed for it.
    pub fn requires_grad(&self) -> bool {
        self.torch.requires_grad(self.handle)
    }

    /// Its gradient, after `backward`.
    ///
    /// # Errors
    /// Never today; PyTorch may refuse it for tensors that are no leaves.
    pub fn grad(&self) -> Result<Option<Self>, TorchError> {
        Ok(self.torch.grad(self.handle).map(|handle| Self::owning(self.torch, handle)))
    }

    /// Sets its gradient, or takes it away, as `zero_grad(set_to_none=True)` does.
    ///
    /// # Errors
    /// When shape, dtype or device differ.
    pub fn set_grad(&self, gradient: Option<&Self>) -> Result<(), TorchError> {
        self.torch.set_grad(self.handle, gradient.map(Self::handle))
    }

    /// A copy on another device, or itself where it lies there.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn to_device(&self, device: Device) -> Result<Self, TorchError> {
        // to.dtype_layout(self, *, dtype, layout, device, ...): of all overloads of `to` the one that leaves the dtype alone.
        let arguments = [Argument::Tensor(self), Argument::None, Argument::None, Argument::Device(device)];
        self.torch.call(operator!("to", "dtype_layout"), &arguments)?.tensor()
    }

    /// Its elements, outermost dimension slowest. Waits for the device.
    ///
    /// # Errors
    /// When its elements are no `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TorchError> {
        let found = self.scalar_type()?;
        if found != T::TYPE {
            return Err(TorchError::new(ErrorKind::Operator, format!("the tensor holds {found:?}, not {:?}", T::TYPE)));
        }
        Ok(T::of_bytes(&self.to_bytes()?))
    }

    /// The bytes of its elements, as safetensors files hold them.
    ///
    /// # Errors
    /// When the host has no room, or the device's work failed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TorchError> {
        let elements = usize::try_from(self.numel()).unwrap_or_default();
        let mut bytes = vec![0; elements * self.scalar_type()?.bytes()];
        self.torch.to_host(self.handle, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `bytes` over its elements, whatever its device; autograd does not see it.
    ///
    /// # Errors
    /// When their number differs.
    pub fn overwrite(&self, bytes: &[u8]) -> Result<(), TorchError> {
        self.torch.overwrite(self.handle, bytes)
    }
}

impl Torch {
    /// A tensor on the CPU with these elements.
    ///
    /// # Errors
    /// When `sizes` do not make up their number.
    pub fn tensor<T: Element>(&'static self, values: &[T], sizes: &[i64]) -> Result<Tensor, TorchError> {
        self.tensor_of_bytes(&T::to_bytes(values), sizes, T::TYPE)
    }

    /// A tensor on the CPU with elements given as bytes, as safetensors files hold them.
    ///
    /// # Errors
    /// When `sizes` do not make up the number of bytes.
    pub fn tensor_of_bytes(
        &'static self,
        bytes: &[u8],
        sizes: &[i64],
        scalar_type: ScalarType,
    ) -> Result<Tensor, TorchError> {
        let elements = sizes.iter().try_fold(1_usize, |all, size| all.checked_mul(usize::try_from(*size).ok()?));
        if elements.and_then(|elements| elements.checked_mul(scalar_type.bytes())) != Some(bytes.len()) {
            let text = format!(
                "{} bytes are not a tensor of {sizes:?} with elements of {} bytes",
                bytes.len(),
                scalar_type.bytes()
            );
            return Err(TorchError::new(ErrorKind::Operator, text));
        }
        Ok(Tensor::owning(self, self.copy_from_host(bytes, sizes, scalar_type as i32)?))
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        Self { torch: self.torch, handle: self.torch.clone_handle(self.handle) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.torch.free(self.handle);
    }
}

impl Debug for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {:?}, {:?})", self.sizes(), self.scalar_type(), self.device())
    }
}
