//! cuDNN 9, as far as PyTorch calls it: convolutions through the graph API and the older one, normalization, CTC loss.
//! Everything succeeds and computes nothing. Workspaces are said to be empty, because NVIDIA does not document them: what a
//! convolution needs beyond its tensors is not counted. Recurrent networks need a layout of weights that only cuDNN
//! knows, so they are refused; `torch.backends.cudnn.enabled = False` runs them on PyTorch's own kernels. Versions and
//! texts come from the real library, which needs no device for them.
#![allow(non_snake_case)]

mod backend;
mod convolution;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::accepted::{creates, handled, needs_nothing, refused};
use crate::boundary::{Slot, put_if_wanted};
use crate::state;

/// `cudnnStatus_t`.
const NOT_INITIALIZED: c_int = 1001;
const BAD_PARAM: c_int = 2000;
const NULL_POINTER: c_int = 2002;
const NOT_SUPPORTED: c_int = 3000;

/// Handles with their streams.
static HANDLES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn lock_handles() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(handle: *mut usize) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let Ok(place) = (unsafe { Slot::new(handle) }) else { return NULL_POINTER };
    if state::current_device().and_then(|device| state::lock_memory().accounts.enter(device)).is_err() {
        return NOT_INITIALIZED;
    }
    let handle = state::lock_streams().handle();
    lock_handles().insert(handle, 0);
    place.put(handle);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(handle: usize) -> c_int {
    lock_handles().remove(&handle).map_or(BAD_PARAM, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(handle: usize, stream: usize) -> c_int {
    lock_handles().get_mut(&handle).map_or(BAD_PARAM, |place| {
        *place = stream;
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetStream(handle: usize, stream: *mut usize) -> c_int {
    let Some(known) = lock_handles().get(&handle).copied() else { return BAD_PARAM };
    // SAFETY: a place for the result by the API's contract.
    unsafe { Slot::new(stream) }.map_or(NULL_POINTER, |place| {
        place.put(known);
        0
    })
}

creates! {
    NULL_POINTER;
    cudnnCreateActivationDescriptor cudnnCreateCTCLossDescriptor cudnnCreateConvolutionDescriptor
    cudnnCreateDropoutDescriptor cudnnCreateFilterDescriptor cudnnCreatePoolingDescriptor cudnnCreateRNNDataDescriptor
    cudnnCreateRNNDescriptor cudnnCreateSpatialTransformerDescriptor cudnnCreateTensorDescriptor
    cudnnCreateOpTensorDescriptor cudnnCreateReduceTensorDescriptor cudnnCreateLRNDescriptor
}

handled! {
    NULL_POINTER;
    cudnnDestroyActivationDescriptor cudnnDestroyCTCLossDescriptor cudnnDestroyConvolutionDescriptor
    cudnnDestroyDropoutDescriptor cudnnDestroyFilterDescriptor cudnnDestroyPoolingDescriptor
    cudnnDestroyRNNDataDescriptor cudnnDestroyRNNDescriptor cudnnDestroySpatialTransformerDescriptor
    cudnnDestroyTensorDescriptor cudnnDestroyOpTensorDescriptor cudnnDestroyReduceTensorDescriptor
    cudnnDestroyLRNDescriptor
    cudnnSetActivationDescriptor cudnnSetCTCLossDescriptor cudnnSetCTCLossDescriptorEx cudnnSetCTCLossDescriptor_v8
    cudnnSetCTCLossDescriptor_v9 cudnnSetConvolutionGroupCount cudnnSetConvolutionMathType
    cudnnSetConvolutionNdDescriptor cudnnSetConvolution2dDescriptor cudnnSetDropoutDescriptor
    cudnnRestoreDropoutDescriptor cudnnSetFilterNdDescriptor cudnnSetFilter4dDescriptor cudnnSetPooling2dDescriptor
    cudnnSetPoolingNdDescriptor cudnnSetSpatialTransformerNdDescriptor cudnnSetTensorNdDescriptor
    cudnnSetTensorNdDescriptorEx cudnnSetTensor4dDescriptor cudnnSetTensor4dDescriptorEx
    cudnnBatchNormalizationForwardTraining cudnnBatchNormalizationForwardTrainingEx
    cudnnBatchNormalizationForwardInference cudnnBatchNormalizationBackward cudnnBatchNormalizationBackwardEx
    cudnnCTCLoss cudnnCTCLoss_v8 cudnnPoolingForward cudnnPoolingBackward
    cudnnSpatialTfGridGeneratorForward cudnnSpatialTfGridGeneratorBackward cudnnSpatialTfSamplerForward
    cudnnSpatialTfSamplerBackward cudnnSoftmaxForward cudnnSoftmaxBackward cudnnActivationForward
    cudnnActivationBackward cudnnAddTensor cudnnOpTensor cudnnReduceTensor cudnnScaleTensor cudnnTransformTensor
}

needs_nothing! {
    NULL_POINTER; usize;
    cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(_a _b _c _d _e _f _g _h)
    cudnnGetBatchNormalizationBackwardExWorkspaceSize(_a _b _c _d _e _f _g _h _i _j)
    cudnnGetBatchNormalizationTrainingExReserveSpaceSize(_a _b _c _d _e)
    cudnnGetCTCLossWorkspaceSize(_a _b _c _d _e _f _g _h)
    cudnnGetCTCLossWorkspaceSize_v8(_a _b _c _d _e)
}

refused! {
    NOT_SUPPORTED;
    cudnnSetRNNDescriptor_v8 cudnnSetRNNDataDescriptor cudnnRNNForward cudnnRNNBackwardData_v8
    cudnnRNNBackwardWeights_v8 cudnnGetRNNTempSpaceSizes cudnnGetRNNWeightParams cudnnGetRNNWeightSpaceSize
    cudnnDropoutGetStatesSize cudnnMultiHeadAttnForward cudnnMultiHeadAttnBackwardData
    cudnnMultiHeadAttnBackwardWeights
}

/// A descriptor's shape is not kept; PyTorch asks for it only to print it.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetTensorNdDescriptor(
    descriptor: usize,
    _requested: c_int,
    data_type: *mut c_int,
    dimensions: *mut c_int,
) -> c_int {
    if descriptor == 0 {
        return NULL_POINTER;
    }
    // SAFETY: places for results, or null, by the API's contract.
    unsafe {
        put_if_wanted(data_type, 0);
        put_if_wanted(dimensions, 0);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetFilterNdDescriptor(
    descriptor: usize,
    _requested: c_int,
    data_type: *mut c_int,
    format: *mut c_int,
    dimensions: *mut c_int,
) -> c_int {
    if descriptor == 0 {
        return NULL_POINTER;
    }
    // SAFETY: as above.
    unsafe {
        put_if_wanted(data_type, 0);
        put_if_wanted(format, 0);
        put_if_wanted(dimensions, 0);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let (mut handle, mut stream, mut bytes) = (0, 9, 7);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cudnnCreate(null_mut()), NULL_POINTER);
            assert_eq!((cudnnCreate(&raw mut handle), cudnnSetStream(handle, 32)), (0, 0));
            assert_eq!((cudnnGetStream(handle, &raw mut stream), stream), (0, 32));
            assert_eq!(cudnnGetStream(handle, null_mut()), NULL_POINTER);
            assert_eq!(cudnnCreateTensorDescriptor(null_mut()), NULL_POINTER);
            assert_eq!(cudnnGetCTCLossWorkspaceSize_v8(0, 0, 0, 0, 0, null_mut()), NULL_POINTER);
            assert_eq!((cudnnGetCTCLossWorkspaceSize_v8(0, 0, 0, 0, 0, &raw mut bytes), bytes), (0, 0));
        }
        assert_eq!((cudnnDestroy(handle), cudnnDestroy(handle)), (0, BAD_PARAM));
        assert_eq!((cudnnSetStream(handle, 0), cudnnRNNForward()), (BAD_PARAM, NOT_SUPPORTED));
    }
}
