//! What is not known of a GPU beside its kernels.

use super::Caveat;
use crate::gpu::Gpu;
use crate::units::Bytes;

/// Of a GPU that PyTorch's newest builds do not run on.
pub(super) fn old_gpu(gpu: &Gpu) -> Option<Caveat> {
    let (major, minor) = gpu.compute_capability;
    (!gpu.device().runs_newest_builds()).then(|| {
        let text = format!(
            "PyTorch's builds for CUDA 13 have no kernels for sm_{major}{minor}: take one for CUDA 12.6 \
             (pip install torch --index-url with /whl/cu126), which was not measured"
        );
        Caveat::remark("old_gpu", text)
    })
}

/// Of memory that the host takes from too: an eighth of it, an allowance and no measurement.
pub(super) fn shared_with_host(gpu: &Gpu) -> Option<Caveat> {
    gpu.shares_host_memory.then(|| {
        let bytes = gpu.usable_bytes / 8;
        let text = format!(
            "the system, Python and the data loader take from the same memory: the range allows {} for them",
            Bytes(bytes)
        );
        Caveat::adding("shared_with_host", text, bytes)
    })
}
