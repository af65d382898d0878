// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitAllReduce over message sizes, in the manner of nccl-tests.
#include "perf/common/all_reduce_collective.h"
#include "perf/common/all_reduce_reference.h"
#include "perf/common/sweep_driver.h"
#include "perf/common/wire_bounds.h"

namespace onebit::perf {
namespace {

class AllReduce : public AllReduceCollective {
 public:
  std::string_view tool() const override { return "all_reduce_perf"; }
  const char* call() const override { return "onebitAllReduce"; }

  std::optional<TwoLevelCall> two_level_call() const override { return TwoLevelCall::kAllReduce; }

  uint64_t WireBound(const Case& row, const Options& options,
                     const WireFacts& facts) const override {
    WireShape shape;
    shape.count = row.count;
    shape.ranks = static_cast<size_t>(row.ranks);
    shape.packet = options.packet();
    shape.exchanges = facts.exchanges;
    shape.segments = facts.segments;
    return options.is_compressed() ? MaxCompressedWireBytes(shape)
                                   : MaxDenseWireBytes(shape, ElementBytes(row.type));
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitAllReduce(call.send, call.recv, row.count, row.type, row.op, call.compressor,
                           call.comm, call.stream);
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
