// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a reduce-scatter, all-gather or all-to-all of two ranks whose peer sends arbitrary
// packets and verdicts: the call must end, within its deadline, with a result or an error that has
// a text, and touch nothing out of bounds.
#include <cstdlib>
#include <deque>
#include <vector>

#include "codec/packet.h"
#include "exec/run_calls.h"
#include "plan/algorithms.h"
#include "tests/fuzz/byte_input.h"
#include "tests/fuzz/scripted_start.h"

namespace {

using namespace onebit;
using onebit::testing::ChangePayload;
using onebit::testing::DamageHeader;
using onebit::testing::Input;
using onebit::testing::ScriptedMessage;
using onebit::testing::ScriptedTransport;

struct Case {
  Collective collective;
  Codec codec;
  size_t count;
  size_t segment_elements;  // 0: parts are one segment

  Partition Chunks() const {
    const bool is_dense = codec.is_dense();
    const bool is_whole = collective == Collective::kAllToAllv || (!is_dense && codec.block == 0);
    const size_t wished = is_dense ? DenseSegmentElements(segment_elements) : segment_elements;
    return Partition::OfChunks(count, 2, codec.block == 0 ? 64 : codec.segment_unit(),
                               is_whole ? 0 : wished);
  }
};

// Bits 0 and 1: collective; 2 and 3: kind; 4: block; 5 and 6: count; 7: several segments.
Case CaseOf(uint8_t byte) {
  constexpr Collective kCollectives[] = {Collective::kReduceScatter, Collective::kAllGather,
                                         Collective::kAllToAll, Collective::kAllToAllv};
  constexpr CodecKind kKinds[] = {CodecKind::kDense, CodecKind::kSign, CodecKind::kEf,
                                  CodecKind::kLowBit};
  constexpr size_t kCounts[] = {0, 1, 65, 300};
  const Collective collective = kCollectives[byte & 3];
  CodecKind kind = kKinds[byte >> 2 & 3];
  if (collective == Collective::kAllToAllv && kind == CodecKind::kEf) kind = CodecKind::kSign;
  // The bit that chooses a block of signs chooses another codec here.
  if (kind == CodecKind::kLowBit && (byte & 16) != 0) kind = CodecKind::kBf16;
  Codec codec = {.kind = kind};
  if (codec.is_bf16()) codec.block = 1;
  if (codec.is_low_bit() || (codec.is_sign() && (byte & 16) != 0)) codec.block = 64;
  return {.collective = collective,
          .codec = codec,
          .count = kCounts[byte >> 5 & 3],
          .segment_elements = (byte & 128) != 0 ? size_t{64} : 0};
}

// A message as an honest peer would send it, damaged as the input chooses.
ScriptedMessage NextMessage(Input& input, const Case& c, uint32_t comm_id) {
  const uint8_t style = input.Next();
  const Partition chunks = c.Chunks();
  const bool is_dense = c.codec.is_dense();
  const bool is_verdict = (style & 1) != 0;
  const size_t segment = is_verdict ? 0 : input.Next() % chunks.segments();
  const size_t elements = chunks.Segment(0, segment).count;
  const size_t bytes = is_verdict ? 0
                       : is_dense ? elements * sizeof(float)
                                  : ShapeOf(elements, PacketFormat{c.codec}).bytes();
  ScriptedMessage message;
  message.payload.resize((style & 2) != 0 ? input.Next() : bytes);
  ChangePayload(input, style >> 4, &message);
  const bool has_replica = c.collective == Collective::kAllGather && c.codec.kind == CodecKind::kEf;
  MessageHeader header = {.call = {.comm_id = comm_id,
                                   .collective = c.collective,
                                   .count = c.count,
                                   .codec = c.codec,
                                   .is_replica_transactional = has_replica},
                          .exchange = static_cast<uint8_t>(is_verdict ? 2 : 1),
                          .is_nonfinite = (style & 4) != 0,
                          .has_payload_checksum = !is_dense,
                          .segment = static_cast<uint16_t>(segment),
                          .segment_count = static_cast<uint16_t>(chunks.segments())};
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

Status MakeCall(Engine& engine, const Case& c) {
  const bool is_pairs = c.collective == Collective::kAllToAllv;
  const std::vector<float> x(2 * c.count, 0.5f);
  std::vector<float> output(2 * c.count);
  const size_t counts[] = {c.count, c.count};
  const size_t begins[] = {0, c.count};
  CallRequest request = {.collective = c.collective,
                         .sendbuff = x.data(),
                         .recvbuff = output.data(),
                         .count = is_pairs ? 0 : c.count};
  if (is_pairs) request.pairs = {{counts, begins, counts, begins}};
  std::optional<PlannedCompressor> compressor;
  if (!c.codec.is_dense()) {
    Compressor::Config config;
    config.codec = c.codec;
    config.count = request.count;
    config.collective = c.collective;
    auto created = engine.CreateCompressor(config);
    if (!created.ok()) std::abort();
    compressor = std::move(created).value();
  }
  request.compressor = compressor ? &*compressor : nullptr;
  return RunCall(engine, request).status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Transport* const transport = onebit::testing::StartForFuzzer();
  Input input(data, size);
  const Case c = CaseOf(input.Next());
  CommOptions options{.timeout_ms = 1};
  if (c.segment_elements != 0) options.segment_elements = c.segment_elements;
  auto group = Comm::CreateLocalGroup(*transport, 2, options);
  if (!group.ok()) std::abort();
  Comm& comm = *group.value()[0];
  std::deque<ScriptedMessage> script;
  // Room for every message of a call, and for some that are sent twice.
  const size_t most_messages = 2 * c.Chunks().segments() + 2;
  while (script.size() < most_messages && !input.empty()) {
    script.push_back(NextMessage(input, c, comm.id()));
  }
  ScriptedTransport::SetScript(1, std::move(script));
  Engine engine(comm);
  const Status status = MakeCall(engine, c);
  if (!status.ok() && status.text().empty()) std::abort();
  if (status.code() == Code::kInvalidUsage) {
    std::abort();  // nothing was received, so nothing tested
  }
  return 0;
}
