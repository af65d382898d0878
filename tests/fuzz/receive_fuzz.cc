// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a two-rank allreduce whose peer sends arbitrary messages: the call must end, within its
// deadline, with a result or an error that has a text, and touch nothing out of bounds.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "codec/packet.h"
#include "exec/run_calls.h"
#include "plan/algorithms.h"
#include "tests/fuzz/byte_input.h"
#include "tests/fuzz/scripted_start.h"
#include "tests/support/scripted_transport.h"

namespace {

using namespace onebit;
using onebit::testing::ChangePayload;
using onebit::testing::DamageHeader;
using onebit::testing::Input;
using onebit::testing::ScriptedMessage;
using onebit::testing::ScriptedTransport;

struct Case {
  size_t count;
  Codec codec;
  bool is_one_exchange;
  size_t segment_elements;  // 0: chunks are one segment, and messages do not choose theirs

  // A tensor-wide scale is known only after the whole tensor was read: one segment.
  Partition Chunks() const {
    const bool has_segments = !is_one_exchange && (codec.is_dense() || codec.block != 0);
    const size_t wished =
        codec.is_dense() ? DenseSegmentElements(segment_elements) : segment_elements;
    return {count, 2, 64, codec.block == 0 ? 64 : codec.segment_unit(), has_segments ? wished : 0};
  }
};

// A message as an honest peer would send it, damaged as the input chooses: pairs of position and
// mask, applied before and after the checksums are computed.
ScriptedMessage NextMessage(Input& input, const Case& c, uint32_t comm_id) {
  const uint8_t style = input.Next();
  const Partition chunks = c.Chunks();
  const size_t segment = c.segment_elements != 0 ? input.Next() % chunks.segments() : 0;
  const int exchange = (style & 1) != 0 ? 2 : 1;
  const size_t chunk = static_cast<size_t>(exchange - 1);
  const size_t elements = c.is_one_exchange ? c.count : chunks.Segment(chunk, segment).count;
  size_t bytes = elements * sizeof(float);
  if (!c.codec.is_dense()) bytes = ShapeOf(elements, PacketFormat{c.codec}).bytes();
  if (c.is_one_exchange && c.codec.block != 0) {
    const PlanKey key = {.codec = c.codec, .count = c.count};
    bytes = WholeShape(key, 2, {c.codec}).bytes();
  }
  ScriptedMessage message;
  message.payload.resize((style & 2) != 0 ? input.Next() : bytes);
  ChangePayload(input, style >> 4, &message);
  MessageHeader header = {
      .call = {.comm_id = comm_id,
               .collective = Collective::kAllReduce,
               .count = c.count,
               .op = ReduceOp::kAvg,
               .codec = c.codec,
               .chunk_alignment = 64,
               .has_server_residual = !c.codec.is_dense(),
               .is_one_exchange = c.is_one_exchange,
               // Like the compressor below, which is new and has default options.
               .is_replica_transactional = c.is_one_exchange && c.codec.has_feedback()},
      .exchange = static_cast<uint8_t>(exchange),
      .is_nonfinite = (style & 4) != 0,
      .has_payload_checksum = !c.codec.is_dense(),
      .segment = static_cast<uint16_t>(segment),
      .segment_count = static_cast<uint16_t>(chunks.segments()),
  };
  if (header.has_payload_checksum) {
    header.payload_checksum =
        kernels::cpu::ChecksumOf(message.payload.data(), message.payload.size());
  }
  HeaderBytes encoded;
  EncodeHeader(header, &encoded);
  message.header.assign(encoded.begin(), encoded.end());
  if ((style & 8) != 0) DamageHeader(input, &message);
  return message;
}

// Bits 0 and 1: count; 2 to 6: kind, block and number of exchanges; 7: chunks of several segments.
Case CaseOf(uint8_t byte) {
  constexpr size_t kCounts[] = {0, 1, 65, 300};
  constexpr size_t kLargeCounts[] = {300, 700, 1000, 1023};
  const bool is_large = (byte & 128) != 0;
  Codec codec = {.kind = static_cast<CodecKind>(((byte & 127) >> 2) % 5)};
  if (codec.is_low_bit() || (codec.is_sign() && (byte & 16) != 0)) codec.block = 64;
  const bool is_bf16 = codec.is_dense() && (byte & 32) != 0;
  if (is_bf16) {
    codec = {.kind = (byte & 4) != 0 ? CodecKind::kBf16Ef : CodecKind::kBf16, .block = 1};
  }
  if (codec.is_low_bit() && (byte & 16) != 0) codec.low_bit = kernels::LowBitCodec::kUint8;
  return {.count = (is_large ? kLargeCounts : kCounts)[byte & 3],
          .codec = codec,
          .is_one_exchange = !codec.is_dense() && (byte & (is_bf16 ? 64 : 32)) != 0,
          .segment_elements = is_large ? size_t{64} : size_t{0}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Transport* const transport = onebit::testing::StartForFuzzer();
  Input input(data, size);
  const Case c = CaseOf(input.Next());
  auto group = Comm::CreateLocalGroup(
      *transport, 2,
      {.timeout_ms = 1,
       .one_exchange_elements = c.is_one_exchange ? c.count : uint64_t{0},
       .segment_elements =
           c.segment_elements != 0 ? c.segment_elements : CommOptions{}.segment_elements});
  if (!group.ok()) std::abort();
  Comm& comm = *group.value()[0];
  // A count of 0 is always small enough for one exchange.
  Case played = c;
  played.is_one_exchange = !c.codec.is_dense() && (c.is_one_exchange || c.count == 0);

  std::deque<ScriptedMessage> script;
  // Room for every message of a call, and for some that are sent twice.
  const size_t most_messages = 2 * played.Chunks().segments() + 2;
  while (script.size() < most_messages && !input.empty()) {
    script.push_back(NextMessage(input, played, comm.id()));
  }
  ScriptedTransport::SetScript(1, std::move(script));

  Engine engine(comm);
  const std::vector<float> x(c.count, 0.5f);
  std::vector<float> output(c.count);
  CallRequest request = {.collective = Collective::kAllReduce,
                         .sendbuff = x.data(),
                         .recvbuff = output.data(),
                         .count = c.count,
                         .op = ReduceOp::kAvg};
  Status status;
  if (c.codec.is_dense()) {
    status = RunCall(engine, request).status();
  } else {
    auto compressor = engine.CreateCompressor({.codec = c.codec, .count = c.count});
    if (!compressor.ok()) std::abort();
    request.compressor = &compressor.value();
    status = RunCall(engine, request).status();
  }
  if (!status.ok() && status.text().empty()) std::abort();
  if (status.code() == Code::kInvalidUsage)
    std::abort();  // nothing was received, so nothing tested
  return 0;
}
