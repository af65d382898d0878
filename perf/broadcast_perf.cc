// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitBroadcast over message sizes, in the manner of nccl-tests.
#include <algorithm>
#include <cstring>

#include "perf/common/all_reduce_reference.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class BroadcastReference : public AllReduceReference {
 public:
  using AllReduceReference::AllReduceReference;

 private:
  void Simulate(std::span<const void* const> inputs, void* output) override {
    if (row_.count == 0) return;
    std::memcpy(output, inputs[static_cast<size_t>(row_.root)],
                row_.count * ElementBytes(row_.type));
  }
};

class Broadcast : public Collective {
 public:
  std::string_view tool() const override { return "broadcast_perf"; }
  const char* call() const override { return "onebitBroadcast"; }
  std::optional<onebitCollective_t> collective() const override { return std::nullopt; }
  std::optional<TwoLevelCall> two_level_call() const override { return TwoLevelCall::kBroadcast; }
  bool has_op() const override { return false; }
  bool has_root() const override { return true; }
  size_t dense_exchanges() const override { return 1; }

  size_t CountOf(size_t bytes, onebitDataType_t type, int /*ranks*/) const override {
    return bytes / ElementBytes(type);
  }
  Shape ShapeOf(const Case& row, int /*rank*/) const override { return {row.count, row.count}; }

  double BusFactor(int /*ranks*/) const override { return 1; }

  // A short message takes one exchange, in which the root sends all of it to each rank. A long one
  // takes two: the root sends every other rank a chunk, and these send theirs to each other. All
  // pairs exchange headers, of which `facts` has the number.
  uint64_t WireBound(const Case& row, const Options& /*options*/,
                     const WireFacts& facts) const override {
    if (row.ranks == 1) return 0;
    const auto peers = static_cast<uint64_t>(row.ranks - 1);
    const uint64_t bytes = row.count * ElementBytes(row.type);
    const uint64_t headers = facts.segments * peers * kHeaderBytes;
    if (IsShort(bytes, peers)) return headers + peers * bytes;
    constexpr uint64_t kAlignment = 64;  // of chunks, in elements
    const uint64_t chunk = CeilDivide(row.count, peers * kAlignment) * kAlignment;
    return headers + std::max(bytes, (peers - 1) * chunk * ElementBytes(row.type));
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    return onebitBroadcast(call.send, call.recv, row.count, row.type, row.root, call.comm,
                           call.stream);
  }

  // All ranks have the same result, so each measures the error of its share.
  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    for (auto i = static_cast<size_t>(rank); i < row.count; i += inputs.size()) {
      const double exact = inputs[static_cast<size_t>(row.root)].At(i);
      const double error = ElementAt(output, row.type, i) - exact;
      norm.error += error * error;
      norm.exact += exact * exact;
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options&) const override {
    return std::make_unique<BroadcastReference>(row);
  }

 private:
  // A second exchange saves the root all but one of its copies, and costs as much time as these
  // bits more.
  static bool IsShort(uint64_t bytes, uint64_t peers) {
    constexpr uint64_t kBitsOfAnExchange = 12'288;
    return peers == 1 || 8 * (peers - 1) * bytes <= kBitsOfAnExchange;
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(argc, argv, onebit::perf::Broadcast(),
                                    "Time and check onebitBroadcast over message sizes.");
}
