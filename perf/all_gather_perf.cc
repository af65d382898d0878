// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitAllGather over message sizes, in the manner of nccl-tests.
#include "perf/common/chunks_collective.h"
#include "perf/common/chunks_reference.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class AllGather : public ChunksCollective {
 public:
  std::string_view tool() const override { return "all_gather_perf"; }
  const char* call() const override { return "onebitAllGather"; }
  std::optional<onebitCollective_t> collective() const override {
    return onebitCollectiveAllGather;
  }
  std::optional<TwoLevelCall> two_level_call() const override { return TwoLevelCall::kAllGather; }
  bool has_op() const override { return false; }

  Shape ShapeOf(const Case& row, int rank) const override {
    return {.send_elements = row.count,
            .recv_elements = row.count * static_cast<size_t>(row.ranks),
            .in_place_send_offset = row.count * static_cast<size_t>(rank)};
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitAllGather(call.send, call.recv, row.count, row.type, call.compressor, call.comm,
                           call.stream);
  }

  // All ranks have the same result, so each measures the error of its neighbor's part.
  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    const size_t owner = (static_cast<size_t>(rank) + 1) % inputs.size();
    for (size_t i = 0; i < row.count; ++i) {
      AddError(row, output, owner * row.count + i, inputs[owner].At(i), &norm);
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeAllGatherReference(row, options);
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::AllGather(),
      "Time and check onebitAllGather over message sizes, dense or compressed.");
}
