// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies ranges of dense calls, and compresses and decodes each range of the others by itself.
#include "perf/common/ragged_reference.h"

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "perf/common/chunks_model.h"
#include "perf/common/comm_handles.h"
#include "perf/common/low_bit_config.h"
#include "perf/common/ragged_counts.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

namespace reference = kernels::reference;

// Where a range is in the send buffer of its sender.
struct SentRange {
  int from = 0;
  size_t begin = 0;
  size_t count = 0;
};

class AllToAllvReference : public Reference {
 public:
  AllToAllvReference(const Case& row, const Options& options)
      : row_(row), choice_(options), type_(KernelType(row.type)) {}

  void Advance(std::span<const void* const> inputs) override {
    std::vector<Buffer> outputs;
    for (int to = 0; to < row_.ranks; ++to) {
      const Ranges received = ReceivedRanges(row_, to);
      Buffer output(received.total * ElementBytes(row_.type));
      for (int from = 0; from < row_.ranks; ++from) {
        const auto sender = static_cast<size_t>(from);
        const size_t begin = SentRanges(row_, from).begins[static_cast<size_t>(to)];
        const SentRange range = {from, begin, received.counts[sender]};
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
    if (range.from == to || !choice_.is_compressed()) {
      std::memcpy(output, input, BytesOf(range.count));
    } else if (choice_.is_low_bit()) {
      SendCodes(range, input, output);
    } else {
      SendSigns(range.count, input, output);
    }
  }

  void SendSigns(size_t count, const void* input, void* output) const {
    reference::ChunksConfig config;
    config.count = count;
    config.type = type_;
    config.has_feedback = false;
    config.rule =
        choice_.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
    config.block = static_cast<size_t>(choice_.block);
    const reference::ChunkPacket packet =
        reference::ChunkCompressor(config, 1, type_).Run(input)[0];
    reference::Decode(packet.bits.data(), packet.scales.data(), count, config.block, nullptr, type_,
                      output);
  }

  void SendCodes(const SentRange& range, const void* input, void* output) const {
    const reference::LowBitConfig config = LowBitConfigOf(row_, choice_);
    const size_t blocks = kernels::BlockCount(range.count, config.format.block);
    std::vector<uint16_t> scales(blocks);
    std::vector<uint16_t> minimums(blocks);
    std::vector<uint8_t> codes(kernels::CodeBytes(config.format.codec, range.count));
    const kernels::CompressInput in = {
        .input = input, .input_type = type_, .count = range.count, .scale_type = type_};
    // Draws are those of the element's place in the send buffer.
    const kernels::Draws draws = {.seed = config.seed,
                                  .first = range.begin,
                                  .epoch = static_cast<uint32_t>(expected_.size()),
                                  .tensor = config.tensor_id,
                                  .stream = static_cast<uint32_t>(range.from)};
    reference::LowBitCompress(in, config.format, draws,
                              {scales.data(), minimums.data(), codes.data()});
    reference::LowBitDecode({scales.data(), minimums.data(), codes.data()}, config.format,
                            range.count, nullptr, type_, output);
  }

  const Case row_;
  const CodecChoice choice_;
  const kernels::DataType type_;
  std::vector<std::vector<Buffer>> expected_;  // [call][rank]
};

}  // namespace

std::unique_ptr<Reference> MakeAllToAllvReference(const Case& row, const Options& options) {
  return std::make_unique<AllToAllvReference>(row, options);
}

}  // namespace onebit::perf
