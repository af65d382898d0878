// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends each range by itself.
#include "perf/common/ragged_reference.h"

#include <cstring>
#include <utility>
#include <vector>

#include "perf/common/comm_handles.h"
#include "perf/common/ragged_counts.h"
#include "perf/common/range_codec.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

class AllToAllvReference : public Reference {
 public:
  AllToAllvReference(const Case& row, const Options& options) : row_(row), codec_(row, options) {}

  void Advance(std::span<const void* const> inputs) override {
    std::vector<Buffer> outputs;
    for (int to = 0; to < row_.ranks; ++to) {
      const Ranges received = ReceivedRanges(row_, to);
      Buffer output(received.total * ElementBytes(row_.type));
      for (int from = 0; from < row_.ranks; ++from) {
        const auto sender = static_cast<size_t>(from);
        const size_t begin = SentRanges(row_, from).begins[static_cast<size_t>(to)];
        const SentRange range = {.from = from,
                                 .begin = begin,
                                 .count = received.counts[sender],
                                 .calls_before = static_cast<uint32_t>(expected_.size())};
        if (range.count == 0) continue;
        Send(range, to, static_cast<const std::byte*>(inputs[sender]) + BytesOf(begin),
             output.data() + BytesOf(received.begins[sender]));
      }
      outputs.push_back(std::move(output));
    }
    expected_.push_back(std::move(outputs));
  }
  const void* Expected(size_t call, int rank) const override {
    return expected_[call][static_cast<size_t>(rank)].data();
  }

  // Without error feedback every call loses something.
  void Observe(std::span<const void* const>, const void*) override {}
  uint64_t CountLostElements() override { return 0; }

 private:
  size_t BytesOf(size_t elements) const { return elements * ElementBytes(row_.type); }

  // A rank copies what it sends itself.
  void Send(const SentRange& range, int to, const void* input, void* output) const {
    if (range.from == to) {
      std::memcpy(output, input, BytesOf(range.count));
    } else {
      codec_.Send(range, input, output);
    }
  }

  const Case row_;
  const RangeCodec codec_;
  std::vector<std::vector<Buffer>> expected_;  // [call][rank]
};

}  // namespace

std::unique_ptr<Reference> MakeAllToAllvReference(const Case& row, const Options& options) {
  return std::make_unique<AllToAllvReference>(row, options);
}

}  // namespace onebit::perf
