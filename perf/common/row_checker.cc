// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the checked calls beside the scalar model and counts elements that differ.
#include "perf/common/row_checker.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "perf/common/rank_exchange.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// The elements of an output that differ from the reference.
struct WrongElements {
  uint64_t count = 0;
  size_t first = 0;  // values at `first`
  double got = 0;
  double expected = 0;
};

// The inputs of all ranks in one call, for the reference. Those of remote ranks are generated
// again.
class AllInputs {
 public:
  explicit AllInputs(const Ranks& ranks) : remote_(static_cast<size_t>(ranks.count())) {}

  std::vector<const void*> Fill(const Collective& collective, const Case& row, uint64_t seed,
                                const Ranks& ranks) {
    std::vector<const void*> inputs;
    for (int rank = 0; rank < ranks.count(); ++rank) {
      if (ranks.is_local(rank)) {
        inputs.push_back(ranks.state(rank).send.data());
        continue;
      }
      Buffer& buffer = remote_[static_cast<size_t>(rank)];
      const size_t elements = collective.ShapeOf(row, rank).send_elements;
      if (buffer.data() == nullptr) buffer = Buffer(elements * ElementBytes(row.type));
      collective.FillChecked(buffer.data(), elements, row.type, seed, rank);
      inputs.push_back(buffer.data());
    }
    return inputs;
  }

 private:
  std::vector<Buffer> remote_;  // [rank]; of one row
};

// One pass over one kind of buffers. The process of rank 0 has the reference. The others send
// hashes of their outputs, and an output itself only if its hash is wrong.
class Pass {
 public:
  // reference and inputs: null in processes without rank 0.
  Pass(const Collective& collective, const Case& row, const Options& options, Ranks& ranks,
       Reference* reference, AllInputs* inputs, bool is_in_place)
      : collective_(collective),
        row_(row),
        options_(options),
        ranks_(ranks),
        reference_(reference),
        inputs_(inputs),
        is_in_place_(is_in_place),
        found_(static_cast<size_t>(ranks.count())) {}

  // Random draws depend on the number of calls, which a reset does not forget.
  void Reset() {
    const bool is_random = options_.is_random();
    ranks_.pool().Run([&](int rank) {
      RankState& state = ranks_.state(rank);
      is_random ? collective_.Prepare(row_, options_, state) : collective_.Reset(state);
    });
  }

  // Out of place, the reference computes each call and remembers the result; in place gets the same
  // inputs again.
  void Call(int call, uint64_t seed) {
    ranks_.pool().Run([&](int rank) {
      RankState& state = ranks_.state(rank);
      const size_t elements = ShapeOf(rank).send_elements;
      collective_.FillChecked(state.send.data(), elements, row_.type, seed, rank);
      state.PublishSend(elements * ElementBytes(row_.type));
    });
    std::vector<const void*> inputs;
    const bool has_model_call = reference_ != nullptr && !is_in_place_;
    if (has_model_call) {
      inputs = inputs_->Fill(collective_, row_, seed, ranks_);
      reference_->Advance(inputs);
    }
    ranks_.pool().Run([&](int rank) { CallRank(call, rank); });
    if (has_model_call) reference_->Observe(inputs, ranks_.state(0).recv.data());
    if (!ranks_.are_all_local()) CompareRemote(call);
    for (int rank = 0; rank < ranks_.count(); ++rank) Note(call, rank);
  }

  uint64_t wrong() const { return wrong_; }
  const std::string& problem() const { return problem_; }

 private:
  Shape ShapeOf(int rank) const { return collective_.ShapeOf(row_, rank); }
  size_t OutputBytes(int rank) const {
    return ShapeOf(rank).recv_elements * ElementBytes(row_.type);
  }
  size_t OutputAt(int rank) const {
    return is_in_place_ ? ShapeOf(rank).in_place_recv_offset * ElementBytes(row_.type) : 0;
  }
  std::byte* Output(int rank) { return ranks_.state(rank).recv.data() + OutputAt(rank); }
  const void* Expected(int call, int rank) const {
    return reference_->Expected(static_cast<size_t>(call), rank);
  }

  void CallRank(int call, int rank) {
    RankState& state = ranks_.state(rank);
    const Shape shape = ShapeOf(rank);
    const size_t element_bytes = ElementBytes(row_.type);
    // Overwrites earlier output, which must not pass for a result.
    state.FillRecv(0xa5, MessageBytes(shape, row_.type));
    RankCall rank_call = state.CallAt(0, OutputAt(rank), state.compressor.get());
    if (is_in_place_) {
      const size_t send_at = shape.in_place_send_offset * element_bytes;
      state.CopySendToRecv(0, send_at, shape.send_elements * element_bytes);
      rank_call = state.CallInPlaceAt(send_at, OutputAt(rank), state.compressor.get());
    }
    Check(collective_.Run(row_, rank_call), collective_.call());
    state.Await();
    state.FetchRecv(OutputAt(rank), OutputBytes(rank));
    if (reference_ != nullptr) Compare(call, rank, Output(rank));
  }

  void Compare(int call, int rank, const void* output) {
    const void* expected = Expected(call, rank);
    const Difference difference =
        CompareElements(output, expected, ShapeOf(rank).recv_elements, row_.type);
    WrongElements& wrong = found_[static_cast<size_t>(rank)];
    wrong = {.count = difference.count, .first = difference.first};
    if (difference.count == 0) return;
    wrong.got = ElementAt(output, row_.type, difference.first);
    wrong.expected = ElementAt(expected, row_.type, difference.first);
  }

  // Collective. An output with the right hash is right; any other is fetched.
  void CompareRemote(int call) {
    const auto hashes = ranks_.GatherFromAll([&](int rank) {
      return HashBytes({Output(rank), OutputBytes(rank)});
    });
    std::vector<std::byte> is_wrong(hashes.size());
    for (int rank = 0; reference_ != nullptr && rank < ranks_.count(); ++rank) {
      if (ranks_.is_local(rank)) continue;
      const auto* expected = static_cast<const std::byte*>(Expected(call, rank));
      const auto at = static_cast<size_t>(rank);
      found_[at] = {};
      is_wrong[at] = std::byte{hashes[at] != HashBytes({expected, OutputBytes(rank)})};
    }
    ranks_.Broadcast(is_wrong, 0);
    for (int rank = 0; rank < ranks_.count(); ++rank) {
      if (is_wrong[static_cast<size_t>(rank)] != std::byte{0}) FetchAndCompare(call, rank);
    }
  }

  void FetchAndCompare(int call, int rank) {
    const size_t bytes = OutputBytes(rank);
    Buffer copy(bytes);
    if (ranks_.is_local(rank)) std::memcpy(copy.data(), Output(rank), bytes);
    ranks_.Broadcast({copy.data(), bytes}, rank);
    if (reference_ != nullptr) Compare(call, rank, copy.data());
  }

  void Note(int call, int rank) {
    const WrongElements& wrong = found_[static_cast<size_t>(rank)];
    wrong_ += wrong.count;
    if (wrong.count == 0 || !problem_.empty()) return;
    problem_ = fmt::format(
        "{} bytes, {}, call {} from fresh residuals: rank {} has {} wrong elements, the first is "
        "element {}: {} instead of {}",
        MessageBytes(ShapeOf(rank), row_.type), is_in_place_ ? "in place" : "out of place",
        call + 1, rank, wrong.count, wrong.first, wrong.got, wrong.expected);
  }

  const Collective& collective_;
  const Case& row_;
  const Options& options_;
  Ranks& ranks_;
  Reference* reference_;
  AllInputs* inputs_;
  const bool is_in_place_;
  std::vector<WrongElements> found_;  // in the last call, [rank]
  uint64_t wrong_ = 0;
  std::string problem_;
};

}  // namespace

CheckResult CheckRow(const Collective& collective, const Case& row, const Options& options,
                     Ranks& ranks) {
  CheckResult result;
  const int calls = collective.CheckedCalls(options);
  AllInputs inputs(ranks);
  for (int pass = 0; pass < options.checks; ++pass) {
    std::unique_ptr<Reference> reference;
    if (ranks.has_root()) reference = collective.MakeReference(row, options);
    for (bool is_in_place : {false, true}) {
      if (is_in_place && !collective.has_in_place()) continue;
      Pass checked(collective, row, options, ranks, reference.get(), &inputs, is_in_place);
      checked.Reset();
      for (int call = 0; call < calls; ++call) {
        checked.Call(call, 1 + static_cast<uint64_t>(pass * calls + call));
      }
      if (is_in_place) {
        result.wrong_in_place = result.wrong_in_place.value_or(0) + checked.wrong();
      } else {
        result.wrong_out_of_place += checked.wrong();
      }
      if (result.problem.empty()) result.problem = checked.problem();
    }
    const uint64_t lost = reference == nullptr ? 0 : reference->CountLostElements();
    result.wrong_out_of_place += lost;
    if (lost > 0 && result.problem.empty()) {
      result.problem = fmt::format(
          "{} bytes: outputs and the model's residuals do not add up to the inputs in {} elements",
          MessageBytes(collective.ShapeOf(row, 0), row.type), lost);
    }
  }
  ranks.pool().Run([&](int rank) {
    const size_t elements = collective.ShapeOf(row, rank).send_elements;
    FillSeeded(ranks.state(rank).send.data(), elements, row.type, kTimedSeed, rank);
    ranks.state(rank).PublishSend(elements * ElementBytes(row.type));
  });
  return result;
}

double RelativeErrorOfFirstCall(const Collective& collective, const Case& row, Ranks& ranks) {
  std::vector<SeededInput> inputs;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    inputs.emplace_back(row.type, kTimedSeed, rank);
  }
  ranks.pool().Run([&](int rank) {
    RankState& state = ranks.state(rank);
    Check(collective.Run(row, state.CallAt(0, 0, state.compressor.get())), collective.call());
    state.Await();
    state.FetchRecv(0, collective.ShapeOf(row, rank).recv_elements * ElementBytes(row.type));
  });
  const std::vector<ErrorNorm> shares = ranks.GatherFromAll([&](int rank) {
    return collective.ErrorOf(row, inputs, ranks.state(rank).recv.data(), rank);
  });
  ErrorNorm total;
  for (const ErrorNorm& share : shares) {
    total.error += share.error;
    total.exact += share.exact;
  }
  return total.exact > 0 ? std::sqrt(total.error / total.exact) : 0;
}

}  // namespace onebit::perf
