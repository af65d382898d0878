// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/range_codec.h"

#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "perf/common/chunks_model.h"
#include "perf/common/comm_handles.h"
#include "perf/common/low_bit_config.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {

namespace reference = kernels::reference;

RangeCodec::RangeCodec(const Case& row, const Options& options)
    : row_(row), choice_(options), type_(KernelType(row.type)) {}

void RangeCodec::Send(const SentRange& range, const void* input, void* output) const {
  if (range.count == 0) return;
  if (!choice_.is_compressed()) {
    std::memcpy(output, input, range.count * ElementBytes(row_.type));
  } else if (choice_.has_codes()) {
    SendCodes(range, input, output);
  } else {
    SendSigns(range.count, input, output);
  }
}

void RangeCodec::SendSigns(size_t count, const void* input, void* output) const {
  model::ChunksConfig config;
  config.count = count;
  config.type = type_;
  config.has_feedback = false;
  config.rule =
      choice_.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
  config.block = static_cast<size_t>(choice_.block);
  const model::ChunkPacket packet = model::ChunkCompressor(config, 1, type_).Run(input)[0];
  reference::Decode(packet.bits.data(), packet.scales.data(), count, config.block, nullptr, type_,
                    output);
}

void RangeCodec::SendCodes(const SentRange& range, const void* input, void* output) const {
  const model::LowBitConfig config = LowBitConfigOf(row_, choice_);
  const size_t blocks = kernels::BlockCount(range.count, config.format.block);
  std::vector<uint16_t> scales(blocks);
  std::vector<uint16_t> minimums(blocks);
  std::vector<uint8_t> codes((range.count * config.code_bits + 7) / 8);
  const kernels::CompressInput in = {
      .input = input, .input_type = type_, .count = range.count, .scale_type = type_};
  // Draws are those of the element's place in the sender's buffer.
  const kernels::Draws draws = {.seed = config.seed,
                                .first = range.begin,
                                .epoch = range.calls_before,
                                .tensor = range.tensor_id,
                                .stream = static_cast<uint32_t>(range.from)};
  config.functions->compress(in, config.format, draws,
                             {scales.data(), minimums.data(), codes.data()});
  config.functions->Decode({scales.data(), minimums.data(), codes.data()}, config.format,
                           range.count, nullptr, type_, output);
}

}  // namespace onebit::perf
