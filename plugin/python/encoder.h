// plugin/python/encoder.h: the encoder as a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "core/run/runtime.h"

namespace jge {

// The runtime of a driver, "cuda" or "host". Throws Error (invalid_argument) for another name.
Runtime& runtime_of(const std::string& driver);

// Adds the classes Program and Encoder, which jax_graphenc/encoder.py makes pleasant, and what goes
// with them.
void bind_encoder(nanobind::module_& m);

}  // namespace jge
