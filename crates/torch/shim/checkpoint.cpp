// torch.utils.checkpoint.checkpoint(use_reentrant=False), early stop included, without Python: hooks on saved tensors come from an
// autograd engine of our own. Names as in torch/utils/checkpoint.py.
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <vector>

// Runs the function again; 0 when it came to its end or was stopped, else it failed.
using Recompute = int32_t (*)(void*);
using Release = void (*)(void*);

// The state of random number generators before the function ran, so that dropout drops the same again.
struct RandomState {
  std::vector<at::Generator> generators;
  std::vector<at::Tensor> states;

  static RandomState now(const c10::Device& device) {
    RandomState state;
    state.remember(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)));
    if (device.type() != c10::kCPU) state.remember(at::globalContext().defaultGenerator(device));
    return state;
  }

  void remember(at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.push_back(generator.get_state());
    generators.push_back(std::move(generator));
  }

  RandomState exchange() const {
    RandomState before;
    for (size_t i = 0; i < generators.size(); i++) {
      before.remember(generators[i]);
      at::Generator generator = generators[i];
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(states[i]);
    }
    return before;
  }
};

struct Frame {
  Recompute recompute;
  Release release;
  void* function;
  c10::Device device;
  RandomState random;
  AutocastState cpu_autocast;
  AutocastState device_autocast;
  // Which holders still live: a node that is gone needs its tensors no more.
  std::vector<bool> holders;
  std::vector<at::Tensor> recomputed;
  size_t counter = 0;
  bool is_recomputed = false;

  Frame(Recompute recompute, Release release, void* function, c10::Device device)
      : recompute(recompute), release(release), function(function), device(device), random(RandomState::now(device)),
        cpu_autocast(autocast_state(c10::kCPU)), device_autocast(autocast_state(device.type())) {}
  ~Frame() { release(function); }

  void run_again();
};

// The checkpoint whose function runs forward, and the one that is recomputed, on this thread.
static thread_local std::shared_ptr<Frame> packing;
static thread_local Frame* recomputing = nullptr;

// Puts back what a recomputation changes of its thread.
struct ThreadScope {
  std::shared_ptr<Frame> packed = std::move(packing);
  Frame* outer = recomputing;
  bool grad_mode = c10::GradMode::is_enabled();
  c10::DeviceType device;
  AutocastState cpu, other;
  RandomState random;

  explicit ThreadScope(Frame& frame)
      : device(frame.device.type()), cpu(autocast_state(c10::kCPU)), other(autocast_state(device)),
        random(frame.random.exchange()) {
    packing = nullptr;
    recomputing = &frame;
    c10::GradMode::set_enabled(true);
    set_autocast(device, frame.device_autocast);
    if (device != c10::kCPU) set_autocast(c10::kCPU, frame.cpu_autocast);
    at::autocast::increment_nesting();
  }

  ~ThreadScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    if (device != c10::kCPU) set_autocast(c10::kCPU, cpu);
    set_autocast(device, other);
    c10::GradMode::set_enabled(grad_mode);
    recomputing = outer;
    packing = std::move(packed);
    random.exchange();
  }
};

void Frame::run_again() {
  is_recomputed = true;
  recomputed.resize(holders.size());
  const ThreadScope scope(*this);
  if (recompute(function) != 0) throw RecomputationFailed();
  TORCH_CHECK(counter == holders.size(), "a checkpointed function saved ", holders.size(),
      " tensors when it ran first and ", counter, " when it was run again");
}

struct CheckpointHook : torch::autograd::SavedVariableHooks {
  std::shared_ptr<Frame> frame;
  size_t holder = 0;
  bool packed = false;

  explicit CheckpointHook(std::shared_ptr<Frame> frame) : frame(std::move(frame)) {}
  ~CheckpointHook() override {
    if (!packed) return;
    frame->holders[holder] = false;
    if (holder < frame->recomputed.size()) frame->recomputed[holder] = at::Tensor();
  }

  void call_pack_hook(const at::Tensor&) override {
    packed = true;
    holder = frame->holders.size();
    frame->holders.push_back(true);
  }

  at::Tensor call_unpack_hook() override {
    if (!frame->is_recomputed) frame->run_again();
    TORCH_CHECK(frame->recomputed[holder].defined(), "a checkpointed tensor is asked for a second time");
    return std::move(frame->recomputed[holder]);
  }
};

struct RecomputationHook : torch::autograd::SavedVariableHooks {
  Frame* frame;
  at::Tensor saved;

  explicit RecomputationHook(Frame* frame) : frame(frame) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    saved = tensor.requires_grad() ? tensor.detach() : tensor;
    const size_t holder = frame->counter++;
    if (holder < frame->holders.size() && frame->holders[holder]) frame->recomputed[holder] = saved;
    if (frame->counter == frame->holders.size()) throw Stopped();
  }

  at::Tensor call_unpack_hook() override { return saved; }
};

struct CheckpointingEngine : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (recomputing) return std::make_unique<RecomputationHook>(recomputing);
    if (packing) return std::make_unique<CheckpointHook>(packing);
    return nullptr;
  }
};

// Never destroyed: its threads may still run when the process ends.
static torch::autograd::Engine& checkpointing_engine() {
  static auto* engine = new CheckpointingEngine();
  return *engine;
}

extern "C" {
void tonnage_use_checkpoints() {
  torch::autograd::set_default_engine_stub(&checkpointing_engine);
  at::SavedTensorDefaultHooks::lazy_initialize();
  at::SavedTensorDefaultHooks::enable();
}

// From here to `tonnage_end_checkpoint` saved tensors are holders only. `function` is released in any case, once.
int32_t tonnage_begin_checkpoint(Recompute recompute, Release release, void* function, int32_t device, int32_t index) {
  std::shared_ptr<Frame> frame;
  const int32_t code = guarded(int32_t{-1}, [&]() -> int32_t {
    const c10::Device where(static_cast<c10::DeviceType>(device), static_cast<c10::DeviceIndex>(index));
    TORCH_CHECK(!packing, "a checkpoint inside another is not supported");
    frame = std::make_shared<Frame>(recompute, release, function, where);
    return 0;
  });
  if (!frame) {
    release(function);
    return code;
  }
  packing = std::move(frame);
  return 0;
}

void tonnage_end_checkpoint() { packing = nullptr; }
}
