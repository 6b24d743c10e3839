// Operators by name and overload.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <deque>

// Results beyond the room that the caller gave, fetched one by one.
static thread_local std::deque<Value> further_results;

static void add_results(const c10::IValue& result, std::deque<Value>& results) {
  if (result.isTensor()) {
    const at::Tensor& tensor = result.toTensor();
    if (tensor.defined()) results.push_back({TENSOR, handle_of(tensor), 0});
    else results.push_back({NONE, 0, 0});
  } else if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) results.push_back({TENSOR, handle_of(tensor), 0});
  } else if (result.isBool()) {
    results.push_back({BOOL, result.toBool(), 0});
  } else if (result.isInt()) {
    results.push_back({INT, result.toInt(), 0});
  } else if (result.isDouble()) {
    results.push_back({DOUBLE, bits_of(result.toDouble()), 0});
  } else if (result.isScalar()) {
    results.push_back({DOUBLE, bits_of(result.toScalar().toDouble()), 0});
  } else {
    results.push_back({NONE, 0, 0});
  }
}

extern "C" {
void* tonnage_operator(const char* name, const char* overload) {
  return guarded(static_cast<void*>(nullptr), [&]() -> void* {
    return new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  });
}

// Calls an operator with arguments in the schema's order; what is not given has the schema's default. Tensors are lent.
// Returns how many results there are (at most `room` of them in `results`), or -1.
int64_t tonnage_call(void* handle, const Value* arguments, int64_t given, Value* results, int64_t room) {
  return guarded(int64_t{-1}, [&]() -> int64_t {
    auto& op = *reinterpret_cast<c10::OperatorHandle*>(handle);
    const auto& schema = op.schema();
    const int64_t wanted = static_cast<int64_t>(schema.arguments().size());
    TORCH_CHECK(given <= wanted, schema.name(), " takes ", wanted, " arguments, not ", given);
    torch::jit::Stack stack;
    stack.reserve(wanted);
    for (int64_t i = 0; i < wanted; i++) {
      const auto& argument = schema.arguments()[i];
      if (i < given && arguments[i].tag != DEFAULT) {
        stack.push_back(ivalue_of(arguments[i], argument));
        continue;
      }
      TORCH_CHECK(argument.default_value().has_value(), schema.name(), ": `", argument.name(), "` has no default");
      stack.push_back(*argument.default_value());
    }
    op.callBoxed(stack);
    std::deque<Value> all;
    for (const auto& result : stack) add_results(result, all);
    const int64_t count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < room && !all.empty(); i++) {
      results[i] = all.front();
      all.pop_front();
    }
    further_results = std::move(all);
    return count;
  });
}

void tonnage_next_result(Value* result) {
  *result = further_results.front();
  further_results.pop_front();
}
}
