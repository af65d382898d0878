// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitAllToAllv over message sizes. Ranks send each other different counts, which follow
// from a seed; the size of a row is that of the largest buffer of a rank.
#include <algorithm>

#include "perf/common/chunks_collective.h"
#include "perf/common/ragged_counts.h"
#include "perf/common/ragged_reference.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class AllToAllv : public ChunksCollective {
 public:
  std::string_view tool() const override { return "alltoallv_perf"; }
  const char* call() const override { return "onebitAllToAllv"; }
  std::optional<onebitCollective_t> collective() const override {
    return onebitCollectiveAllToAllv;
  }
  bool has_op() const override { return false; }
  bool has_in_place() const override { return false; }
  bool is_ragged() const override { return true; }

  Shape ShapeOf(const Case& row, int rank) const override {
    return {.send_elements = SentRanges(row, rank).total,
            .recv_elements = ReceivedRanges(row, rank).total};
  }
  size_t BytesOf(const Case& row) const override {
    size_t most = 0;
    for (int rank = 0; rank < row.ranks; ++rank) {
      most = std::max(most, MessageBytes(ShapeOf(row, rank), row.type));
    }
    return most;
  }
  // The largest number of bytes that leave a rank.
  double DenseOptimalBytes(const Case& row) const override {
    return static_cast<double>(
        MostSent(row, [&](size_t count) -> uint64_t { return count * ElementBytes(row.type); }));
  }

  uint64_t WireBound(const Case& row, const Options& options,
                     const WireFacts& facts) const override {
    const PacketRule packet = options.packet();
    const bool has_verdict = options.is_compressed() && packet.has_verdicts;
    const uint64_t headers = (facts.segments + (has_verdict ? 1 : 0)) * kHeaderBytes;
    return MostSent(row, [&](size_t count) {
      return headers +
             (options.is_compressed() ? packet.Bytes(count) : count * ElementBytes(row.type));
    });
  }

  size_t CompressorCount(const Case& /*row*/) const override { return 0; }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    const int rank = RankOf(call.comm);
    const Ranges sent = SentRanges(row, rank);
    const Ranges received = ReceivedRanges(row, rank);
    return onebitAllToAllv(call.send, sent.counts.data(), sent.begins.data(), call.recv,
                           received.counts.data(), received.begins.data(), row.type,
                           call.compressor, call.comm, call.stream);
  }

  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    const Ranges received = ReceivedRanges(row, rank);
    for (size_t from = 0; from < inputs.size(); ++from) {
      const size_t begin =
          SentRanges(row, static_cast<int>(from)).begins[static_cast<size_t>(rank)];
      for (size_t i = 0; i < received.counts[from]; ++i) {
        AddError(row, output, received.begins[from] + i, inputs[from].At(begin + i), &norm);
      }
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeAllToAllvReference(row, options);
  }

 private:
  // The largest sum over ranks of what `bytes_of` says of each count that goes to another rank.
  template <class BytesOfCount>
  static uint64_t MostSent(const Case& row, const BytesOfCount& bytes_of) {
    uint64_t most = 0;
    for (int from = 0; from < row.ranks; ++from) {
      uint64_t sent = 0;
      for (int to = 0; to < row.ranks; ++to) {
        if (to != from) sent += bytes_of(RaggedCount(row, from, to));
      }
      most = std::max(most, sent);
    }
    return most;
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::AllToAllv(),
      "Time and check onebitAllToAllv over message sizes, with counts that differ between ranks.");
}
