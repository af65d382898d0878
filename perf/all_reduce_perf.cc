// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitAllReduce over message sizes, in the manner of nccl-tests.
#include <algorithm>

#include "perf/common/all_reduce_reference.h"
#include "perf/common/bandwidth.h"
#include "perf/common/collective.h"
#include "perf/common/elements.h"
#include "perf/common/sweep.h"
#include "perf/common/wire.h"

namespace onebit::perf {
namespace {

class AllReduce : public Collective {
 public:
  std::string_view tool() const override { return "all_reduce_perf"; }
  const char* call() const override { return "onebitAllReduce"; }
  onebitCollective_t collective() const override { return onebitCollectiveAllReduce; }

  size_t CountOf(size_t bytes, onebitDataType_t type, int /*ranks*/) const override {
    return bytes / ElementBytes(type);
  }
  Shape ShapeOf(const Case& row, int /*rank*/) const override { return {row.count, row.count, 0}; }

  double BusFactor(int ranks) const override { return AllReduceFactor(ranks); }
  double DenseOptimalBytes(size_t bytes, int ranks) const override {
    return AllReduceFactor(ranks) * static_cast<double>(bytes);
  }

  uint64_t WireBound(const Case& row, const Options& options,
                     const WireFacts& facts) const override {
    WireShape shape;
    shape.count = row.count;
    shape.ranks = static_cast<size_t>(row.ranks);
    shape.block = static_cast<size_t>(options.block);
    shape.exchanges = facts.exchanges;
    shape.segments = facts.segments;
    return options.is_compressed() ? MaxCompressedWireBytes(shape)
                                   : MaxDenseWireBytes(shape, ElementBytes(row.type));
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitAllReduce(call.send, call.recv, row.count, row.type, row.op, call.compressor,
                           call.comm, call.stream);
  }

  // Every rank looks at its part of the result, which is the same on all.
  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    const size_t share = (row.count + inputs.size() - 1) / inputs.size();
    const size_t begin = std::min(static_cast<size_t>(rank) * share, row.count);
    const size_t end = std::min(begin + share, row.count);
    ErrorNorm norm;
    for (size_t i = begin; i < end; ++i) {
      double exact = 0;
      for (const SeededInput& input : inputs) exact += input.At(i);
      if (row.op == onebitAvg) exact /= row.ranks;
      const double error = ElementAt(output, row.type, i) - exact;
      norm.error += error * error;
      norm.exact += exact * exact;
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeAllReduceReference(row, options);
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::AllReduce(),
      "Time and check onebitAllReduce over message sizes, dense or compressed.");
}
