// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the checked calls beside the scalar model and counts elements that differ.
#include "perf/common/row_checker.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "perf/common/elements.h"
#include "perf/common/error.h"

namespace onebit::perf {
namespace {

constexpr int kCompressedCalls = 3;

// One pass over one kind of buffers.
class Pass {
 public:
  Pass(const Collective& collective, const Case& row, Ranks& ranks, Reference& reference,
       bool is_in_place)
      : collective_(collective),
        row_(row),
        ranks_(ranks),
        reference_(reference),
        is_in_place_(is_in_place),
        differences_(static_cast<size_t>(ranks.count())) {}

  void ResetCompressors() {
    ranks_.pool().Run([this](int rank) {
      onebitCompressor_t compressor = ranks_.state(rank).compressor.get();
      if (compressor != nullptr) Check(onebitCompressorReset(compressor), "onebitCompressorReset");
    });
  }

  // The reference runs along out of place and remembers; in place gets the same inputs again.
  void Call(int call, uint64_t seed) {
    ranks_.pool().Run([&](int rank) {
      FillSeeded(ranks_.state(rank).send.data(), ShapeOf(rank).send_elements, row_.type, seed,
                 rank);
    });
    if (!is_in_place_) reference_.Advance(ranks_.sends());
    ranks_.pool().Run([&](int rank) { CallRank(call, rank); });
    if (!is_in_place_) reference_.Observe(ranks_.sends(), ranks_.recvs());
    for (int rank = 0; rank < ranks_.count(); ++rank) Note(call, rank);
  }

  uint64_t wrong() const { return wrong_; }
  const std::string& problem() const { return problem_; }

 private:
  Shape ShapeOf(int rank) const { return collective_.ShapeOf(row_, rank); }

  void CallRank(int call, int rank) {
    RankState& state = ranks_.state(rank);
    const Shape shape = ShapeOf(rank);
    const size_t element_bytes = ElementBytes(row_.type);
    const size_t recv_bytes = shape.recv_elements * element_bytes;
    const std::byte* send = state.send.data();
    // What an earlier call left must not pass for a result.
    if (recv_bytes > 0) std::memset(state.recv.data(), 0xa5, recv_bytes);
    if (is_in_place_) {
      std::byte* start = state.recv.data() + shape.in_place_send_offset * element_bytes;
      if (shape.send_elements > 0) std::memcpy(start, send, shape.send_elements * element_bytes);
      send = start;
    }
    Check(collective_.Run(row_, send, state.recv.data(), state.compressor.get(), state.comm.get()),
          collective_.call());
    differences_[static_cast<size_t>(rank)] =
        CompareElements(state.recv.data(), reference_.Expected(static_cast<size_t>(call), rank),
                        shape.recv_elements, row_.type);
  }

  void Note(int call, int rank) {
    const Difference& difference = differences_[static_cast<size_t>(rank)];
    wrong_ += difference.count;
    if (difference.count == 0 || !problem_.empty()) return;
    problem_ = fmt::format(
        "{} bytes, {}, call {} from fresh residuals: rank {} has {} wrong elements, the first is "
        "element {}: {} instead of {}",
        row_.count * ElementBytes(row_.type), is_in_place_ ? "in place" : "out of place", call + 1,
        rank, difference.count, difference.first,
        ElementAt(ranks_.state(rank).recv.data(), row_.type, difference.first),
        ElementAt(reference_.Expected(static_cast<size_t>(call), rank), row_.type,
                  difference.first));
  }

  const Collective& collective_;
  const Case& row_;
  Ranks& ranks_;
  Reference& reference_;
  const bool is_in_place_;
  std::vector<Difference> differences_;  // of the last call, [rank]
  uint64_t wrong_ = 0;
  std::string problem_;
};

}  // namespace

CheckResult CheckRow(const Collective& collective, const Case& row, const Options& options,
                     Ranks& ranks) {
  CheckResult result;
  const int calls = options.is_compressed() ? kCompressedCalls : 1;
  for (int pass = 0; pass < options.checks; ++pass) {
    const std::unique_ptr<Reference> reference = collective.MakeReference(row, options);
    for (bool is_in_place : {false, true}) {
      Pass checked(collective, row, ranks, *reference, is_in_place);
      checked.ResetCompressors();
      for (int call = 0; call < calls; ++call) {
        checked.Call(call, 1 + static_cast<uint64_t>(pass * calls + call));
      }
      (is_in_place ? result.wrong_in_place : result.wrong_out_of_place) += checked.wrong();
      if (result.problem.empty()) result.problem = checked.problem();
    }
    const uint64_t lost = reference->CountLostElements();
    result.wrong_out_of_place += lost;
    if (lost > 0 && result.problem.empty()) {
      result.problem = fmt::format(
          "{} bytes: outputs and the model's residuals do not add up to the inputs in {} elements",
          row.count * ElementBytes(row.type), lost);
    }
  }
  return result;
}

double RelativeErrorOfFirstCall(const Collective& collective, const Case& row, Ranks& ranks) {
  ranks.pool().Run([&](int rank) {
    RankState& state = ranks.state(rank);
    Check(collective.Run(row, state.send.data(), state.recv.data(), state.compressor.get(),
                         state.comm.get()),
          collective.call());
  });
  std::vector<ErrorNorm> shares(static_cast<size_t>(ranks.count()));
  const std::vector<const void*> sends = ranks.sends();
  ranks.pool().Run([&](int rank) {
    shares[static_cast<size_t>(rank)] =
        collective.ErrorOf(row, sends, ranks.state(rank).recv.data(), rank);
  });
  ErrorNorm total;
  for (const ErrorNorm& share : shares) {
    total.error += share.error;
    total.exact += share.exact;
  }
  return total.exact > 0 ? std::sqrt(total.error / total.exact) : 0;
}

}  // namespace onebit::perf
