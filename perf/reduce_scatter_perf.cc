// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitReduceScatter over message sizes, in the manner of nccl-tests.
#include "perf/common/chunks_collective.h"
#include "perf/common/chunks_reference.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class ReduceScatter : public ChunksCollective {
 public:
  std::string_view tool() const override { return "reduce_scatter_perf"; }
  const char* call() const override { return "onebitReduceScatter"; }
  std::optional<onebitCollective_t> collective() const override {
    return onebitCollectiveReduceScatter;
  }
  std::optional<TwoLevelCall> two_level_call() const override {
    return TwoLevelCall::kReduceScatter;
  }

  Shape ShapeOf(const Case& row, int rank) const override {
    const size_t all = row.count * static_cast<size_t>(row.ranks);
    return {.send_elements = all,
            .recv_elements = row.count,
            .in_place_recv_offset = row.count * static_cast<size_t>(rank)};
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitReduceScatter(call.send, call.recv, row.count, row.type, row.op, call.compressor,
                               call.comm, call.stream);
  }

  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    const size_t begin = row.count * static_cast<size_t>(rank);
    for (size_t i = 0; i < row.count; ++i) {
      AddError(row, output, i, ExactResult(row, inputs, begin + i), &norm);
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeReduceScatterReference(row, options);
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::ReduceScatter(),
      "Time and check onebitReduceScatter over message sizes, dense or compressed.");
}
