// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar models of all ranks' calls with one tensor of a case, behind one interface.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tests/generator/case.h"
#include "tests/generator/expected.h"

namespace onebit::testing::generator {

struct Buffers {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// All ranks' calls with one tensor.
class Model {
 public:
  Model() = default;
  Model(const Model&) = default;
  virtual ~Model() = default;
  virtual std::unique_ptr<Model> Clone() const = 0;
  virtual void Run(int round, const Buffers& buffers) = 0;
  virtual void SetMask(const Bytes& mask) = 0;
  virtual void Reset() = 0;            // residuals become zero
  virtual void LoadGlobalState() = 0;  // residuals become those that a state of all ranks brings
  // What a call in full precision needs to know, and does to the residuals.
  virtual std::vector<float> Worker(size_t /*rank*/) const { return {}; }
  virtual std::vector<float> Server() const { return {}; }
  virtual void Settle() { Reset(); }
  virtual void Hold(std::span<const float> /*values*/) {}
};

std::unique_ptr<Model> MakeModel(const Case& c, int tensor);

inline int64_t Or(int64_t value, int64_t fallback) { return value == kDefault ? fallback : value; }

// True of all elements without a mask.
inline bool BitAt(const Bytes& mask, size_t i) {
  return mask.empty() || (std::to_integer<unsigned>(mask[i / 8]) >> (i % 8) & 1u) != 0;
}

}  // namespace onebit::testing::generator
