// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank 0 of three in a call with two levels, whose peers send arbitrary messages: one on its
// own host or none, the others elsewhere. The call must end, within its deadline, with a result or
// an error that has a text, and touch nothing out of bounds.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
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
  Collective collective;
  const char* hosts;  // a letter for each rank
  size_t count;
  Codec codec;
  bool is_weighted;
};

// Bit 0: hosts; 1 and 2: count; 3 to 5: codec; 6: weights; 7: the next byte says which collective
// besides allreduce.
Case CaseOf(Input& input) {
  const uint8_t byte = input.Next();
  constexpr size_t kCounts[] = {0, 65, 300, 1000};
  constexpr CodecKind kKinds[] = {CodecKind::kDense,    CodecKind::kSign,   CodecKind::kEf,
                                  CodecKind::kLowBitEf, CodecKind::kLowBit, CodecKind::kBf16Ef,
                                  CodecKind::kSparseEf, CodecKind::kEf};
  Codec codec = {.kind = kKinds[byte >> 3 & 7]};
  if (codec.is_sign() || codec.is_low_bit()) codec.block = 64;
  if (codec.is_bf16()) codec.block = 1;
  if (codec.is_sparse()) {
    codec.sparse.k = 5;
    codec.block = 320;
  }
  constexpr Collective kOthers[] = {Collective::kReduceScatter, Collective::kAllGather,
                                    Collective::kBroadcast};
  auto collective = Collective::kAllReduce;
  if ((byte & 128) != 0 && !codec.is_sparse()) {
    collective = kOthers[input.Next() % (codec.is_dense() ? 3 : 2)];
  }
  return {.collective = collective,
          .hosts = (byte & 1) != 0 ? "aab" : "abb",
          .count = kCounts[byte >> 1 & 3],
          .codec = codec,
          .is_weighted = !codec.is_dense() && HasOp(collective) && (byte & 64) != 0};
}

// The message of a step that an honest peer would send, damaged as the input chooses.
ScriptedMessage MessageOf(Input& input, const Plan& plan, const CallDescriptor& call,
                          const Step& receive) {
  const uint8_t style = input.Next();
  const bool is_packet =
      !call.codec.is_dense() && (receive.exchange != 1 || !SumsInsideHosts(call.collective));
  ScriptedMessage message;
  message.payload.resize((style & 2) != 0 ? input.Next() : receive.region.bytes);
  if (is_packet && call.is_weighted && (style & 1) != 0 && message.payload.size() >= kWeightBytes) {
    SetWeight(1, message.payload.data());
  }
  ChangePayload(input, style >> 4, &message);
  MessageHeader header = {
      .call = call,
      .exchange = receive.exchange,
      .is_nonfinite = is_packet && (style & 4) != 0,
      .has_payload_checksum = is_packet,
      .segment = receive.segment,
      .segment_count = static_cast<uint16_t>(plan.segments()),
  };
  if (is_packet) {
    header.payload_checksum =
        kernels::cpu::ChecksumOf(message.payload.data(), message.payload.size());
  } else if (call.is_weighted) {
    const float weight = (style & 1) != 0 ? 1.0f : static_cast<float>(input.Next());
    std::memcpy(&header.payload_checksum.sum, &weight, sizeof(weight));
  }
  HeaderBytes encoded;
  EncodeHeader(header, &encoded);
  message.header.assign(encoded.begin(), encoded.end());
  if ((style & 8) != 0) DamageHeader(input, &message);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Transport* const transport = onebit::testing::StartForFuzzer();
  Input input(data, size);
  const Case c = CaseOf(input);
  std::vector<CommOptions> options(
      3,
      {.timeout_ms = 1, .one_exchange_elements = 0, .two_level_bytes = 0, .segment_elements = 128});
  for (size_t rank = 0; rank < 3; ++rank) options[rank].host = c.hosts[rank];
  auto group = Comm::CreateLocalGroup(*transport, options);
  if (!group.ok()) std::abort();
  Comm& comm = *group.value()[0];
  Engine engine(comm);

  const std::vector<float> x(3 * c.count, 0.5f);  // of three ranks, where a call has parts
  std::vector<float> output(3 * c.count);
  CallRequest request = {.collective = c.collective,
                         .sendbuff = x.data(),
                         .recvbuff = output.data(),
                         .count = c.count,
                         .op = ReduceOp::kAvg};
  std::optional<PlannedCompressor> compressor;
  if (!c.codec.is_dense()) {
    // A tensor without elements always takes one exchange.
    if (c.count == 0) return 0;
    auto made = engine.CreateCompressor(
        {.codec = c.codec, .count = c.count, .hops = 2, .levels = 2, .collective = c.collective});
    if (!made.ok()) std::abort();
    compressor = std::move(made).value();
    request.compressor = &*compressor;
    if (c.is_weighted) {
      if (!engine.PlanWeights(&*compressor).ok()) std::abort();
      compressor->compressor.set_weight(input.Next() % 2 == 0 ? 1.0f : 0.0f);
    }
  }
  const Plan plan =
      SelectPlan(KeyOf(request, comm), 0, comm.hosts(), comm.options().segment_elements);
  const CallDescriptor call = DescriptorOf(request, comm);

  std::vector<std::deque<ScriptedMessage>> scripts(3);
  for (size_t left = plan.receives.size() + 4; left > 0 && !input.empty() && !plan.receives.empty();
       --left) {
    const Step& receive = plan.steps[plan.receives[input.Next() % plan.receives.size()]];
    scripts[receive.peer].push_back(MessageOf(input, plan, call, receive));
  }
  for (int peer = 1; peer < 3; ++peer) {
    ScriptedTransport::SetScript(peer, std::move(scripts[static_cast<size_t>(peer)]));
  }
  const Status status = RunCall(engine, request).status();
  if (!status.ok() && status.text().empty()) std::abort();
  if (status.code() == Code::kInvalidUsage)
    std::abort();  // nothing was received, so nothing tested
  return 0;
}
