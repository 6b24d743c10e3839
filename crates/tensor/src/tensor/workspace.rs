//! Workspaces of cuBLAS and cuBLASLt: each thread's handle has its own, from its first product on.

use super::context::Context;
use crate::Device;
use tonnage_alloc::trace::Category;

impl Context {
    /// The cuBLAS workspace of this thread's handle, allocated at its first matmul and kept for ever
    /// (CUDABlas.cpp, `getChosenWorkspaceSize`: 32 MiB on compute capability 9, else `:4096:2:16:8`).
    pub fn need_cublas_workspace(&self, op: &'static str) {
        let chosen = |device: Device| match device.compute_capability.0 {
            9 => 4096 * 8 * 1024,
            _ => (4096 * 2 + 16 * 8) * 1024,
        };
        self.need_workspace(0, op, || {
            let (bytes, others) = self.ask_each(chosen);
            (bytes, self.name_sizes(bytes, &others))
        });
    }

    /// The cuBLASLt workspace of this thread (CUDABlas.cpp, `_getWorkspaceSize`: 1 MiB by default).
    pub fn need_cublaslt_workspace(&self, op: &'static str) {
        self.need_workspace(1, op, || (1 << 20, 0));
    }

    fn need_workspace(&self, kind: usize, op: &'static str, bytes: impl FnOnce() -> (u64, u32)) {
        let mut workspaces = self.workspaces.get();
        let slot = &mut workspaces[self.thread.get() as usize][kind];
        if !*slot && !self.stopped.get() && self.is_here.get() {
            *slot = true;
            self.workspaces.set(workspaces);
            self.allocate_sized(op, bytes(), Some(Category::Workspace));
        }
    }
}
