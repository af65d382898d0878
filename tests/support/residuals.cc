// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads residuals of the current generation behind a handle.
#include "tests/support/residuals.h"

#include "api/handles.h"
#include "kernels/reference/elements.h"

namespace onebit::testing {
namespace {

std::vector<std::byte> Bytes(const std::byte* residual, size_t count, kernels::DataType type) {
  if (residual == nullptr) return {};
  return {residual, residual + count * kernels::BytesOf(type)};
}

std::vector<float> Floats(const std::byte* residual, size_t count, kernels::DataType type) {
  std::vector<float> values(count, 0.0f);
  for (size_t i = 0; i < count && residual != nullptr; ++i) {
    values[i] = kernels::reference::LoadElement(residual, type, i);
  }
  return values;
}

// Without feedback they count as zeros.
size_t WorkerElements(const Compressor::Config& config) {
  return config.worker_count.value_or(config.elements());
}

}  // namespace

Residuals ResidualsOf(onebitCompressor_t compressor) {
  const Compressor& state = compressor->planned.compressor;
  const Compressor::Config& config = state.config();
  return {Bytes(state.worker_base(), WorkerElements(config), config.residual_type),
          Bytes(state.server_in(0), config.server_elements, config.residual_type)};
}

std::vector<float> WorkerResidualOf(onebitCompressor_t compressor) {
  const Compressor& state = compressor->planned.compressor;
  return Floats(state.worker_base(), WorkerElements(state.config()), state.config().residual_type);
}

std::vector<float> ServerResidualOf(onebitCompressor_t compressor) {
  const Compressor& state = compressor->planned.compressor;
  return Floats(state.server_in(0), state.config().server_elements, state.config().residual_type);
}

}  // namespace onebit::testing
