// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a two-rank allreduce whose peer sends arbitrary messages: the call must end, within its
// deadline, with a result or an error that has a text, and touch nothing out of bounds.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "codec/packet.h"
#include "collectives/engine.h"
#include "support/scripted_transport.h"

namespace {

using namespace onebit;
using onebit::testing::ScriptedMessage;
using onebit::testing::ScriptedTransport;

// Reads a byte at a time; zeros after the end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Next() { return at_ < size_ ? data_[at_++] : 0; }
  bool empty() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

struct Case {
  size_t count;
  CodecKind kind;
  uint32_t block;
  bool is_one_exchange;
};

// A message such as an honest peer would send, then damaged as the input says: pairs of position
// and mask before and after the checks are computed.
ScriptedMessage NextMessage(Input& input, const Case& c, uint32_t comm_id) {
  const uint8_t style = input.Next();
  const Partition chunks(c.count, 2, 64, c.block == 0 ? 64 : c.block, 0);
  const int exchange = (style & 1) != 0 ? 2 : 1;
  const size_t elements = c.is_one_exchange ? c.count : chunks.Chunk(exchange - 1).count;
  size_t bytes = elements * sizeof(float);
  if (c.kind != CodecKind::kDense) bytes = ShapeOf(elements, c.block).bytes();
  if (c.is_one_exchange && c.block != 0) {
    bytes = (ShapeOf(chunks.Chunk(0).count, c.block).scale_count +
             ShapeOf(chunks.Chunk(1).count, c.block).scale_count) *
                sizeof(float) +
            kernels::BitBytes(elements);
  }
  ScriptedMessage message;
  message.payload.resize((style & 2) != 0 ? input.Next() : bytes);
  for (size_t changes = style >> 4; changes > 0 && !message.payload.empty(); --changes) {
    const size_t at = (input.Next() | input.Next() << 8) % message.payload.size();
    message.payload[at] = std::byte{input.Next()};
  }
  MessageHeader header = {
      .call = {.comm_id = comm_id,
               .collective = Collective::kAllReduce,
               .count = c.count,
               .op = ReduceOp::kAvg,
               .codec = c.kind,
               .block = c.block,
               .chunk_alignment = 64,
               .has_server_residual = c.kind != CodecKind::kDense,
               .is_one_exchange = c.is_one_exchange},
      .exchange = static_cast<uint8_t>(exchange),
      .is_nonfinite = (style & 4) != 0,
      .has_payload_checksum = c.kind != CodecKind::kDense,
  };
  if (header.has_payload_checksum) {
    header.payload_checksum =
        kernels::cpu::ChecksumOf(message.payload.data(), message.payload.size());
  }
  HeaderBytes encoded;
  EncodeHeader(header, &encoded);
  message.header.assign(encoded.begin(), encoded.end());
  if ((style & 8) != 0) {
    message.header[input.Next() % kHeaderBytes] ^= std::byte{input.Next()};
    message.header.resize(input.Next() % 4 == 0 ? input.Next() % 80 : kHeaderBytes);
  }
  return message;
}

Case CaseOf(uint8_t byte) {
  constexpr size_t kCounts[] = {0, 1, 65, 300};
  const auto kind = static_cast<CodecKind>((byte >> 2) % 3);
  return {.count = kCounts[byte & 3],
          .kind = kind,
          .block = kind == CodecKind::kDense ? 0u
                   : (byte & 16) != 0        ? 64u
                                             : 0u,
          .is_one_exchange = kind != CodecKind::kDense && (byte & 32) != 0};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Transport* transport = [] {
    auto started = Transport::Start(ScriptedTransport::functions());
    if (!started.ok()) std::abort();
    return new Transport(std::move(started).value());
  }();
  Input input(data, size);
  const Case c = CaseOf(input.Next());
  auto group = Comm::CreateLocalGroup(
      *transport, 2,
      {.timeout_ms = 1, .one_exchange_elements = c.is_one_exchange ? c.count : uint64_t{0}});
  if (!group.ok()) std::abort();
  Comm& comm = *group.value()[0];
  // A count of 0 is always small enough for one exchange.
  Case played = c;
  played.is_one_exchange = c.kind != CodecKind::kDense && (c.is_one_exchange || c.count == 0);

  std::deque<ScriptedMessage> script;
  for (int i = 0; i < 4 && !input.empty(); ++i) {
    script.push_back(NextMessage(input, played, comm.id()));
  }
  ScriptedTransport::SetScript(1, std::move(script));

  Engine engine(comm);
  const std::vector<float> x(c.count, 0.5f);
  std::vector<float> output(c.count);
  const Engine::Buffers buffers = {x.data(), output.data(), c.count};
  Status status;
  if (c.kind == CodecKind::kDense) {
    status = engine.AllReduce(buffers, ReduceOp::kAvg, nullptr);
  } else {
    auto compressor = engine.CreateCompressor({.kind = c.kind, .count = c.count, .block = c.block});
    if (!compressor.ok()) std::abort();
    status = engine.AllReduce(buffers, ReduceOp::kAvg, &compressor.value());
  }
  if (!status.ok() && status.text().empty()) std::abort();
  return 0;
}
