// Tensors as handles: what they are, and their bytes to and from host memory.
#include <ATen/ops/from_blob.h>

extern "C" {
void tonnage_free(int64_t handle) { delete &tensor_of(handle); }

int64_t tonnage_clone(int64_t handle) { return handle_of(tensor_of(handle)); }

// How many dimensions; their sizes go to `sizes`, at most `room`.
int64_t tonnage_sizes(int64_t handle, int64_t* sizes, int64_t room) {
  const auto found = tensor_of(handle).sizes();
  for (size_t i = 0; i < found.size() && static_cast<int64_t>(i) < room; i++) sizes[i] = found[i];
  return static_cast<int64_t>(found.size());
}

int32_t tonnage_scalar_type(int64_t handle) { return static_cast<int32_t>(tensor_of(handle).scalar_type()); }

void tonnage_device(int64_t handle, int32_t* type, int32_t* index) {
  const auto device = tensor_of(handle).device();
  *type = static_cast<int32_t>(device.type());
  *index = device.index();
}

// Two handles of one tensor say the same.
int64_t tonnage_identity(int64_t handle) { return reinterpret_cast<int64_t>(tensor_of(handle).unsafeGetTensorImpl()); }

// A tensor on the CPU with a copy of `bytes`.
int64_t tonnage_from_host(const void* bytes, const int64_t* sizes, int64_t dims, int32_t scalar_type) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    const auto options = at::TensorOptions().dtype(static_cast<c10::ScalarType>(scalar_type));
    return handle_of(at::from_blob(const_cast<void*>(bytes), at::IntArrayRef(sizes, dims), options).clone());
  });
}

// Copies a tensor's bytes, row by row, to host memory of `room` bytes. Waits for its device. Returns 0, or -1.
int32_t tonnage_to_host(int64_t handle, void* bytes, int64_t room) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const c10::NoGradGuard no_grad;
    const at::Tensor plain = tensor_of(handle).detach().to(c10::kCPU).contiguous();
    TORCH_CHECK(static_cast<int64_t>(plain.nbytes()) == room, "the tensor has ", plain.nbytes(), " bytes, not ", room);
    if (room > 0) memcpy(bytes, plain.const_data_ptr(), room);
    return 0;
  });
}

// Copies host memory over a tensor's own bytes, whatever its device. Returns 0, or -1.
int32_t tonnage_overwrite(int64_t handle, const void* bytes, int64_t room) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const c10::NoGradGuard no_grad;
    at::Tensor& target = tensor_of(handle);
    TORCH_CHECK(static_cast<int64_t>(target.nbytes()) == room, "the tensor has ", target.nbytes(), " bytes, not ", room);
    const auto options = at::TensorOptions().dtype(target.scalar_type());
    target.copy_(at::from_blob(const_cast<void*>(bytes), target.sizes(), options));
    return 0;
  });
}
}
