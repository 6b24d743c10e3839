// The caching allocator's memory history, as torch.cuda.memory._record_memory_history records it. A library of its own, because
// it needs libtorch_cuda.
#include <torch/csrc/cuda/memory_snapshot.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

static thread_local std::string history_error;

extern "C" {
const char* tonnage_history_error() { return history_error.c_str(); }

int32_t tonnage_record_history(int32_t on, int64_t most) {
  try {
    const std::optional<std::string> enabled = on ? std::optional<std::string>("all") : std::nullopt;
    torch::cuda::_record_memory_history(enabled, std::nullopt, "python", static_cast<size_t>(most));
    return 0;
  } catch (const std::exception& error) {
    history_error = error.what();
    return -1;
  }
}

// Writes what torch.cuda.memory._dump_snapshot writes.
int32_t tonnage_write_snapshot(const char* path) {
  try {
    const std::string snapshot = torch::cuda::_memory_snapshot_pickled();
    FILE* file = fopen(path, "wb");
    if (!file) {
      history_error = std::string("cannot write ") + path;
      return -1;
    }
    const bool whole = fwrite(snapshot.data(), 1, snapshot.size(), file) == snapshot.size();
    if (fclose(file) == 0 && whole) return 0;
    history_error = std::string("could not write all of ") + path;
    return -1;
  } catch (const std::exception& error) {
    history_error = error.what();
    return -1;
  }
}
}
