// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every rank compares its own output.
#include "perf/baselines/row_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "perf/common/elements.h"

namespace onebit::perf {
namespace {

std::vector<CheckedInput> InputsOf(int call, int ranks) {
  std::vector<CheckedInput> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.emplace_back(call, rank);
  return inputs;
}

uint64_t SumOver(System& system, uint64_t mine) {
  uint64_t sum = 0;
  for (const uint64_t part : system.Gather(mine)) sum += part;
  return sum;
}

// The calls of one pass over one kind of buffers. Returns what is wrong on this rank.
uint64_t RunPass(System& system, size_t count, int pass, bool is_in_place, std::span<float> send,
                 std::span<float> recv, std::string* problem) {
  system.Prepare(count);
  const std::unique_ptr<Expectation> expectation = system.Expect(count);
  uint64_t wrong = 0;
  for (int call = 0; call < expectation->calls(); ++call) {
    const std::vector<CheckedInput> inputs =
        InputsOf(pass * expectation->calls() + call, system.ranks());
    const CheckedInput& mine = inputs[static_cast<size_t>(system.rank())];
    // What an earlier call left must not pass for a result.
    std::fill_n(recv.begin(), count, -1e30f);
    const std::span<float> source = is_in_place ? recv : send;
    for (size_t i = 0; i < count; ++i) source[i] = mine.At(i);
    system.AllReduce(source.data(), recv.data(), count);

    const std::span<const float> expected = expectation->Next(inputs);
    const Difference difference =
        CompareElements(recv.data(), expected.data(), count, onebitFloat32);
    wrong += difference.count;
    if (difference.count == 0 || !problem->empty()) continue;
    *problem = fmt::format(
        "{} bytes, {}, call {}: rank {} has {} wrong elements, the first is element {}: {} instead "
        "of {}",
        count * sizeof(float), is_in_place ? "in place" : "out of place", call + 1, system.rank(),
        difference.count, difference.first, recv[difference.first], expected[difference.first]);
  }
  const uint64_t lost = expectation->CountLostElements();
  if (lost > 0 && problem->empty()) {
    *problem =
        fmt::format("{} bytes: outputs and residuals do not add up to the inputs in {} elements",
                    count * sizeof(float), lost);
  }
  return wrong + lost;
}

}  // namespace

CheckResult CheckRow(System& system, size_t count, int passes, std::span<float> send,
                     std::span<float> recv) {
  CheckResult result;
  for (int pass = 0; pass < passes; ++pass) {
    for (const bool is_in_place : {false, true}) {
      const uint64_t wrong = RunPass(system, count, pass, is_in_place, send, recv, &result.problem);
      (is_in_place ? result.wrong_in_place : result.wrong_out_of_place) += SumOver(system, wrong);
    }
  }
  return result;
}

double RelativeErrorOfFirstCall(System& system, size_t count, uint64_t seed,
                                std::span<const float> send, std::span<float> recv) {
  system.Prepare(count);
  system.AllReduce(send.data(), recv.data(), count);
  std::vector<SeededInput> inputs;
  for (int rank = 0; rank < system.ranks(); ++rank) {
    inputs.emplace_back(onebitFloat32, seed, rank);
  }
  struct Norms {
    double error = 0;
    double exact = 0;
  };
  // Every rank looks at its part of the result, which is the same on all.
  const size_t share = (count + inputs.size() - 1) / inputs.size();
  const size_t begin = std::min(static_cast<size_t>(system.rank()) * share, count);
  Norms mine;
  for (size_t i = begin; i < std::min(begin + share, count); ++i) {
    double exact = 0;
    for (const SeededInput& input : inputs) exact += input.At(i);
    const double error = recv[i] - exact;
    mine.error += error * error;
    mine.exact += exact * exact;
  }
  Norms total;
  for (const Norms& part : system.Gather(mine)) {
    total.error += part.error;
    total.exact += part.exact;
  }
  return total.exact > 0 ? std::sqrt(total.error / total.exact) : 0;
}

}  // namespace onebit::perf
