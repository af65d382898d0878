// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/preload_comm.h"

#include <utility>

#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/program_driver.h"
#include "plugins/nccl_preload/real_nccl.h"
#include "plugins/nccl_preload/rules_stamp.h"
#include "plugins/nccl_preload/without_throwing.h"

namespace onebit::preload {
namespace {

constexpr int32_t kDayMs = 86'400'000;  // the longest time-out there is
// A rank that is stuck for so long has kept the others from computing, too.
constexpr std::chrono::minutes kLongestExchange{5};

}  // namespace

PreloadComm::PreloadComm(const Rules& rules, uint64_t number, Origin origin, int ranks,
                         uint64_t most_elements)
    : number_(number),
      origin_(std::move(origin)),
      needs_scope_(rules.is_default),
      policy_(rules, origin_.name, ranks, most_elements) {}

PreloadComm::~PreloadComm() {
  compressors_.reset();
  if (comm_ != nullptr) onebit_->comm_destroy(comm_.exchange(nullptr));
}

PreloadComm::Entered::~Entered() {
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - begin_;
  comm_.host_ns_ += static_cast<uint64_t>(time.count());
  // Without memory they end after a later call.
  const auto end = [this] {
    comm_.EndTensors();
    return kSuccess;
  };
  WithoutThrowing("keep compressors of tensors that have ended", end, [] {});
}

bool PreloadComm::Join(Comm native) {
  static RealFunction<Result(Comm, int*)> user_rank("ncclCommUserRank");
  native_ = native;
  onebit_ = LinkedOnebit::Get();
  int rank = 0;
  if (onebit_ == nullptr || user_rank(native, &rank) != kSuccess) return false;
  compressors_ = std::make_unique<CallCompressors>(*onebit_, rank, facts().ranks);
  if (needs_scope_) scope_exchange_ = ScopeExchange::Create();
  if (needs_scope_ && scope_exchange_ == nullptr) {
    Log(LogLevel::kWarn, "NCCL communicator \"%s\": cannot allocate pinned memory",
        origin_.name.c_str());
    return false;
  }
  // NCCL waits for a late rank as long as its program does. Only a rank that is gone is an error.
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.collectiveTimeoutMs = kDayMs;
  onebitComm_t joined = nullptr;
  if (onebit_->comm_init_from(&joined, "nccl", &native, sizeof native, &config) != onebitSuccess) {
    Log(LogLevel::kWarn,
        "the ranks of NCCL communicator \"%s\" cannot compress its calls: %s (do all of them have "
        "this library?)",
        origin_.name.c_str(), onebit_->last_error(nullptr));
    return false;
  }
  const bool is_named_alike = HasEqualNames(joined);
  const std::lock_guard lock(mutex_);
  comm_ = joined;
  return is_named_alike;
}

// Rules go by the name of a communicator, which NCCL does not compare.
bool PreloadComm::HasEqualNames(onebitComm_t comm) const {
  const auto digest = static_cast<int64_t>(DigestOf(origin_.name) >> 1);
  int64_t most[2] = {digest, -digest};
  const onebitResult_t result =
      onebit_->all_reduce(most, most, 2, onebitInt64, onebitMax, nullptr, comm, nullptr);
  if (result == onebitSuccess && most[0] == digest && most[1] == -digest) return true;
  const char* const text = result == onebitSuccess
                               ? "its ranks give it different names (ncclConfig_t.commName)"
                               : onebit_->last_error(comm);
  Log(LogLevel::kWarn, "NCCL communicator \"%s\": %s", origin_.name.c_str(), text);
  return false;
}

Result PreloadComm::BeginScopeExchange(Stream stream, bool holds) {
  // Ranks capture the same calls, and a graph would run the exchange too late.
  if (IsCaptured(stream)) {
    policy_.AskAgain();
    return kSuccess;
  }
  const auto is_over = [this] { return IsOver(); };
  const Result result =
      is_over() ? kRemoteError : scope_exchange_->Begin(native_, stream, holds, is_over);
  if (result != kSuccess) GiveUp();
  has_begun_exchange_ = true;
  return result;
}

void PreloadComm::GiveUp() {
  has_given_up_ = true;
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) onebit_->comm_abort(comm_);
}

bool PreloadComm::IsOver() const {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr || is_revoked_ || CurrentError() != onebitSuccess;
}

// Requires the mutex, and a communicator.
onebitResult_t PreloadComm::CurrentError() const {
  onebitResult_t error = onebitSuccess;
  const onebitResult_t told = onebit_->comm_async_error(comm_, &error);
  return told == onebitSuccess ? error : told;
}

std::optional<bool> PreloadComm::ScopeResult() {
  // One that was asked for within a group begins at the group's end.
  if (!has_begun_exchange_) return std::nullopt;
  const auto deadline = std::chrono::steady_clock::now() + kLongestExchange;
  const std::optional<bool> result = scope_exchange_->Await(
      [&] { return IsOver() || std::chrono::steady_clock::now() > deadline; });
  if (!result) GiveUp();
  return result;
}

Decision PreloadComm::Decide(const DataCall& call, const CallOptions& options) {
  Decision decision;
  if (IsPair(call.facts.operation)) {
    // A rank copies what it sends to itself.
    const bool is_own = compressors_ == nullptr || call.peer == compressors_->rank();
    if (!is_own) return policy_.DecideMessage(call.facts, call.peer);
    decision.may_repeat = true;
    return decision;
  }
  decision = policy_.Decide(
      call.facts, options.tensor, [this] { return ScopeResult(); }, options.compression);
  if (decision.asks_scope) has_begun_exchange_ = false;
  ended_.insert(ended_.end(), decision.ended.begin(), decision.ended.end());
  return decision;
}

// Requires call_mutex_.
void PreloadComm::EndTensors() {
  for (const uint64_t tensor : ended_) compressors_->End(tensor);
  ended_.clear();
}

Result PreloadComm::Make(const DataCall& call, const Decision& decision) {
  if (comm_ == nullptr) return kRemoteError;  // aborted a moment ago
  const bool is_compressed = decision.reason == Reason::kCompressed;
  const onebitResult_t result =
      is_compressed ? MakeCompressed(call, decision) : MakeExactMessage(call);
  if (result == onebitSuccess && is_compressed) ring_bytes_ += RingBytes(facts(), call.facts);
  return Settle(result);
}

onebitResult_t PreloadComm::MakeCompressed(const DataCall& call, const Decision& decision) {
  onebitCompressor_t compressor = nullptr;
  const onebitResult_t found = compressors_->Find(comm_, call, decision, &compressor);
  if (found != onebitSuccess) return found;
  const size_t count = call.facts.count;
  const auto type = static_cast<onebitDataType_t>(call.facts.type);
  const onebitRedOp_t op = call.facts.reduction == kAvg ? onebitAvg : onebitSum;
  switch (call.facts.operation) {
    case Operation::kReduceScatter:
      return onebit_->reduce_scatter(call.send, call.recv, count, type, op, compressor, comm_,
                                     call.stream);
    case Operation::kAllGather:
      return onebit_->all_gather(call.send, call.recv, count, type, compressor, comm_, call.stream);
    case Operation::kAllToAll:
      return onebit_->all_to_all(call.send, call.recv, count, type, compressor, comm_, call.stream);
    case Operation::kSend:
      return onebit_->send(call.send, count, type, call.peer, compressor, comm_, call.stream);
    case Operation::kRecv:
      return onebit_->recv(call.recv, count, type, call.peer, compressor, comm_, call.stream);
    default:
      return onebit_->all_reduce(call.send, call.recv, count, type, op, compressor, comm_,
                                 call.stream);
  }
}

// All messages of a group must be in one group of NCCL, as the program has put them, so those that
// stay exact are made here as well: as bytes, whatever their type.
onebitResult_t PreloadComm::MakeExactMessage(const DataCall& call) {
  const size_t element_bytes = BytesOf(call.facts.type);
  if (element_bytes == 0) {
    Log(LogLevel::kWarn,
        "NCCL communicator \"%s\": a message has type %d, which this library does not know",
        origin_.name.c_str(), static_cast<int>(call.facts.type));
    GiveUp();
    return onebitInvalidArgument;
  }
  const size_t bytes = call.facts.count * element_bytes;
  if (bytes == 0) return onebitSuccess;
  if (call.facts.operation == Operation::kRecv) {
    return onebit_->recv(call.recv, bytes, onebitUint8, call.peer, nullptr, comm_, call.stream);
  }
  if (call.peer != compressors_->rank()) exact_bytes_ += bytes;
  return onebit_->send(call.send, bytes, onebitUint8, call.peer, nullptr, comm_, call.stream);
}

Result PreloadComm::Settle(onebitResult_t result) {
  if (result != onebitSuccess && !has_given_up_) {
    Log(LogLevel::kWarn, "NCCL communicator \"%s\": %s", origin_.name.c_str(),
        onebit_->last_error(nullptr));
    GiveUp();
  }
  return NcclResultOf(result);
}

void PreloadComm::Revoke() {
  const std::lock_guard lock(mutex_);
  is_revoked_ = true;
  if (comm_ != nullptr) onebit_->comm_abort(comm_);
}

void PreloadComm::Leave() {
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    onebit_->comm_abort(comm_);  // ends a call in progress
  }
  const std::lock_guard call_lock(call_mutex_);
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  last_traffic_ = CurrentTraffic();
  onebit_->comm_destroy(comm_.exchange(nullptr));
}

Traffic PreloadComm::traffic() const {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr ? last_traffic_ : CurrentTraffic();
}

// Requires the mutex, and a communicator.
Traffic PreloadComm::CurrentTraffic() const {
  onebitCommStats_t stats{};
  stats.size = sizeof stats;
  if (onebit_->comm_stats(comm_, &stats) != onebitSuccess) return {};
  return {.calls = stats.compressed_calls,
          .nonfinite_calls = stats.nonfinite_calls,
          .sent_bytes = stats.bytes_sent - exact_bytes_,
          .ring_bytes = ring_bytes_,
          .host_seconds = static_cast<double>(host_ns_) * 1e-9,
          .residuals = residuals_};
}

void PreloadComm::MeasureResiduals() {
  const std::lock_guard call_lock(call_mutex_);
  if (compressors_ == nullptr || IsOver()) return;
  EndTensors();
  const Residuals measured = compressors_->ReadResiduals();
  const std::lock_guard lock(mutex_);
  residuals_ = measured;
}

Result PreloadComm::AsyncError() const {
  const std::lock_guard lock(mutex_);
  return comm_ == nullptr || is_revoked_ ? kSuccess : NcclResultOf(CurrentError());
}

Result NcclResultOf(onebitResult_t result) {
  if (result == onebitPeerLost || result == onebitTimeout) return kRemoteError;
  if (result == onebitOutOfMemory) return kUnhandledCudaError;  // as for a cudaMalloc of NCCL's
  return result >= onebitSuccess && result < onebitInProgress ? static_cast<Result>(result)
                                                              : kInternalError;
}

}  // namespace onebit::preload
