// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitAllToAll over message sizes, in the manner of nccl-tests.
#include "perf/common/chunks_collective.h"
#include "perf/common/chunks_reference.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class AllToAll : public ChunksCollective {
 public:
  std::string_view tool() const override { return "alltoall_perf"; }
  const char* call() const override { return "onebitAllToAll"; }
  std::optional<onebitCollective_t> collective() const override { return onebitCollectiveAllToAll; }
  bool has_op() const override { return false; }
  bool has_in_place() const override { return false; }

  Shape ShapeOf(const Case& row, int /*rank*/) const override {
    const size_t all = row.count * static_cast<size_t>(row.ranks);
    return {.send_elements = all, .recv_elements = all};
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitAllToAll(call.send, call.recv, row.count, row.type, call.compressor, call.comm,
                          call.stream);
  }

  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    for (size_t from = 0; from < inputs.size(); ++from) {
      for (size_t i = 0; i < row.count; ++i) {
        AddError(row, output, from * row.count + i,
                 inputs[from].At(static_cast<size_t>(rank) * row.count + i), &norm);
      }
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeAllToAllReference(row, options);
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::AllToAll(),
      "Time and check onebitAllToAll over message sizes, dense or compressed.");
}
