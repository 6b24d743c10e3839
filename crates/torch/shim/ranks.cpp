// Ranks that train together: a process group of PyTorch's over the caller's transport for tensors of the CPU and over NCCL for those
// of a GPU, DistributedDataParallel's own reducer above it, and the store where ranks meet. A library of its own, compiled when a job
// first has several ranks. Gloo is in libtorch_cpu, but its headers are in no wheel.
#define tonnage_error tonnage_ranks_error
#include "error.h"
#include "values.h"
#include "nccl.h"

#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

// What the caller does with host memory. Both return 0, or else `error` says why.
struct Transport {
  void* state;
  // The sum over all ranks of `elements` numbers of `element_size` bytes, in place.
  int32_t (*all_reduce)(void* state, void* numbers, int64_t elements, int64_t element_size, int32_t scalar_type);
  int32_t (*broadcast)(void* state, void* bytes, int64_t count, int32_t root);
  // `count` bytes of every rank one after the other, in the order of ranks.
  int32_t (*all_gather)(void* state, const void* own, int64_t count, void* all);
  const char* (*error)(void* state);
};

using Tensors = std::vector<at::Tensor>;
using FutureOf = c10::intrusive_ptr<c10::ivalue::Future>;

// A collective by the future of its tensors.
struct FutureWork : c10d::Work {
  FutureOf future;

  explicit FutureWork(FutureOf future) : future(std::move(future)) {}
  bool isCompleted() override { return future->completed(); }
  bool isSuccess() const override { return future->completed() && !future->hasError(); }
  void synchronize() override { future->wait(); }
  bool wait(std::chrono::milliseconds) override {
    future->waitAndThrow();
    return true;
  }
  FutureOf getFuture() override { return future; }
};

static FutureOf future_on(std::vector<c10::Device> devices) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

static const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1 && tensors[0].is_contiguous(), "a collective is of one contiguous tensor");
  return tensors[0];
}

static void check_sum(const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "only sums are reduced");
}

struct HostBackend : c10d::Backend {
  Transport transport;

  HostBackend(const Transport& transport, int rank, int size) : Backend(rank, size), transport(transport) {}

  const std::string getBackendName() const override { return "tonnage"; }

  c10::intrusive_ptr<c10d::Work> done(int32_t code, Tensors& tensors) {
    TORCH_CHECK(code == 0, transport.error(transport.state));
    auto future = future_on({});
    future->markCompleted(c10::IValue(tensors));
    return c10::make_intrusive<FutureWork>(std::move(future));
  }

  // A GPU's memory is no address that a socket could read.
  static const at::Tensor& on_host(Tensors& tensors) {
    const at::Tensor& tensor = only(tensors);
    TORCH_CHECK(tensor.is_cpu(), "ranks exchange tensors of a GPU over NCCL, not over sockets");
    return tensor;
  }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check_sum(options);
    const at::Tensor& tensor = on_host(tensors);
    const auto type = static_cast<int32_t>(tensor.scalar_type());
    const auto size = static_cast<int64_t>(tensor.element_size());
    return done(transport.all_reduce(transport.state, tensor.mutable_data_ptr(), tensor.numel(), size, type), tensors);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = on_host(tensors);
    const auto root = static_cast<int32_t>(options.rootRank);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    return done(transport.broadcast(transport.state, tensor.mutable_data_ptr(), bytes, root), tensors);
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& own, const c10d::AllgatherOptions&) override {
    Tensors into = {all}, from = {own};
    const at::Tensor& tensor = on_host(from);
    void* bytes = on_host(into).mutable_data_ptr();
    return done(transport.all_gather(transport.state, tensor.const_data_ptr(), tensor.nbytes(), bytes), into);
  }
};

// On a stream of its own, beside which backward goes on.
struct NcclBackend : c10d::Backend {
  c10::Device device;
  Nccl nccl;
  NcclCommunicator communicator = nullptr;
  c10::Stream stream;

  NcclBackend(const NcclId& id, c10::Device device, int rank, int size)
      : Backend(rank, size), device(device), stream(nccl.stream(device)) {
    nccl.check(nccl.init_rank(&communicator, size, id, rank), "ncclCommInitRank");
  }

  const std::string getBackendName() const override { return "nccl"; }

  template <typename Call>
  c10::intrusive_ptr<c10d::Work> run(Tensors& tensors, const char* name, Call call) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    c10::Event ready(device.type());
    ready.record(guard.getStream(device));
    ready.block(stream);
    nccl.check(call(only(tensors)), name);
    auto future = future_on({device});
    const c10::StreamGuard current(stream);
    future->markCompleted(c10::IValue(tensors));
    return c10::make_intrusive<FutureWork>(std::move(future));
  }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check_sum(options);
    return run(tensors, "ncclAllReduce", [&](const at::Tensor& tensor) {
      void* data = tensor.mutable_data_ptr();
      const int type = nccl_type(tensor.scalar_type());
      return nccl.all_reduce(data, data, tensor.numel(), type, NCCL_SUM, communicator, nccl.handle(stream));
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return run(tensors, "ncclBroadcast", [&](const at::Tensor& tensor) {
      void* data = tensor.mutable_data_ptr();
      const auto root = static_cast<int>(options.rootRank);
      return nccl.broadcast(data, data, tensor.nbytes(), NCCL_BYTE, root, communicator, nccl.handle(stream));
    });
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& own, const c10d::AllgatherOptions&) override {
    Tensors into = {all};
    const Tensors from = {own};
    return run(into, "ncclAllGather", [&](const at::Tensor& tensor) {
      const void* data = only(from).const_data_ptr();
      return nccl.all_gather(data, tensor.mutable_data_ptr(), own.nbytes(), NCCL_BYTE, communicator, nccl.handle(stream));
    });
  }
};

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Buckets = std::vector<std::vector<size_t>>;
using Names = std::unordered_map<size_t, std::string>;

static Group& group_of(int64_t handle) { return *reinterpret_cast<Group*>(handle); }

static Tensors tensors_of(const int64_t* handles, int64_t count) {
  Tensors tensors;
  for (int64_t i = 0; i < count; i++) tensors.push_back(tensor_of(handles[i]));
  return tensors;
}

// DistributedDataParallel's arguments; capacities in bytes.
struct ReducerOptions {
  int64_t bucket_cap;
  int64_t first_bucket_cap;
  int32_t gradient_as_bucket_view;
};

// Newer versions have added arguments at the end.
template <typename... Added>
static constexpr bool takes = std::is_constructible_v<c10d::Reducer, Tensors, Buckets, Group, std::vector<bool>, int64_t, bool, bool,
    Names, int64_t, Added...>;

template <typename Reducer = c10d::Reducer>
static std::unique_ptr<Reducer> make_reducer(const Tensors& parameters, const Group& group, const ReducerOptions& options) {
  const std::vector<bool> dense(parameters.size(), false);
  // As _ddp_init_helper of torch/nn/parallel/distributed.py: one bucket first, rebuilt in the order in which gradients came.
  Buckets buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(std::numeric_limits<int64_t>::max())}, dense));
  std::reverse(buckets.begin(), buckets.end());
  const auto make = [&](auto... added) {
    return std::make_unique<Reducer>(parameters, buckets, group, dense, options.bucket_cap, /*find_unused_parameters=*/false,
        options.gradient_as_bucket_view != 0, Names(), options.first_bucket_cap, added...);
  };
  if constexpr (takes<bool, bool, std::vector<int64_t>>) {
    return make(/*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
  } else if constexpr (takes<bool, bool>) {
    return make(false, false);
  } else if constexpr (takes<bool>) {
    return make(false);
  } else {
    return make();
  }
}

extern "C" {
// A process group over `transport`, which outlives it.
int64_t tonnage_group(const Transport* transport, int32_t rank, int32_t size) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
    const auto backend = c10::make_intrusive<HostBackend>(*transport, rank, size);
    group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    return reinterpret_cast<int64_t>(new Group(std::move(group)));
  });
}

// A name for a communicator, which one rank makes and all use.
int32_t tonnage_nccl_id(NcclId* id) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const Nccl nccl;
    nccl.check(nccl.unique_id(id), "ncclGetUniqueId");
    return 0;
  });
}

// Tensors of this GPU go over NCCL; all ranks call it.
int32_t tonnage_group_use_nccl(int64_t handle, const NcclId* id, int32_t index) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    Group& group = group_of(handle);
    const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
    const c10::DeviceGuard guard(device);
    const auto backend = c10::make_intrusive<NcclBackend>(*id, device, group->getRank(), group->getSize());
    // A type of its own: `setBackend` takes the backend that a type has already.
    group->setBackend(c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL, backend);
    return 0;
  });
}

// As DDP broadcasts a module's states and its buffers: those of rank 0, in flat buffers of so many bytes.
int32_t tonnage_group_broadcast(int64_t handle, const int64_t* handles, int64_t count, int64_t buffer_bytes) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    Tensors tensors;
    for (const at::Tensor& tensor : tensors_of(handles, count)) tensors.push_back(tensor.detach());
    c10d::broadcast_coalesced(group_of(handle), tensors, static_cast<size_t>(buffer_bytes), 0);
    return 0;
  });
}

// `dist.broadcast` of each tensor from rank 0, as it lies.
int32_t tonnage_group_broadcast_each(int64_t handle, const int64_t* handles, int64_t count) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    for (const at::Tensor& tensor : tensors_of(handles, count)) {
      Tensors one = {tensor.detach()};
      group_of(handle)->broadcast(one)->wait();
    }
    return 0;
  });
}

// `dist.all_reduce`: the sum over all ranks, in place.
int32_t tonnage_group_all_reduce(int64_t handle, int64_t tensor) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    Tensors one = {tensor_of(tensor)};
    group_of(handle)->allreduce(one)->wait();
    return 0;
  });
}

// `dist.all_gather_into_tensor`
int32_t tonnage_group_all_gather(int64_t handle, int64_t all, int64_t own) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    at::Tensor into = tensor_of(all), from = tensor_of(own);
    TORCH_CHECK(into.numel() == from.numel() * group_of(handle)->getSize() && into.scalar_type() == from.scalar_type(),
        "what is gathered into has room for as many tensors as there are ranks");
    group_of(handle)->_allgather_base(into, from)->wait();
    return 0;
  });
}

void tonnage_group_free(int64_t handle) { delete &group_of(handle); }

int64_t tonnage_reducer(int64_t group, const int64_t* handles, int64_t count, const ReducerOptions* options) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    return reinterpret_cast<int64_t>(make_reducer(tensors_of(handles, count), group_of(group), *options).release());
  });
}

// DistributedDataParallel._pre_forward; `reduces` is `require_backward_grad_sync`.
int32_t tonnage_reducer_before_forward(int64_t reducer, int32_t reduces) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    auto* self = reinterpret_cast<c10d::Reducer*>(reducer);
    if (reduces) self->prepare_for_forward();
    self->rebuild_buckets();
    return 0;
  });
}

// DistributedDataParallel._post_forward of a pass whose gradients are reduced.
int32_t tonnage_reducer_before_backward(int64_t reducer) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    reinterpret_cast<c10d::Reducer*>(reducer)->prepare_for_backward({});
    return 0;
  });
}

void tonnage_reducer_free(int64_t reducer) {
  guarded(int32_t{-1}, [&]() -> int32_t {
    delete reinterpret_cast<c10d::Reducer*>(reducer);
    return 0;
  });
}

// Adds `count` numbers to others, as a sum over ranks does.
int32_t tonnage_add(void* to, const void* more, int64_t count, int32_t scalar_type) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const c10::InferenceMode plain;
    const auto type = at::TensorOptions().dtype(static_cast<c10::ScalarType>(scalar_type));
    at::from_blob(to, {count}, type).add_(at::from_blob(const_cast<void*>(more), {count}, type));
    return 0;
  });
}

// Where ranks meet (`init_method="env://"`): served by whoever has `serves`, on `listener` where that is no -1.
int64_t tonnage_store(const char* host, int32_t port, int32_t serves, int32_t listener, int64_t milliseconds) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = serves != 0;
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(milliseconds);
    if (listener >= 0) options.masterListenFd = listener;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 8
    // Of 2.7 the store over libuv, which is the default, takes no socket that listens already; the legacy one does.
    if (listener >= 0) options.useLibUV = false;
#endif
    return reinterpret_cast<int64_t>(new c10d::TCPStore(host, options));
  });
}

int32_t tonnage_store_set(int64_t store, const char* key, const uint8_t* bytes, int64_t count) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    reinterpret_cast<c10d::TCPStore*>(store)->set(key, std::vector<uint8_t>(bytes, bytes + count));
    return 0;
  });
}

// Waits for a value, writes what there is room for and returns its length.
int64_t tonnage_store_get(int64_t store, const char* key, uint8_t* bytes, int64_t room) {
  return guarded(int64_t{-1}, [&]() -> int64_t {
    const std::vector<uint8_t> value = reinterpret_cast<c10d::TCPStore*>(store)->get(key);
    std::copy_n(value.begin(), std::min<int64_t>(room, value.size()), bytes);
    return static_cast<int64_t>(value.size());
  });
}
}
