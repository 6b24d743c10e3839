// Gradients, grad mode and autocast.
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

// What autocast was before a scope.
struct AutocastState {
  int32_t enabled;
  int32_t scalar_type;
  int32_t caches;
};

static AutocastState autocast_state(c10::DeviceType device) {
  return {
      at::autocast::is_autocast_enabled(device),
      static_cast<int32_t>(at::autocast::get_autocast_dtype(device)),
      at::autocast::is_autocast_cache_enabled(),
  };
}

static void set_autocast(c10::DeviceType device, const AutocastState& state) {
  at::autocast::set_autocast_dtype(device, static_cast<c10::ScalarType>(state.scalar_type));
  at::autocast::set_autocast_enabled(device, state.enabled != 0);
  at::autocast::set_autocast_cache_enabled(state.caches != 0);
}

extern "C" {
int32_t tonnage_set_requires_grad(int64_t handle, int32_t on) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    tensor_of(handle).set_requires_grad(on != 0);
    return 0;
  });
}

int32_t tonnage_requires_grad(int64_t handle) { return tensor_of(handle).requires_grad(); }

// A handle of the gradient, or 0 where there is none.
int64_t tonnage_grad(int64_t handle) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    const at::Tensor& grad = tensor_of(handle).grad();
    return grad.defined() ? handle_of(grad) : 0;
  });
}

// `gradient` 0 takes it away.
int32_t tonnage_set_grad(int64_t handle, int64_t gradient) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    tensor_of(handle).mutable_grad() = gradient ? tensor_of(gradient) : at::Tensor();
    return 0;
  });
}

// Runs backward from `count` roots; a root's gradient may be 0 where the root has one element.
int32_t tonnage_backward(const int64_t* roots, const int64_t* gradients, int64_t count, int32_t keep_graph) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    torch::autograd::variable_list tensors, given;
    for (int64_t i = 0; i < count; i++) {
      tensors.push_back(tensor_of(roots[i]));
      given.push_back(gradients[i] ? tensor_of(gradients[i]) : at::Tensor());
    }
    torch::autograd::backward(tensors, given, keep_graph != 0);
    return 0;
  });
}

int32_t tonnage_grad_mode() { return c10::GradMode::is_enabled(); }

void tonnage_set_grad_mode(int32_t on) { c10::GradMode::set_enabled(on != 0); }

// As torch.autocast's __enter__: what was before goes to `before`.
int32_t tonnage_enter_autocast(int32_t device, const AutocastState* wanted, AutocastState* before) {
  return guarded(int32_t{-1}, [&]() -> int32_t {
    const auto type = static_cast<c10::DeviceType>(device);
    *before = autocast_state(type);
    set_autocast(type, *wanted);
    at::autocast::increment_nesting();
    return 0;
  });
}

// As torch.autocast's __exit__: the outermost scope gives up cached casts.
void tonnage_leave_autocast(int32_t device, const AutocastState* before) {
  guarded(int32_t{-1}, [&]() -> int32_t {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set_autocast(static_cast<c10::DeviceType>(device), *before);
    return 0;
  });
}
}
