// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A lossless packet of arbitrary bytes: it is refused, or decoding it stays in bounds, and what it
// makes of the copy comes back from a packet of this library. The decoders of one bit and of whole
// words at a time agree.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/lossless_packet.h"

namespace {

using namespace onebit;

void CompareDecoders(const std::vector<std::byte>& packet, size_t count, size_t width) {
  if (packet.size() < sizeof(uint32_t) || count > kernels::kLosslessBlock) return;
  uint32_t packed = 0;
  std::memcpy(&packed, packet.data(), sizeof(packed));
  kernels::LosslessWord word = kernels::LosslessWord::Unpack(packed);
  word.bytes = packet.size() - sizeof(packed);
  // Exactly as many bytes as are promised, so that a sanitizer sees an access beyond them.
  std::vector<uint8_t> bytes(word.bytes + kernels::kLosslessSlack);
  std::memcpy(bytes.data(), packet.data() + sizeof(packed), word.bytes);
  std::vector<std::byte> first(count * width, std::byte{0x3f});
  std::vector<std::byte> second = first;
  const bool is_block =
      kernels::cpu::LosslessDecode(word, bytes.data(), count, width, first.data());
  if (is_block !=
      kernels::reference::LosslessDecode(word, bytes.data(), count, width, second.data())) {
    std::abort();
  }
  if (is_block && first != second) std::abort();
}

}  // namespace

// Bytes 0 and 1: elements less 1; 2: bit 0 four bytes an element, bit 1 a few more than a block;
// rest: the packet.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t width = (data[2] & 1) != 0 ? 4 : 2;
  const size_t count =
      ((data[2] & 2) != 0 ? kernels::kLosslessBlock : 1) + (data[0] | data[1] << 8);
  const auto given = std::as_bytes(std::span(data + 3, size - 3));
  const std::vector<std::byte> packet(given.begin(), given.end());
  CompareDecoders(packet, count, width);

  std::vector<std::byte> padded = packet;
  padded.resize(packet.size() + kernels::kLosslessSlack);
  const std::vector<std::byte> before(count * width, std::byte{0x3f});
  std::vector<std::byte> copy = before;
  if (!DecodeLossless(std::span(padded).first(packet.size()), count, width, copy.data())) return 0;
  LosslessEncoder encoder;
  const auto encoded = encoder.Encode(copy.data(), before.data(), count, width);
  if (!encoded.ok()) std::abort();
  if (!encoded.value()) return 0;
  std::vector<std::byte> again(encoded.value()->begin(), encoded.value()->end());
  const size_t bytes = again.size();
  again.resize(bytes + kernels::kLosslessSlack);
  std::vector<std::byte> result = before;
  if (!DecodeLossless(std::span(again).first(bytes), count, width, result.data())) std::abort();
  if (result != copy) std::abort();
  return 0;
}
