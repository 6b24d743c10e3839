// What needs libtorch_cuda: the caching allocator's figures and its memory history. A library of its own, so that the rest loads
// without CUDA's libraries.
#define tonnage_error tonnage_cuda_error
#include "error.h"

#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <cstdio>
#include <optional>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
#include <c10/core/CachingDeviceAllocator.h>
static auto* allocator() { return c10::getDeviceAllocator(c10::kCUDA); }
#else
// Its headers include CUDA's, which the wheel nvidia-cuda-runtime brings.
#include <c10/cuda/CUDACachingAllocator.h>
static auto* allocator() { return c10::cuda::CUDACachingAllocator::get(); }
#endif

static void write_whole(const std::string& text, const char* path) {
  FILE* file = fopen(path, "wb");
  TORCH_CHECK(file != nullptr, "cannot write ", path);
  const bool whole = fwrite(text.data(), 1, text.size(), file) == text.size();
  TORCH_CHECK(fclose(file) == 0 && whole, "could not write all of ", path);
}

extern "C" {
// Bytes: allocated now and at most, reserved now and at most; then retries after releasing the cache, and out-of-memory errors.
int32_t tonnage_memory(int32_t index, int64_t* figures) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const auto stats = allocator()->getDeviceStats(static_cast<c10::DeviceIndex>(index));
    figures[0] = stats.allocated_bytes[0].current;
    figures[1] = stats.allocated_bytes[0].peak;
    figures[2] = stats.reserved_bytes[0].current;
    figures[3] = stats.reserved_bytes[0].peak;
    figures[4] = stats.num_alloc_retries;
    figures[5] = stats.num_ooms;
    return 0;
  });
}

int32_t tonnage_reset_peak(int32_t index) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    allocator()->resetPeakStats(static_cast<c10::DeviceIndex>(index));
    return 0;
  });
}

int32_t tonnage_empty_cache() {
  return guarded(int32_t{-1}, []() -> int32_t {
    allocator()->emptyCache();
    return 0;
  });
}

// As torch.cuda.memory._record_memory_history.
int32_t tonnage_record_history(int32_t on, int64_t most) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const std::optional<std::string> enabled = on ? std::optional<std::string>("all") : std::nullopt;
    torch::cuda::_record_memory_history(enabled, std::nullopt, "python", static_cast<size_t>(most));
    return 0;
  });
}

// Writes what torch.cuda.memory._dump_snapshot writes.
int32_t tonnage_write_snapshot(const char* path) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    write_whole(torch::cuda::_memory_snapshot_pickled(), path);
    return 0;
  });
}
}
