// Arguments and results of operators as plain values.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <cstring>

// The same numbers as `tag` in src/sys.rs.
enum Tag : int64_t {
  NONE = 0,
  TENSOR = 1,
  INT = 2,
  DOUBLE = 3,
  BOOL = 4,
  INTS = 5,
  TENSORS = 6,
  OPTIONAL_TENSORS = 7,
  STRING = 8,
  DEVICE = 9,
  DEFAULT = 10,
  DOUBLES = 11,
  BOOLS = 12,
};

// `first` is a number, a handle or an address, `second` a length or a device's index.
struct Value {
  int64_t tag;
  int64_t first;
  int64_t second;
};

static at::Tensor& tensor_of(int64_t handle) { return *reinterpret_cast<at::Tensor*>(handle); }

static int64_t handle_of(at::Tensor tensor) { return reinterpret_cast<int64_t>(new at::Tensor(std::move(tensor))); }

static double double_of(int64_t bits) {
  double number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static int64_t bits_of(double number) {
  int64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static bool wants_double(const c10::Argument& argument) {
  auto type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::FloatType;
}

template <typename Element>
static c10::List<Element> list_of(const Value& value) {
  return c10::List<Element>(c10::ArrayRef<Element>(reinterpret_cast<const Element*>(value.first), value.second));
}

static c10::List<bool> bools_of(const Value& value) {
  auto numbers = reinterpret_cast<const uint8_t*>(value.first);
  c10::List<bool> list;
  for (int64_t i = 0; i < value.second; i++) list.push_back(numbers[i] != 0);
  return list;
}

static c10::List<at::Tensor> tensors_of(const Value& value) {
  auto handles = reinterpret_cast<const int64_t*>(value.first);
  c10::List<at::Tensor> list;
  list.reserve(value.second);
  for (int64_t i = 0; i < value.second; i++) list.push_back(tensor_of(handles[i]));
  return list;
}

static c10::List<std::optional<at::Tensor>> optional_tensors_of(const Value& value) {
  auto handles = reinterpret_cast<const int64_t*>(value.first);
  c10::List<std::optional<at::Tensor>> list;
  list.reserve(value.second);
  for (int64_t i = 0; i < value.second; i++) {
    list.push_back(handles[i] ? std::optional<at::Tensor>(tensor_of(handles[i])) : std::nullopt);
  }
  return list;
}

static c10::IValue ivalue_of(const Value& value, const c10::Argument& argument) {
  switch (value.tag) {
    case NONE: return c10::IValue();
    case TENSOR: return tensor_of(value.first);
    case INT:
      // A schema's float takes no int when it is called boxed.
      if (wants_double(argument)) return static_cast<double>(value.first);
      return value.first;
    case DOUBLE: return double_of(value.first);
    case BOOL: return value.first != 0;
    case INTS: return list_of<int64_t>(value);
    case TENSORS: return tensors_of(value);
    case OPTIONAL_TENSORS: return optional_tensors_of(value);
    case STRING: return std::string(reinterpret_cast<const char*>(value.first), value.second);
    case DEVICE: return c10::Device(static_cast<c10::DeviceType>(value.first), static_cast<c10::DeviceIndex>(value.second));
    case DOUBLES: return list_of<double>(value);
    case BOOLS: return bools_of(value);
    default: TORCH_CHECK(false, "no value has the tag ", value.tag);
  }
}
