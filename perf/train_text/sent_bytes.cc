// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/sent_bytes.h"

#include "onebit/onebit.hpp"
#include "perf/common/comm_stats.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"

namespace onebit::train {

perf::WireShape CompressedShape(const TrainOptions& options, onebitComm_t comm,
                                const ModelLayout& layout) {
  const size_t count = layout.parameter_count();
  const onebitCompressorConfig_t config = CompressorConfigOf(options);
  UniqueCompressor compressor;
  const onebitDataType_t type = options.codec ? options.gradient_type : onebitFloat32;
  perf::Check(MakeCompressor(compressor, comm, count, type, &config), "onebitCompressorCreate");
  const onebitCompressorStats_t stats = perf::StatsOf(compressor.get());

  perf::WireShape shape;
  shape.count = count;
  shape.ranks = static_cast<size_t>(perf::CountOf(comm));
  shape.packet = CompressionOf(options).packet();
  shape.exchanges = stats.exchanges;
  shape.segments = stats.segments;
  if (HasScalesOfTensors(options)) {
    for (const Tensor& tensor : std::span(layout.tensors()).subspan(1)) {
      shape.cuts.push_back(tensor.offset);
    }
  }
  return shape;
}

uint64_t ExpectedBytes(const TrainOptions& options, const perf::WireShape& compressed,
                       const SentCalls& calls) {
  if (compressed.ranks == 1) return 0;
  const uint64_t per_segment = compressed.ranks - 1;
  uint64_t bytes = calls.compressed * perf::CompressedWireBytes(compressed, 0);
  if (calls.dense > 0) {
    const uint64_t compressed_messages =
        calls.compressed * compressed.exchanges * compressed.segments * per_segment;
    perf::WireShape dense = compressed;
    dense.segments = (calls.messages - compressed_messages) / (2 * per_segment * calls.dense);
    const size_t element_bytes = options.gradient_type == onebitFloat32 ? 4 : 2;
    bytes += calls.dense * perf::DenseWireBytes(dense, element_bytes, 0);
  }
  return bytes;
}

uint64_t ExpectedOuterBytes(const TrainOptions& options, int ranks, const OuterOptimizer& outer) {
  if (ranks == 1) return 0;
  uint64_t bytes = 0;
  for (const OuterOptimizer::Sent& sent : outer.SentByFragments()) {
    perf::WireShape shape;
    shape.count = sent.count;
    shape.ranks = static_cast<size_t>(ranks);
    if (options.codec) {
      shape.packet = CompressionOf(options).packet();
      shape.exchanges = sent.shape.exchanges;
      shape.segments = sent.shape.segments;
      shape.cuts = sent.cuts;
      bytes += sent.averages * perf::CompressedWireBytes(shape, 0);
    } else {
      shape.segments = sent.flush_messages / (2 * (shape.ranks - 1));
      bytes += sent.averages * perf::DenseWireBytes(shape, sizeof(float), 0);
    }
  }
  return bytes;
}

}  // namespace onebit::train
