// NCCL by its C interface (nccl.h of 2.28), as the process has it: the one that libtorch_cuda brought along, or a phantom's before it.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

#include <cstdint>

using NcclCommunicator = void*;

// `ncclUniqueId`
struct NcclId {
  char bytes[128];
};

// `ncclRedOp_t` and `ncclDataType_t`
static constexpr int NCCL_SUM = 0;
static constexpr int NCCL_BYTE = 1;

static int nccl_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Char: return 0;
    case c10::ScalarType::Byte: return 1;
    case c10::ScalarType::Int: return 2;
    case c10::ScalarType::Long: return 4;
    case c10::ScalarType::Half: return 6;
    case c10::ScalarType::Float: return 7;
    case c10::ScalarType::Double: return 8;
    case c10::ScalarType::BFloat16: return 9;
    default: TORCH_CHECK(false, "NCCL sums no numbers of type ", type);
  }
}

template <typename Function>
static Function symbol(const char* name) {
  auto found = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(found, "this process has no ", name, ": PyTorch's NCCL (nvidia-nccl, which `pip install torch` brings along) is missing");
  return found;
}

// The functions that are called.
struct Nccl {
  int (*unique_id)(NcclId*) = symbol<int (*)(NcclId*)>("ncclGetUniqueId");
  int (*init_rank)(NcclCommunicator*, int, NcclId, int) = symbol<int (*)(NcclCommunicator*, int, NcclId, int)>("ncclCommInitRank");
  int (*all_reduce)(const void*, void*, size_t, int, int, NcclCommunicator, void*) =
      symbol<int (*)(const void*, void*, size_t, int, int, NcclCommunicator, void*)>("ncclAllReduce");
  int (*all_gather)(const void*, void*, size_t, int, NcclCommunicator, void*) =
      symbol<int (*)(const void*, void*, size_t, int, NcclCommunicator, void*)>("ncclAllGather");
  int (*broadcast)(const void*, void*, size_t, int, int, NcclCommunicator, void*) =
      symbol<int (*)(const void*, void*, size_t, int, int, NcclCommunicator, void*)>("ncclBroadcast");
  const char* (*text)(int) = symbol<const char* (*)(int)>("ncclGetErrorString");

  void check(int code, const char* name) const { TORCH_CHECK(code == 0, "NCCL error in ", name, ": ", text(code)); }

  // A stream of CUDA's as PyTorch knows streams that others made (c10::cuda::getStreamFromExternal): its address is its number.
  c10::Stream stream(c10::Device device) const {
    const auto create = symbol<int (*)(void**, unsigned)>("cudaStreamCreateWithFlags");
    constexpr unsigned NON_BLOCKING = 1;
    void* made = nullptr;
    const int code = create(&made, NON_BLOCKING);
    TORCH_CHECK(code == 0, "cudaStreamCreateWithFlags failed with error ", code);
    return c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(made)));
  }

  void* handle(const c10::Stream& stream) const { return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id())); }
};
