// A C interface over libtorch: every operator by name through the dispatcher, and what is no operator. One translation unit,
// because libtorch's headers are what takes the time to compile.
#include "error.h"
#include "values.h"
#include "operators.cpp"
#include "tensors.cpp"
#include "autograd.cpp"
#include "checkpoint.cpp"
#include "devices.cpp"
