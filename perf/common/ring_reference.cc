// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/ring_reference.h"

#include <cstring>
#include <utility>
#include <vector>

#include "perf/common/chunks_reference.h"
#include "perf/common/comm_handles.h"
#include "perf/common/range_codec.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

// With error feedback two ranks hold what all ranks hold in an all-gather: a rank receives the part
// of the rank before.
class DeltaRingReference : public Reference {
 public:
  DeltaRingReference(const Case& row, const Options& options)
      : row_(row), gathered_(MakeAllGatherReference(row, options)) {}

  void Advance(std::span<const void* const> inputs) override { gathered_->Advance(inputs); }
  const void* Expected(size_t call, int rank) const override {
    const auto* const all = static_cast<const std::byte*>(gathered_->Expected(call, rank));
    const auto from = static_cast<size_t>(RankBefore(row_, rank));
    return all + from * row_.count * ElementBytes(row_.type);
  }

  // The next difference contains what is lost, and the estimate does not show it.
  void Observe(std::span<const void* const>, const void*) override {}
  uint64_t CountLostElements() override { return 0; }

 private:
  const Case row_;
  const std::unique_ptr<Reference> gathered_;
};

class RingReference : public Reference {
 public:
  RingReference(const Case& row, const Options& options) : row_(row), codec_(row, options) {}

  void Advance(std::span<const void* const> inputs) override {
    const size_t bytes = row_.count * ElementBytes(row_.type);
    std::vector<Buffer> outputs;
    for (int rank = 0; rank < row_.ranks; ++rank) {
      const int from = RankBefore(row_, rank);
      const void* const input = inputs[static_cast<size_t>(from)];
      Buffer output(bytes);
      if (from != rank) {
        codec_.Send({.from = from,
                     .count = row_.count,
                     .tensor_id = RingTensorId(from),
                     .calls_before = static_cast<uint32_t>(expected_.size())},
                    input, output.data());
      } else if (bytes != 0) {  // a rank copies what it sends itself
        std::memcpy(output.data(), input, bytes);
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
  const Case row_;
  const RangeCodec codec_;
  std::vector<std::vector<Buffer>> expected_;  // [call][rank]
};

}  // namespace

std::unique_ptr<Reference> MakeRingReference(const Case& row, const Options& options) {
  if (options.mode == Mode::kEf) return std::make_unique<DeltaRingReference>(row, options);
  return std::make_unique<RingReference>(row, options);
}

}  // namespace onebit::perf
