// Devices, random numbers, threads, versions.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/api/include/torch/version.h>

extern "C" {
const char* tonnage_version() { return TORCH_VERSION; }

int32_t tonnage_cuda_devices() {
  return guarded(int32_t{-1}, []() -> int32_t {
    return at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  });
}

int32_t tonnage_init_device(int32_t type) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    at::globalContext().lazyInitDevice(static_cast<c10::DeviceType>(type));
    return 0;
  });
}

int32_t tonnage_synchronize(int32_t type, int32_t index) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    if (static_cast<c10::DeviceType>(type) == c10::kCPU) return 0;
    const c10::impl::VirtualGuardImpl device(static_cast<c10::DeviceType>(type));
    device.synchronizeDevice(static_cast<c10::DeviceIndex>(index));
    return 0;
  });
}

int32_t tonnage_seed(uint64_t seed) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    at::manual_seed(seed);
    return 0;
  });
}

// The state of a device's default generator: a tensor of bytes on the CPU, or 0.
int64_t tonnage_random_state(int32_t type, int32_t index) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    at::Generator generator = at::globalContext().defaultGenerator(
        c10::Device(static_cast<c10::DeviceType>(type), static_cast<c10::DeviceIndex>(index)));
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return handle_of(generator.get_state());
  });
}

int32_t tonnage_set_random_state(int32_t type, int32_t index, int64_t state) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    at::Generator generator = at::globalContext().defaultGenerator(
        c10::Device(static_cast<c10::DeviceType>(type), static_cast<c10::DeviceIndex>(index)));
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(tensor_of(state));
    return 0;
  });
}

int32_t tonnage_threads() { return at::get_num_threads(); }

void tonnage_set_threads(int32_t count) { at::set_num_threads(count); }

// torch.use_deterministic_algorithms(on).
void tonnage_set_deterministic(int32_t on) { at::globalContext().setDeterministicAlgorithms(on != 0, false); }
}
