// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/stream_executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/backoff.h"
#include "base/without_signals.h"
#include "collectives/planned_compressor.h"

namespace onebit {
namespace {

using kernels::cuda::Kernel;
using kernels::cuda::kMaxPieces;
using kernels::cuda::MessageFailure;

static_assert(kernels::cuda::kHeaderBytes == kHeaderBytes);

bool IsCompressed(const Call& call) { return call.compressor != nullptr; }

// Dense messages have no header. A barrier has no payload either, so it sends a header.
bool HasHeader(const Call& call) {
  return IsCompressed(call) || call.plan->key.collective == Collective::kBarrier;
}

size_t Aligned(size_t bytes) { return RoundUp(bytes, kCacheLine); }

// Adds the payload behind a header, if there is one.
void AddChecksum(const std::byte* header, size_t bytes, kernels::Checksum* sum,
                 kernels::cuda::ChecksumParams* sums) {
  if (bytes == 0) return;
  sums->spans[sums->count++] = {.data = header + kHeaderBytes, .bytes = bytes, .checksum = sum};
}

}  // namespace

Result<std::unique_ptr<StreamExecutor>> StreamExecutor::Create(Comm& comm, const Devices& devices,
                                                               int device) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<StreamExecutor> executor(new StreamExecutor(comm, devices, device));
  const MemoryLocation location{MemoryKind::kDevice, device};
  ONEBIT_ASSIGN_OR_RETURN(executor->words_,
                          Memory::Create(location, &devices, sizeof(Words), "a call number"));
  ONEBIT_ASSIGN_OR_RETURN(
      executor->report_,
      Memory::CreatePinned(devices, device, sizeof(KernelReport), "an account of calls"));
  ONEBIT_ASSIGN_OR_RETURN(executor->last_, DeviceEvent::Create(devices));
  ONEBIT_TRY(executor->under_way_.Create(devices));
  return executor;
}

size_t StreamExecutor::SpaceFor(const Plan& plan) {
  return Aligned(sizeof(uint32_t)) +
         Aligned((plan.packet_count + plan.steps.size()) * sizeof(kernels::Checksum)) +
         plan.steps.size() * kHeaderBytes + Aligned(plan.packet_space_bytes);
}

StreamExecutor::Space StreamExecutor::BindCall(Call* call, std::byte* memory) const {
  const Plan& plan = *call->plan;
  Space space;
  space.verdict = reinterpret_cast<uint32_t*>(memory);
  memory += Aligned(sizeof(uint32_t));
  space.sent = reinterpret_cast<kernels::Checksum*>(memory);
  space.received = space.sent + plan.packet_count;
  const size_t checksums = (plan.packet_count + plan.steps.size()) * sizeof(kernels::Checksum);
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
  for (const Plan* plan : plans) {
    ONEBIT_TRY(CheckDevicePlan(*plan));
    bytes += SpaceFor(*plan);
    tile_sums = std::max(
        tile_sums, TileSumsFor(*plan, plan->tensor_elements) * sizeof(kernels::cuda::TileSum));
  }
  if (orders_.size() < plans.size()) orders_.resize(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) orders_[i].Reserve(*plans[i]);
  spaces_.reserve(plans.size());
  if (bytes <= space_.size() && tile_sums <= tile_sums_.size()) return OkStatus();
  bool is_capturing = false;
  if (stream.has_value()) {
    ONEBIT_ASSIGN_OR_RETURN(is_capturing, devices_.IsCapturing(*stream));
  }
  if (is_capturing) {
    return Error(Code::kInvalidUsage,
                 "rank {}: this call needs more memory than those before it, and none can be "
                 "allocated while its stream is captured: make such a call once before the capture",
                 comm_.rank());
  }
  const auto create = [this](size_t grown) {
    return Memory::Create({MemoryKind::kDevice, device_}, &devices_, grown, "packet space");
  };
  ONEBIT_TRY(space_.Reserve(bytes, create));
  return tile_sums_.Reserve(tile_sums, create);
}

KernelQueue StreamExecutor::queue() const {
  return {.devices = &devices_,
          .stream = stream_,
          .tile_sums = reinterpret_cast<kernels::cuda::TileSum*>(tile_sums_.data())};
}

Status StreamExecutor::Begin(std::span<Call> calls, onebitStream_t stream) {
  calls_ = calls;
  stream_ = stream;
  spaces_.clear();
  under_way_.Begin();
  // All calls share the working memory, so they run one after the other. During a capture the
  // caller must ensure that.
  ONEBIT_ASSIGN_OR_RETURN(is_capturing_, devices_.IsCapturing(stream));
  if (!is_capturing_ && has_last_) ONEBIT_TRY(devices_.Wait(stream, last_.get()));
  std::byte* memory = space_.data();
  for (size_t i = 0; i < calls.size(); ++i) {
    orders_[i].Arrange(*calls[i].plan);
    spaces_.push_back(BindCall(&calls[i], memory));
    memory += SpaceFor(*calls[i].plan);
    if (!IsCompressed(calls[i])) continue;
    ONEBIT_TRY(devices_.Fill(spaces_[i].verdict, 0, spaces_[i].sum_bytes, stream));
    // After a failure no call commits or writes residuals, not even calls enqueued before the
    // failure was known: other ranks may have committed the failed call, and a rebind rolls forward
    // to it.
    ONEBIT_TRY(devices_.Copy(spaces_[i].verdict, &words()->halted, sizeof(uint32_t), stream));
  }
  return OkStatus();
}

Status StreamExecutor::Compute(uint32_t phase) {
  for (size_t i = 0; i < calls_.size(); ++i) {
    Call& call = calls_[i];
    for (const uint32_t index : orders_[i].compute[phase]) {
      const Step& step = call.plan->steps[index];
      if (step.kind == StepKind::kNative) continue;  // posted with the messages after this phase
      ONEBIT_TRY(EnqueueStep(queue(), call, step, spaces_[i].verdict));
    }
  }
  return OkStatus();
}

// The sequence number of a call is that of the batch's first call plus the number of compressed
// calls between them.
kernels::cuda::HeaderTemplate StreamExecutor::TemplateOf(size_t index, const Step& message) const {
  const Call& call = calls_[index];
  MessageHeader header = {.call = call.descriptor,
                          .exchange = message.exchange,
                          .has_payload_checksum = true,
                          .segment = message.segment,
                          .segment_count = static_cast<uint16_t>(call.plan->segments())};
  header.call.sequence = static_cast<uint64_t>(
      std::count_if(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(index),
                    [](const Call& other) { return IsCompressed(other); }));
  if (header.call.collective == Collective::kAllToAllv) header.call.count = message.elements.count;
  header.call.replica_age = 0;
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  kernels::cuda::HeaderTemplate result;
  std::memcpy(result.bytes, bytes.data(), bytes.size());
  result.sequence = &words()->sequence;
  if (IsCompressed(call) && HasReplica(call.plan->key, *call.compressor)) {
    result.replica_age = call.compressor->age_on_device();
  }
  return result;
}

std::byte* StreamExecutor::HeaderOf(size_t index, uint32_t step) const {
  const Region& region = calls_[index].plan->steps[step].region;
  if (region.bytes == 0) return spaces_[index].bare_headers + step * kHeaderBytes;
  return calls_[index].packets + region.offset - kHeaderBytes;
}

Status StreamExecutor::PrepareMessages(uint32_t exchange) {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (IsCompressed(calls_[i])) ONEBIT_TRY(SealCall(i, exchange));
  }
  return OkStatus();
}

// Combines messages whose headers differ only in fields that kernels fill in into one launch, after
// a launch for their checksums. `add` puts a message into both, or leaves it out.
template <typename Params, typename Add>
Status StreamExecutor::LaunchMessages(size_t index, const std::vector<uint32_t>& messages,
                                      Kernel kernel, Params params, const Add& add) {
  const Plan& plan = *calls_[index].plan;
  const bool has_own_counts = plan.key.collective == Collective::kAllToAllv;
  params.verdict = spaces_[index].verdict;
  for (size_t next = 0; next < messages.size();) {
    kernels::cuda::ChecksumParams sums;
    params.header = TemplateOf(index, plan.steps[messages[next]]);
    params.count = 0;
    do {
      add(messages[next++], &params, &sums);
    } while (next < messages.size() && params.count < kMaxPieces && !has_own_counts);
    if (sums.count != 0) ONEBIT_TRY(devices_.Launch(Kernel::kChecksum, &sums, stream_));
    if (params.count != 0) ONEBIT_TRY(devices_.Launch(kernel, &params, stream_));
  }
  return OkStatus();
}

// Computes the checksums of packets, then their headers. A packet that goes to all peers has one
// header.
Status StreamExecutor::SealCall(size_t index, uint32_t exchange) {
  const std::byte* before = nullptr;
  const auto add = [&](uint32_t step, kernels::cuda::SealParams* seal,
                       kernels::cuda::ChecksumParams* sums) {
    const Step& send = calls_[index].plan->steps[step];
    std::byte* const header = HeaderOf(index, step);
    if (std::exchange(before, header) == header) return;
    kernels::Checksum* const sum = &spaces_[index].sent[send.packet];
    seal->headers[seal->count] = header;
    seal->checksums[seal->count] = send.region.bytes == 0 ? nullptr : sum;
    ++seal->count;
    AddChecksum(header, send.region.bytes, sum, sums);
  };
  return LaunchMessages(index, orders_[index].sends[exchange - 1], Kernel::kSeal,
                        kernels::cuda::SealParams{}, add);
}

Status StreamExecutor::PostMessages(uint32_t exchange) {
  Endpoint& endpoint = comm_.endpoint();
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    ONEBIT_TRY(PostNative(call, orders_[i].compute[exchange - 1]));
    const bool has_header = HasHeader(call);
    for (const uint32_t index : orders_[i].sends[exchange - 1]) {
      const Step& step = call.plan->steps[index];
      const auto peer = static_cast<int>(step.peer);
      if (has_header) {
        ONEBIT_TRY(endpoint.SendOnStream(peer, HeaderOf(i, index), kHeaderBytes + step.region.bytes,
                                         stream_));
      } else if (step.region.bytes != 0) {
        ONEBIT_TRY(endpoint.SendOnStream(peer, call.Read(step.region), step.region.bytes, stream_));
      }
    }
    for (const uint32_t index : orders_[i].receives[exchange - 1]) {
      const Step& step = call.plan->steps[index];
      const auto peer = static_cast<int>(step.peer);
      if (has_header) {
        ONEBIT_TRY(endpoint.ReceiveOnStream(peer, HeaderOf(i, index),
                                            kHeaderBytes + step.region.bytes, stream_));
      } else if (step.region.bytes != 0) {
        ONEBIT_TRY(
            endpoint.ReceiveOnStream(peer, call.Write(step.region), step.region.bytes, stream_));
      }
    }
  }
  return OkStatus();
}

// Posts the transport's own allreduces. No other step of the plan depends on one.
Status StreamExecutor::PostNative(const Call& call, const std::vector<uint32_t>& steps) {
  for (const uint32_t index : steps) {
    if (call.plan->steps[index].kind != StepKind::kNative) continue;
    const onebitRedOp_t op = call.descriptor.op == ReduceOp::kAvg ? onebitAvg : onebitSum;
    ONEBIT_TRY(comm_.endpoint().AllReduceOnStream(call.input, call.output, call.plan->key.count,
                                                  onebitFloat32, op, stream_));
  }
  return OkStatus();
}

Status StreamExecutor::Check(uint32_t exchange) {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (IsCompressed(calls_[i])) ONEBIT_TRY(CheckCall(i, exchange));
  }
  return OkStatus();
}

Status StreamExecutor::CheckCall(size_t index, uint32_t exchange) {
  kernels::cuda::CheckParams params;
  params.failure = &report()->failure;
  const auto add = [&](uint32_t step, kernels::cuda::CheckParams* check,
                       kernels::cuda::ChecksumParams* sums) {
    const Step& receive = calls_[index].plan->steps[step];
    std::byte* const header = HeaderOf(index, step);
    kernels::Checksum* const sum = &spaces_[index].received[step];
    check->peers[check->count] = receive.peer;
    check->headers[check->count] = header;
    check->checksums[check->count] = sum;  // stays zero for an empty payload
    ++check->count;
    AddChecksum(header, receive.region.bytes, sum, sums);
  };
  return LaunchMessages(index, orders_[index].receives[exchange - 1], Kernel::kCheck, params, add);
}

Status StreamExecutor::End() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (IsCompressed(calls_[i])) ONEBIT_TRY(EndCall(i));
  }
  calls_ = {};
  if (is_capturing_) {
    has_captured_ = true;
    under_way_.Drop();
    return OkStatus();
  }
  has_last_ = true;
  ONEBIT_TRY(devices_.Record(last_.get(), stream_));
  return under_way_.Add(devices_, stream_);
}

void StreamExecutor::Drop(onebitStream_t stream) {
  under_way_.Drop();
  calls_ = {};
  const auto scope = DeviceScope::Enter(devices_, device_);
  if (!scope.ok()) return;
  const auto is_capturing = devices_.IsCapturing(stream);
  if (!is_capturing.ok() || is_capturing.value()) return;
  // Waits, so that earlier calls are not halted. A device that refuses this runs no later calls
  // either.
  if (has_last_ && !devices_.Wait(stream, last_.get()).ok()) return;
  static_cast<void>(devices_.Fill(&words()->halted, kernels::cuda::kHalted, 1, stream));
  // Dropped calls may already use the working memory.
  if (devices_.Record(last_.get(), stream).ok()) has_last_ = true;
}

uint64_t StreamExecutor::nonfinite_calls() const {
  return std::atomic_ref(report()->nonfinite_calls).load(std::memory_order_relaxed);
}

Result<StreamCalls::Clock::duration> StreamExecutor::Age() {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  return under_way_.Age(devices_);
}

Status StreamExecutor::EndCall(size_t index) {
  const Call& call = calls_[index];
  uint32_t* const verdict = spaces_[index].verdict;
  ONEBIT_TRY(EnqueueNan(queue(), call, verdict));
  const kernels::cuda::FillParams reset = call.compressor->ResetOnDevice(verdict);
  if (reset.count != 0) ONEBIT_TRY(devices_.Launch(Kernel::kFillIf, &reset, stream_));
  kernels::cuda::CommitParams commit = call.compressor->CommitOnDevice();
  commit.is_alone = call.plan->ranks == 1;
  commit.sequence = &words()->sequence;
  commit.halted = &words()->halted;
  commit.nonfinite_calls = &report()->nonfinite_calls;
  commit.verdict = verdict;
  return devices_.Launch(Kernel::kCommit, &commit, stream_);
}

Status StreamExecutor::FindFailure() const {
  MessageFailure* const failure = &report()->failure;
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
                 "rank {}: {}: message from rank {} was damaged on its way: the checksum of its "
                 "payload is {:08x}:{:08x}, and should be {:08x}:{:08x}",
                 comm_.rank(), call, failure->peer, failure->checksum.sum,
                 failure->checksum.weighted, failure->expected_checksum.sum,
                 failure->expected_checksum.weighted);
  }
  if (failure->kind == kernels::cuda::kHasFailed) {
    return Error(Code::kRemoteError,
                 "rank {}: {}: rank {} had a failure, in this call or before it", comm_.rank(),
                 call, failure->peer);
  }
  const std::string difference =
      expected.ok() ? DescribeDifference(expected.value().call, received.value().call) : "";
  return Error(Code::kMismatch, "rank {}: {}: rank {} makes another call: {}", comm_.rank(), call,
               failure->peer, difference.empty() ? "of another exchange" : difference);
}

// Once the communicator is stopped its transport is aborted, so streams end soon.
Status StreamExecutor::AwaitAll() {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::milliseconds timeout(comm_.options().timeout_ms);
  constexpr std::chrono::milliseconds kTimeToStop{5000};
  for (Backoff backoff;; backoff.Pause()) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_idle, IsIdle());
    if (is_idle) return OkStatus();
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (comm_.is_stopped() && waited > kTimeToStop) return comm_.FindFailure();
    if (waited > timeout) {
      return Error(Code::kTimeout, "rank {}: calls on a stream have not ended for {:.1f} s",
                   comm_.rank(), std::chrono::duration<double>(timeout).count());
    }
  }
}

bool StreamExecutor::IsIdleWithin(std::chrono::milliseconds limit) const {
  return PollUntil(std::chrono::steady_clock::now() + limit, [this] {
    const auto is_idle = IsIdle();
    return !is_idle.ok() || is_idle.value();  // a broken device runs nothing
  });
}

std::future<void> StreamExecutor::FreeInBackground(GrowableBuffer* more) {
  struct Freed {
    Memory words, report;
    GrowableBuffer tile_sums, space, more;
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
    freed->words = std::move(words_);
    freed->report = std::move(report_);
    freed->tile_sums = std::move(tile_sums_);
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
  static_cast<void>(words_.Release());
  static_cast<void>(report_.Release());
  space_.Release();
  tile_sums_.Release();
}

Result<bool> StreamExecutor::IsIdle() const {
  if (!has_last_) return true;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  return devices_.IsDone(last_.get());
}

}  // namespace onebit
