// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/stream_executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/without_signals.h"
#include "device/api_type.h"
#include "plan/planned_compressor.h"
#include "plan/reduce_op.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

using kernels::cuda::CallMessages;
using kernels::cuda::Kernel;
using kernels::cuda::kInMemory;
using kernels::cuda::kMaxCallMessages;
using kernels::cuda::kMostRuns;
using kernels::cuda::MessageFailure;
using kernels::cuda::MessageRun;
using kernels::cuda::PayloadSum;

static_assert(kernels::cuda::kHeaderBytes == kHeaderBytes);

bool IsCompressed(const Call& call) { return call.compressor != nullptr; }

// Elements have no header. A barrier has none of them either, so it sends a header.
bool HasHeader(const Call& call, uint32_t exchange) {
  return HasPackets(call.descriptor, exchange) || call.plan->key.collective == Collective::kBarrier;
}

onebitTransportCollective_t TransportCollective(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
      return onebitTransportReduceScatter;
    case Collective::kAllGather:
      return onebitTransportAllGather;
    case Collective::kBroadcast:
      return onebitTransportBroadcast;
    default:
      return onebitTransportAllReduce;
  }
}

size_t Aligned(size_t bytes) { return RoundUp(bytes, kCacheLine); }

// Makes `message` the next one of a run, if it continues that run.
bool Continue(const MessageRun& message, MessageRun* run) {
  const MessageRun& first = *run;
  const ptrdiff_t from_first = message.header - first.header;
  const int64_t stride = first.count == 1 ? from_first : first.stride;
  const bool is_next = message.peer == first.peer + first.count && message.bytes == first.bytes &&
                       message.sums == first.sums + first.count &&
                       from_first == first.count * stride;
  if (!is_next) return false;
  run->stride = stride;
  ++run->count;
  return true;
}

// Returns false if there is no room for another run.
bool Append(const MessageRun& message, CallMessages* messages) {
  const uint32_t runs = messages->run_count;
  if (runs != 0 && Continue(message, &messages->runs[runs - 1])) return true;
  if (runs == kMostRuns) return false;
  messages->runs[messages->run_count++] = message;
  return true;
}

}  // namespace

Result<std::unique_ptr<StreamExecutor>> StreamExecutor::Create(Comm& comm, const Devices& devices,
                                                               int device) {
  ONEBIT_ASSIGN_OR_RETURN(auto compute, StreamCompute::Create(devices, device, comm.hosts()));
  return std::unique_ptr<StreamExecutor>(new StreamExecutor(comm, std::move(compute)));
}

size_t StreamExecutor::SumsOf(const Plan& plan) { return SentSumsOf(plan) + plan.steps.size(); }

size_t StreamExecutor::SpaceFor(const Plan& plan) {
  return Aligned(sizeof(uint32_t)) + Aligned(SumsOf(plan) * sizeof(PayloadSum)) +
         plan.steps.size() * kHeaderBytes + Aligned(plan.packet_space_bytes);
}

// Each exchange seals messages of a call and checks others. A call with many segments may have more
// CallMessages than this, and then has so many elements that launches take no time beside them.
size_t StreamExecutor::MessagesOf(const Plan& plan) {
  if (plan.key.collective == Collective::kAllToAllv) return plan.steps.size();
  // Inside hosts, messages have the segments of the chunks of several hosts or ranks.
  const size_t chunks = plan.key.has_two_levels ? plan.ranks : 0;
  return 2 * (size_t{plan.exchanges} + chunks);
}

StreamExecutor::Space StreamExecutor::BindCall(Call* call, std::byte* memory) const {
  const Plan& plan = *call->plan;
  Space space;
  space.faults = reinterpret_cast<uint32_t*>(memory);
  memory += Aligned(sizeof(uint32_t));
  space.sent = reinterpret_cast<PayloadSum*>(memory);
  space.next_received = space.sent + SentSumsOf(plan);
  const size_t checksums = SumsOf(plan) * sizeof(PayloadSum);
  space.sum_bytes = Aligned(sizeof(uint32_t)) + checksums;
  memory += Aligned(checksums);
  space.bare_headers = memory;
  call->packets = memory + plan.steps.size() * kHeaderBytes;
  return space;
}

Status StreamExecutor::Reserve(std::span<const Plan* const> plans,
                               std::optional<onebitStream_t> stream) {
  size_t bytes = 0;
  size_t tile_sums = 0;
  size_t compressed = 0;
  size_t messages = 0;
  for (const Plan* plan : plans) {
    ONEBIT_TRY(CheckDevicePlan(*plan));
    bytes += SpaceFor(*plan);
    tile_sums += compute_->SumBytesFor(*plan, plan->tensor_elements);
    if (plan->key.codec.is_dense()) continue;
    ++compressed;
    messages += MessagesOf(*plan);
  }
  const size_t lists = StreamCompute::ListBytesFor(compressed, messages);
  if (orders_.size() < plans.size()) orders_.resize(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) orders_[i].Reserve(*plans[i]);
  spaces_.reserve(plans.size());
  const bool has_space = bytes <= space_.size() && tile_sums <= compute_->sum_bytes();
  if (has_space && lists <= compute_->lists().capacity()) return OkStatus();
  bool is_capturing = false;
  if (stream.has_value()) {
    ONEBIT_ASSIGN_OR_RETURN(is_capturing, devices().IsCapturing(*stream));
  }
  if (is_capturing) {
    if (has_space) return OkStatus();  // graphs have no lists in memory
    return Error(Code::kInvalidUsage,
                 "rank {}: this call needs more memory than those before it, but none can be "
                 "allocated while its stream is captured: make such a call once before the capture",
                 comm_.rank());
  }
  ONEBIT_TRY(space_.Reserve(bytes, [this](size_t grown) {
    return Memory::CreateOrdered({MemoryKind::kDevice, device()}, &devices(), grown,
                                 "packet space");
  }));
  ONEBIT_TRY(compute_->ReserveSums(tile_sums));
  return compute_->lists().Reserve(lists);
}

Status StreamExecutor::Begin(std::span<Call> calls, onebitStream_t stream) {
  calls_ = calls;
  spaces_.clear();
  exchanges_ = exchanges_before_pairs_ = 0;
  under_way_.Begin();
  ONEBIT_TRY(compute_->Begin(stream));
  std::byte* memory = space_.data();
  for (size_t i = 0; i < calls.size(); ++i) {
    orders_[i].Arrange(*calls[i].plan);
    if (!IsPair(i)) exchanges_before_pairs_ = std::max(exchanges_before_pairs_, ExchangesOf(i));
    exchanges_ = std::max(exchanges_, Before(i) + ExchangesOf(i));
    spaces_.push_back(BindCall(&calls[i], memory));
    memory += SpaceFor(*calls[i].plan);
    if (!IsCompressed(calls[i])) continue;
    ONEBIT_TRY(devices().Fill(spaces_[i].faults, 0, spaces_[i].sum_bytes, stream));
    ONEBIT_TRY(compute_->BeginCall({spaces_[i].faults}));
  }
  return OkStatus();
}

// The transport's own collective is posted with the messages of the next exchange, which may be one
// more than the plan has.
uint32_t StreamExecutor::ExchangesOf(size_t call) const {
  const StreamOrder& order = orders_[call];
  const std::span<const uint32_t> last = order.compute(order.exchanges());
  const bool is_native = std::ranges::any_of(last, [&](uint32_t index) {
    return calls_[call].plan->steps[index].kind == StepKind::kNative;
  });
  return order.exchanges() + (is_native ? 1 : 0);
}

Status StreamExecutor::Compute(uint32_t phase) {
  for (size_t i = 0; i < calls_.size(); ++i) {
    for (const uint32_t step : orders_[i].compute(phase - Before(i))) {
      compute_->steps().Add(i, calls_[i], calls_[i].plan->steps[step], {spaces_[i].faults});
    }
  }
  return compute_->steps().EnqueueSteps();
}

const char* StreamExecutor::NameOfPhase(uint32_t phase) const {
  for (size_t i = 0; i < calls_.size(); ++i) {
    const std::span<const uint32_t> steps = orders_[i].compute(phase - Before(i));
    if (!steps.empty()) return NameOf(calls_[i].plan->steps[steps[0]].kind);
  }
  return nullptr;
}

// The sequence number of a call is that of the batch's first call that is counted like it, plus the
// number of such calls between them.
kernels::cuda::HeaderTemplate StreamExecutor::TemplateOf(size_t index, const Step& message) const {
  const Call& call = calls_[index];
  MessageHeader header = {.call = call.descriptor,
                          .exchange = message.exchange,
                          .has_payload_checksum = true,
                          .segment = message.segment,
                          .segment_count = static_cast<uint16_t>(call.plan->segments())};
  uint64_t* const sequence = compute_->SequenceOf(call.plan->key);
  header.call.sequence = static_cast<uint64_t>(std::count_if(
      calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(index), [&](const Call& other) {
        return IsCompressed(other) && compute_->SequenceOf(other.plan->key) == sequence;
      }));
  if (header.call.collective == Collective::kAllToAllv) header.call.count = message.elements.count;
  header.call.replica_age = 0;
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  kernels::cuda::HeaderTemplate result;
  std::memcpy(result.bytes, bytes.data(), bytes.size());
  result.sequence = sequence;
  if (IsCompressed(call)) result.replica_age = AgeOnDevice(call.plan->key, *call.compressor);
  return result;
}

std::byte* StreamExecutor::HeaderOf(size_t index, uint32_t step) const {
  const Region& region = calls_[index].plan->steps[step].region;
  if (region.bytes == 0) return spaces_[index].bare_headers + step * kHeaderBytes;
  return calls_[index].packets + region.offset - kHeaderBytes;
}

// Headers of a call differ only in fields that kernels fill in, except for their counts in an
// all-to-all-v, and their segments. `message_of` describes the message of a step; null header: it
// is left out. Messages share a run as far as they can, so that a group with many ranks takes few
// launches.
template <typename MessageOf>
void StreamExecutor::AddMessages(size_t index, std::span<const uint32_t> steps,
                                 const MessageOf& message_of) {
  const Plan& plan = *calls_[index].plan;
  const bool has_own_counts = plan.key.collective == Collective::kAllToAllv;
  CallMessages* messages = nullptr;
  uint16_t segment = 0;
  for (const uint32_t step : steps) {
    const MessageRun message = message_of(step);
    if (message.header == nullptr) continue;
    const bool is_alike = segment == std::exchange(segment, plan.steps[step].segment);
    const bool has_room = messages != nullptr && !has_own_counts && is_alike;
    if (has_room && Append(message, messages)) continue;
    messages_.push_back(
        {.filled = TemplateOf(index, plan.steps[step]),
         .faults = spaces_[index].faults,
         .has_verdict = !IsCompressed(calls_[index]) || plan.key.codec.has_verdict(),
         .runs = {}});
    messages = &messages_.back();
    Append(message, messages);
  }
}

template <typename Params, typename LongParams>
Status StreamExecutor::LaunchMessages(Kernel kernel, Params* params, Kernel long_kernel,
                                      LongParams long_params) {
  const std::span<const CallMessages> list(messages_);
  return compute_->lists().Launch(
      list, kMaxCallMessages,
      [&](const CallMessages* calls) {
        long_params.list = {static_cast<uint32_t>(list.size()), calls};
        return devices().Launch(long_kernel, &long_params, compute_->stream());
      },
      [&](std::span<const CallMessages> part) {
        params->list.count = static_cast<uint32_t>(part.size());
        std::ranges::copy(part, params->list.calls);
        return devices().Launch(kernel, params, compute_->stream());
      });
}

// A packet that goes to all peers has one header.
Status StreamExecutor::PrepareMessages(uint32_t exchange) {
  messages_.clear();
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!IsCompressed(calls_[i])) continue;
    const std::byte* before = nullptr;
    const auto message_of = [&](uint32_t step) -> MessageRun {
      const Plan& plan = *calls_[i].plan;
      const Step& send = plan.steps[step];
      if (!HasPackets(calls_[i].descriptor, send.exchange)) return {};
      std::byte* const header = HeaderOf(i, step);
      if (std::exchange(before, header) == header) return {};
      // A result is sent between hosts first, and then inside.
      PayloadSum* const sums =
          spaces_[i].sent + (send.exchange == kMostExchanges ? plan.packet_count : 0);
      return {.header = header,
              .bytes = send.region.bytes,
              .sums = sums + send.packet,
              .peer = send.peer};
    };
    AddMessages(i, orders_[i].sends(exchange - Before(i)), message_of);
  }
  return LaunchMessages(Kernel::kSeal, &seal_, Kernel::kSealLong,
                        kernels::cuda::SealParamsOf<kInMemory>{});
}

Status StreamExecutor::PostMessages(uint32_t exchange) {
  Endpoint& endpoint = comm_.endpoint();
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    ONEBIT_TRY(PostNative(call, orders_[i].compute(exchange - 1 - Before(i))));
    const bool has_header = HasHeader(call, exchange - Before(i));
    for (const uint32_t index : orders_[i].sends(exchange - Before(i))) {
      const Step& step = call.plan->steps[index];
      const auto peer = static_cast<int>(step.peer);
      if (has_header) {
        ONEBIT_TRY(endpoint.SendOnStream(peer, HeaderOf(i, index), kHeaderBytes + step.region.bytes,
                                         compute_->stream()));
        comm_.CountNetworkBytes(step.peer, kHeaderBytes + step.region.bytes);
      } else if (step.region.bytes != 0) {
        ONEBIT_TRY(endpoint.SendOnStream(peer, call.Read(step.region), step.region.bytes,
                                         compute_->stream()));
        comm_.CountNetworkBytes(step.peer, step.region.bytes);
      }
    }
    for (const uint32_t index : orders_[i].receives(exchange - Before(i))) {
      const Step& step = call.plan->steps[index];
      const auto peer = static_cast<int>(step.peer);
      if (has_header) {
        ONEBIT_TRY(endpoint.ReceiveOnStream(peer, HeaderOf(i, index),
                                            kHeaderBytes + step.region.bytes, compute_->stream()));
      } else if (step.region.bytes != 0) {
        ONEBIT_TRY(endpoint.ReceiveOnStream(peer, call.Write(step.region), step.region.bytes,
                                            compute_->stream()));
      }
    }
  }
  return OkStatus();
}

// Posts the transport's own collectives. No other step of the plan depends on one.
Status StreamExecutor::PostNative(const Call& call, std::span<const uint32_t> steps) {
  const PlanKey& key = call.plan->key;
  for (const uint32_t index : steps) {
    if (call.plan->steps[index].kind != StepKind::kNative) continue;
    ONEBIT_TRY(
        comm_.endpoint().CollectiveOnStream({.collective = TransportCollective(key.collective),
                                             .send = call.input,
                                             .recv = call.output,
                                             .count = key.count,
                                             .datatype = ApiType(key.type),
                                             .op = ApiOp(call.descriptor.op),
                                             .root = static_cast<int>(key.root)},
                                            compute_->stream()));
  }
  return OkStatus();
}

Status StreamExecutor::Check(uint32_t exchange) {
  messages_.clear();
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!IsCompressed(calls_[i])) continue;
    const auto message_of = [&](uint32_t step) -> MessageRun {
      const Step& receive = calls_[i].plan->steps[step];
      if (!HasPackets(calls_[i].descriptor, receive.exchange)) return {};
      return {.header = HeaderOf(i, step),
              .bytes = receive.region.bytes,
              .sums = spaces_[i].next_received++,
              .peer = receive.peer};
    };
    AddMessages(i, orders_[i].receives(exchange - Before(i)), message_of);
  }
  check_.failure = compute_->failure();
  return LaunchMessages(
      Kernel::kCheck, &check_, Kernel::kCheckLong,
      kernels::cuda::CheckParamsOf<kInMemory>{.failure = check_.failure, .list = {}});
}

Status StreamExecutor::End() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!IsCompressed(calls_[i])) continue;
    compute_->EndCall(calls_[i], {spaces_[i].faults}, /*counts_sequence=*/true);
  }
  calls_ = {};
  ONEBIT_TRY(compute_->End());
  if (compute_->is_capturing()) {
    has_captured_ = true;
    under_way_.Drop();
    return OkStatus();
  }
  return under_way_.Add(devices(), compute_->stream());
}

void StreamExecutor::Drop(onebitStream_t stream) {
  under_way_.Drop();
  calls_ = {};
  compute_->Halt(stream);
}

Status StreamExecutor::FindFailure() const {
  MessageFailure* const failure = compute_->failure();
  if (std::atomic_ref(failure->state).load(std::memory_order_acquire) != 2) return OkStatus();
  const auto header_of = [](const uint8_t* bytes) {
    return DecodeHeader(std::as_bytes(std::span(bytes, kHeaderBytes)));
  };
  const auto expected = header_of(failure->expected);
  const std::string call =
      expected.ok() ? onebit::Describe(expected.value().call) : std::string("a call");
  const auto received = header_of(failure->received);
  if (!received.ok()) {
    return Error(received.status().code(), "rank {}: {}: message from rank {}: {}", comm_.rank(),
                 call, failure->peer, received.status().text());
  }
  if (failure->kind == kernels::cuda::kPayloadDiffers) {
    return Error(Code::kCorrupt,
                 "rank {}: {}: message from rank {} was damaged in transit: the checksum of its "
                 "payload is {:08x}:{:08x}, but should be {:08x}:{:08x}",
                 comm_.rank(), call, failure->peer, failure->checksum.sum,
                 failure->checksum.weighted, failure->expected_checksum.sum,
                 failure->expected_checksum.weighted);
  }
  if (failure->kind == kernels::cuda::kHasFailed) {
    return Error(Code::kRemoteError, "rank {}: {}: rank {} failed in this call or before it",
                 comm_.rank(), call, failure->peer);
  }
  if (failure->kind == kernels::cuda::kFlagUnfit) {
    return Error(Code::kCorrupt, "rank {}: {}: rank {} sent flags that do not fit such a call",
                 comm_.rank(), call, failure->peer);
  }
  const std::string difference =
      expected.ok() ? DescribeDifference(expected.value().call, received.value().call) : "";
  return Error(Code::kMismatch, "rank {}: {}: rank {} makes a different call: {}", comm_.rank(),
               call, failure->peer, difference.empty() ? "of another exchange" : difference);
}

std::future<void> StreamExecutor::FreeInBackground(GrowableBuffer* more) {
  struct Freed {
    StreamCompute::Blocks compute;
    GrowableBuffer space, more;
  };
  try {
    auto freed = std::make_shared<Freed>();
    auto promise = std::make_shared<std::promise<void>>();
    std::future<void> future = promise->get_future();
    // The thread waits until it owns the memory to be freed.
    auto begin = std::make_shared<std::promise<void>>();
    const WithoutSignals blocked;
    std::thread([freed, promise, begins = begin->get_future()]() mutable {
      begins.wait();
      freed.reset();
      promise->set_value();
    }).detach();
    freed->compute = compute_->TakeMemory();
    freed->space = std::move(space_);
    freed->more = std::move(*more);
    freed.reset();
    begin->set_value();
    return future;
  } catch (const std::exception&) {
    return {};  // no thread or no memory
  }
}

void StreamExecutor::LeakMemory() {
  compute_->LeakMemory();
  space_.Release();
}

}  // namespace onebit
