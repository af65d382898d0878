// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/call_ledger.h"

#include <new>

#include "base/guard.h"
#include "base/log.h"
#include "steps/fill_nan.h"

namespace onebit {
namespace {

// A call that met a NaN or infinity returns quiet NaNs, so that a loss scaler notices.
void FillOutput(const Call& call) {
  if (call.output == nullptr) return;
  for (const Step& step : call.plan->steps) {
    if (!WritesOutput(step) || step.elements.count == 0) continue;
    FillNan(call.OutputAt(step.elements.begin), step.elements.count, call.plan->key.type);
  }
}

// Later calls of this kind only count in the stats. The call is over, so a failure to log is not
// its error.
void LogFirstNonfinite(int rank, const CallDescriptor& call) noexcept {
  if (!LogEnabled(LogLevel::kInfo)) return;
  try {
    Log(LogLevel::kInfo, "rank {}: {}: a value is not finite, so the output is NaN on all ranks",
        rank, Describe(call));
  } catch (const std::bad_alloc&) {
  }
}

// Running out of memory for the log line does not fail the call.
void WarnOfOverflow(const Comm& comm, const CallDescriptor& call) noexcept {
  try {
    Log(LogLevel::kWarn,
        "rank {}: {} calls were enqueued before one could be reported to the other ranks: from {} "
        "on, some of this communicator's calls are not compared, so dense calls that differ "
        "between ranks may hang or give wrong results",
        comm.rank(), RecordRing::kCapacity, Describe(call));
  } catch (const std::bad_alloc&) {
  }
}

// Records in a compressor what binds its later calls, the op or the end of a pair, and forgets a
// prepared rebind, which has not succeeded everywhere.
void RecordUse(const CallRequest& request) {
  Compressor& state = request.compressor->compressor;
  if (HasOp(request.collective)) state.set_op(request.op);
  if (request.compressor->plan->key.is_pairs() && state.config().codec.has_feedback()) {
    state.set_pair_end({request.root, request.is_receive});
  }
  request.compressor->prepared.reset();
}

}  // namespace

uint64_t CallLedger::Number(const Plan& plan, std::span<Call> calls) {
  if (!plan.key.is_pairs()) return comm_.NextSequence();
  for (Call& call : calls) {
    const PlanKey& key = call.plan->key;
    call.descriptor.sequence = comm_.NextPairNumber(key.root, key.is_receive);
  }
  return 0;
}

void CallLedger::NumberAndPost(CallDescriptor* call) {
  if (call->collective == Collective::kSendRecv) return;
  call->sequence = comm_.NextSequence();
  CallDescriptor posted = *call;
  posted.replica_age = 0;
  if (!comm_.PostCall(posted)) WarnOfOverflow(comm_, *call);
}

void CallLedger::BeginEnqueuing(const CallDescriptor& first, size_t calls) {
  if (trace_ != nullptr) trace_->BeginEnqueuing(first, calls);
}

void CallLedger::EndEnqueuing(std::span<const CallRequest> requests, bool has_succeeded) {
  if (trace_ != nullptr) trace_->EndEnqueuing(has_succeeded);
  for (const CallRequest& request : requests) {
    if (request.compressor == nullptr) continue;
    if (has_succeeded) {
      RecordUse(request);
    } else {
      request.compressor->compressor.NoteFailed();
    }
  }
}

Status CallLedger::FailEnqueuing(const Status& cause) {
  return comm_.Fail(CatchNoMemory(
      [&]() -> Status { return Error(cause.code(), "rank {}: {}", comm_.rank(), cause.text()); }));
}

void CallLedger::End(const CallRequest& request, const Call& call, CallOutcome outcome) {
  PlannedCompressor* const compressor = request.compressor;
  if (outcome == CallOutcome::kNotBegun || outcome == CallOutcome::kFailed) {
    CountFailed(1);
    if (compressor == nullptr) return;
    // A call that has not begun has written nothing.
    if (outcome == CallOutcome::kFailed) {
      compressor->compressor.DiscardFailed();
    } else {
      compressor->compressor.NoteNotBegun();
    }
    return;
  }
  Count(request, *call.plan);
  if (compressor == nullptr) return;
  Compressor& state = compressor->compressor;
  state.CountCall();
  if (outcome == CallOutcome::kNonfinite) {
    Add(comm_.counters().nonfinite_calls, 1);
    state.DiscardNonfinite();
    if (state.nonfinite_calls() == 1) LogFirstNonfinite(comm_.rank(), call.descriptor);
    FillOutput(call);
    return;
  }
  RecordUse(request);
  // For one rank the result is the input, so there is nothing to commit.
  if (state.is_empty_round()) {
    state.CountEmptyRound();
  } else if (!call.plan->is_alone()) {
    state.Commit();
  }
}

void CallLedger::Count(const CallRequest& request, const Plan& plan) {
  CommCounters& counters = comm_.counters();
  Add(request.compressor == nullptr ? counters.dense_calls : counters.compressed_calls, 1);
  if (plan.key.is_native) Add(counters.native_calls, 1);
  if (plan.key.has_two_levels) Add(counters.two_level_calls, 1);
  CountPiece(request, plan);
}

void CallLedger::CountPiece(const CallRequest& request, const Plan& plan) {
  Add(comm_.counters().logical_bytes, plan.tensor_elements * kernels::BytesOf(request.type));
}

void CallLedger::CountTime(uint64_t codec_ns, std::chrono::steady_clock::time_point begin) {
  Add(comm_.counters().codec_ns, codec_ns);
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
  Add(comm_.counters().call_ns, static_cast<uint64_t>(spent.count()));
}

void CallLedger::CountMessages() {
  CommCounters& counters = comm_.counters();
  const Endpoint::Counters sent = comm_.endpoint().counters();
  counters.bytes_sent.store(sent.bytes_sent, std::memory_order_relaxed);
  counters.messages_sent.store(sent.messages_sent, std::memory_order_relaxed);
}

}  // namespace onebit
