// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of onebitSend and onebitRecv over message sizes, in the manner of nccl-tests: every rank
// sends to the next one and receives from the one before, in one group.
#include <cstdint>

#include "perf/common/rank_exchange.h"
#include "perf/common/rank_state.h"
#include "perf/common/ring_reference.h"
#include "perf/common/sweep_driver.h"

namespace onebit::perf {
namespace {

class SendRecv : public Collective {
 public:
  std::string_view tool() const override { return "sendrecv_perf"; }
  const char* call() const override { return "a group of onebitSend and onebitRecv"; }
  std::optional<onebitCollective_t> collective() const override { return onebitCollectiveSendRecv; }
  bool has_op() const override { return false; }
  bool has_in_place() const override { return false; }
  size_t dense_exchanges() const override { return 1; }

  // A rank has a compressor for each of its neighbours, with the tensor id of the pair's sender.
  void Prepare(const Case& row, const Options& options, RankState& state) const override {
    if (!options.is_compressed()) return;
    const int rank = RankOf(state.comm.get());
    state.compressor.reset();  // before the next ones are allocated
    state.receiver.reset();
    state.compressor = NewCompressor(row, options, state, RingTensorId(rank));
    // A rank alone sends to itself, which needs another id for each side.
    const int before = row.ranks == 1 ? 1 : RankBefore(row, rank);
    state.receiver = NewCompressor(row, options, state, RingTensorId(before));
  }
  void Reset(RankState& state) const override {
    Collective::Reset(state);
    ResetCompressor(state.receiver);
  }

  size_t CountOf(size_t bytes, onebitDataType_t type, int /*ranks*/) const override {
    return bytes / ElementBytes(type);
  }
  Shape ShapeOf(const Case& row, int /*rank*/) const override { return {row.count, row.count}; }

  double BusFactor(int /*ranks*/) const override { return 1; }

  uint64_t WireBound(const Case& row, const Options& options,
                     const WireFacts& /*facts*/) const override {
    if (row.ranks == 1) return 0;
    if (options.is_compressed()) return kHeaderBytes + options.packet().Bytes(row.count);
    const uint64_t bytes = row.count * ElementBytes(row.type);
    return options.transport == kTransportOfDevices ? bytes : kHeaderBytes + bytes;
  }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    const int rank = RankOf(call.comm);
    onebitResult_t result = onebitGroupStart();
    if (result != onebitSuccess) return result;
    // The end of a group reports the errors of its calls again.
    onebitSend(call.send, row.count, row.type, (rank + 1) % row.ranks, call.compressor, call.comm,
               call.stream);
    onebitRecv(call.recv, row.count, row.type, RankBefore(row, rank), call.receiver, call.comm,
               call.stream);
    return onebitGroupEnd();
  }

  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    ErrorNorm norm;
    const SeededInput& input = inputs[static_cast<size_t>(RankBefore(row, rank))];
    for (size_t i = 0; i < row.count; ++i) {
      const double exact = input.At(i);
      const double error = ElementAt(output, row.type, i) - exact;
      norm.error += error * error;
      norm.exact += exact * exact;
    }
    return norm;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeRingReference(row, options);
  }
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunSweepTool(
      argc, argv, onebit::perf::SendRecv(),
      "Time and check onebitSend and onebitRecv over message sizes: every rank sends to the next "
      "one and receives from the one before.");
}
