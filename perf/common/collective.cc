// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A compressor for each rank of a row, and the size of a message as nccl-tests counts it.
#include "perf/common/collective.h"

#include <algorithm>
#include <cmath>

#include "perf/common/rank_state.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

void Collective::Prepare(const Case& row, const Options& options, RankState& state) const {
  if (!options.is_compressed()) return;
  state.compressor.reset();  // before the next one is allocated
  state.compressor = NewCompressor(row, options, state, kModelTensorId);
}

CompressorHandle Collective::NewCompressor(const Case& row, const Options& options,
                                           const RankState& state, uint32_t tensor_id) const {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = *collective();
  options.Configure(&config);
  config.tensorId = tensor_id;
  if (options.device.is_cuda) config.memory = onebitMemoryDevice;  // of the thread's device
  onebitCompressor_t compressor = nullptr;
  Check(onebitCompressorCreate(&compressor, state.comm.get(), CompressorCount(row), row.type,
                               &config),
        "onebitCompressorCreate");
  return CompressorHandle(compressor);
}

void Collective::Reset(RankState& state) const { ResetCompressor(state.compressor); }

void Collective::ResetCompressor(const CompressorHandle& compressor) {
  if (compressor == nullptr) return;
  Check(onebitCompressorReset(compressor.get()), "onebitCompressorReset");
}

size_t Collective::BytesOf(const Case& row) const {
  return MessageBytes(ShapeOf(row, 0), row.type);
}

double ExactResult(const Case& row, std::span<const SeededInput> inputs, size_t i) {
  double exact = inputs[0].At(i);
  for (const SeededInput& input : inputs.subspan(1)) {
    const double next = input.At(i);
    exact = row.op == onebitMax   ? std::max(exact, next)
            : row.op == onebitMin ? std::min(exact, next)
                                  : exact + next;
  }
  // Other integers are too small to wrap.
  if (row.type == onebitUint8) exact = std::fmod(exact, 256);
  if (row.op == onebitAvg) exact /= row.ranks;
  return IsInteger(row.type) ? std::trunc(exact) : exact;
}

size_t MessageBytes(const Shape& shape, onebitDataType_t type) {
  return std::max(shape.send_elements, shape.recv_elements) * ElementBytes(type);
}

}  // namespace onebit::perf
