// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A low-bit packet of arbitrary bytes is refused, or decoding, adding and reducing it stays in
// bounds and gives NaN only where a scale is. Arbitrary numbers become a packet that is accepted
// and decodes to finite values but for the blocks that were counted.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/packet.h"
#include "tests/fuzz/input.h"

namespace {

using namespace onebit;
using kernels::DataType;
using kernels::LowBitCodec;

// The parts of a packet in buffers of exactly the sizes promised to the kernels, so that a
// sanitizer sees an access beyond them.
struct Parts {
  std::vector<uint16_t> scales;
  std::vector<uint16_t> minimums;
  std::vector<uint8_t> codes;

  Parts(std::vector<std::byte>& packet, const PacketShape& shape) {
    const kernels::LowBitPacket view = LowBitViewOf(packet.data(), shape);
    scales.assign(view.scales, view.scales + shape.scale_count);
    if (view.minimums != nullptr) {
      minimums.assign(view.minimums, view.minimums + shape.scale_count);
    }
    codes.assign(view.codes, view.codes + (shape.bytes() - shape.scale_bytes()));
  }
  kernels::LowBitPacketView view() const { return {scales.data(), minimums.data(), codes.data()}; }
};

bool IsNan(uint16_t scale) { return (scale & 0x7fff) > 0x7f80; }

void Check(bool is_true) {
  if (!is_true) std::abort();
}

void Use(const Parts& parts, const PacketFormat& format, size_t count) {
  const kernels::LowBitFormat low_bit = format.codec.low_bit_format();
  std::vector<float> output(count);
  kernels::cpu::LowBitDecode(parts.view(), low_bit, count, nullptr, DataType::kF32, output.data());
  for (size_t i = 0; i < count; ++i) {
    Check(std::isnan(output[i]) == IsNan(parts.scales[i / format.codec.block]));
  }
  std::vector<float> held(count, 0.25f);
  kernels::cpu::LowBitAddDelta(
      {.packet = parts.view(), .held_in = held.data(), .held_out = held.data(), .count = count},
      low_bit, output.data());
  const kernels::LowBitPacketView packets[] = {parts.view(), parts.view()};
  kernels::LowBitReduceInput in = {.packets = packets, .ranks = 2, .count = count};
  kernels::cpu::LowBitAverage(in, low_bit, output.data());
  std::vector<float> residual(count, 0.25f);
  in.residual_in = in.residual_out = residual.data();
  std::vector<std::byte> mean(ShapeOf(count, format).bytes());
  const kernels::LowBitResult result = kernels::cpu::LowBitReduce(
      in, low_bit, {}, LowBitViewOf(mean.data(), ShapeOf(count, format)));
  if (!result.is_finite) return;
  for (const float value : residual) Check(std::isfinite(value));
}

void Encode(const std::vector<std::byte>& bytes, const PacketFormat& format) {
  std::vector<float> input(bytes.size() / sizeof(float));
  if (input.empty()) return;
  std::memcpy(input.data(), bytes.data(), input.size() * sizeof(float));
  const PacketShape shape = ShapeOf(input.size(), format);
  std::vector<std::byte> packet(shape.bytes());
  const kernels::LowBitResult result = kernels::cpu::LowBitCompress(
      {.input = input.data(), .count = input.size()}, format.codec.low_bit_format(), {.seed = 1},
      LowBitViewOf(packet.data(), shape));
  Check(result.is_finite == (result.nonfinite_blocks == 0));
  Check(CheckForm(packet, shape).ok() || format.codec.has_feedback());
  Use(Parts(packet, shape), format, input.size());
}

}  // namespace

// Byte 0: codec, kind and whether the packet is made from numbers; 1: block; 2 and 3: elements;
// rest: the packet, cut or filled with zeros, or the numbers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  constexpr LowBitCodec kCodecs[] = {LowBitCodec::kFp4, LowBitCodec::kInt8, LowBitCodec::kUint8,
                                     LowBitCodec::kInt2, LowBitCodec::kInt8Stochastic};
  const PacketFormat format = {
      {.kind = (data[0] & 64) != 0 ? CodecKind::kLowBitEf : CodecKind::kLowBit,
       .low_bit = kCodecs[(data[0] & 63) % std::size(kCodecs)],
       .block = 4u * (1 + data[1])}};
  const size_t count = data[2] | data[3] << 8;
  const auto bytes = std::as_bytes(std::span(data + 4, size - 4));
  std::vector<std::byte> packet(bytes.begin(), bytes.end());
  if ((data[0] & 128) != 0) {
    Encode(packet, format);
    return 0;
  }
  const PacketShape shape = ShapeOf(count, format);
  packet.resize(shape.bytes());
  const Status status = CheckForm(packet, shape);
  if (!status.ok()) {
    Check(status.code() == Code::kCorrupt && !status.text().empty());
  } else if (count != 0) {
    Use(Parts(packet, shape), format, count);
  }
  return 0;
}
