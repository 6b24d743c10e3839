// What went wrong in a call, kept for the thread that made it: no exception crosses the interface.
#pragma once
#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <string>

// The same numbers as `ErrorKind` in src/error.rs.
enum ErrorKind : int32_t {
  OPERATOR = 1,
  OUT_OF_MEMORY = 2,
  // A recomputation has all it needs; not a failure.
  STOPPED = 3,
  // The function that a checkpoint runs again failed; its own error is with the caller.
  RECOMPUTATION = 4,
};

static thread_local std::string last_text;
static thread_local int32_t last_kind = 0;

// Ends a recomputation early, as PyTorch's _StopRecomputationError does.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "all is recomputed"; }
};

struct RecomputationFailed : std::exception {
  const char* what() const noexcept override { return "a checkpointed function failed when it was run again"; }
};

static void remember(ErrorKind kind, const char* text) {
  last_kind = kind;
  last_text = text;
}

// Runs `body` and returns its result, or `failed` with the error remembered.
template <typename Body, typename Result>
static Result guarded(Result failed, Body body) noexcept {
  try {
    return body();
  } catch (const Stopped& error) {
    remember(STOPPED, error.what());
  } catch (const RecomputationFailed& error) {
    remember(RECOMPUTATION, error.what());
  } catch (const c10::OutOfMemoryError& error) {
    remember(OUT_OF_MEMORY, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    remember(OPERATOR, error.what_without_backtrace());
  } catch (const std::exception& error) {
    remember(OPERATOR, error.what());
  } catch (...) {
    remember(OPERATOR, "an exception of unknown type");
  }
  return failed;
}

extern "C" const char* tonnage_error(int32_t* kind) {
  *kind = last_kind;
  return last_text.c_str();
}
