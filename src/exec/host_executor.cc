// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/host_executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/guard.h"
#include "base/log.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t Nanoseconds(Clock::duration duration) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(duration).count());
}

// Below this many elements, handing a step to another thread costs more than it saves.
constexpr size_t kWorthSharing = 16'384;

// Computes this long before it looks at messages again.
constexpr auto kPollInterval = std::chrono::microseconds(20);

// Looks again and again for the end of a phase on the stream for this long, then in intervals. A
// timer may add as much to a pause.
constexpr auto kStreamPollTime = std::chrono::microseconds(100);
constexpr auto kLongestPause = std::chrono::microseconds(200);

// Steps whose end lets the stream go on with the phase behind their exchange. Sends are among them,
// because that phase may overwrite what they send.
bool IsArrival(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive ||
         step.kind == StepKind::kUnpack;
}

}  // namespace

HostExecutor::HostExecutor(Comm& comm)
    : comm_(comm),
      endpoint_(comm.endpoint()),
      compute_(static_cast<uint32_t>(comm.ranks())),
      is_full_(static_cast<size_t>(comm.ranks())),
      inbound_(static_cast<size_t>(comm.ranks())) {}

void HostExecutor::Reserve(const Plan& plan, size_t calls) {
  const size_t steps = plan.steps.size();
  threads_.Reserve(steps);
  if (steps > waiting_for_.size()) {
    nonfinite_.resize(steps);
    messages_.resize(steps);
    expected_.resize(steps);
    sending_.reserve(steps);
    receiving_.reserve(steps);
    for (StepQueue* queue : {&reduces_, &compressions_, &decodings_, &copies_, &sends_}) {
      queue->Reserve(steps);
    }
    waiting_for_.resize(steps);  // last, because its size tells whether all others were resized
  }
  if (plan.packet_count > checksums_.size()) checksums_.resize(plan.packet_count);
  if (calls > are_finite_.size()) are_finite_.resize(calls);
  if (plan.exchanges > exchange_left_.size()) exchange_left_.resize(plan.exchanges);
}

Status HostExecutor::StartThreads(size_t elements) {
  if (has_threads_ || comm_.ranks() == 1 || elements < kWorthSharing) return OkStatus();
  has_threads_ = true;  // even after an error: one attempt is enough
  const CpuSet cpus = comm_.FindCpuSet();
  Status status =
      threads_.Start(cpus.threads, static_cast<uint32_t>(comm_.ranks()), cpus.processors);
  threads_.Reserve(waiting_for_.size());
  comm_.counters().compute_threads.store(threads_.size(), std::memory_order_relaxed);
  if (status.ok() || comm_.options().compute_threads.has_value()) return status;
  Log(LogLevel::kWarn, "rank {}: {}", comm_.rank(), status.text());  // nobody asked for threads
  return OkStatus();
}

void HostExecutor::Start(const Batch& batch) {
  batch_ = batch;
  plan_ = batch.plan;
  steps_left_ = plan_->steps.size();
  std::fill_n(are_finite_.begin(), batch.calls.size(), uint8_t{1});
  codec_ns_ = 0;
  has_reported_wait_ = false;
  threads_.Begin(batch_, packet_checksums(), trace_ != nullptr);
  begin_ = last_progress_ = Clock::now();
  if (trace_ != nullptr) trace_->BeginBatch(batch_, begin_);
  for (StepQueue* queue : {&reduces_, &compressions_, &decodings_, &copies_, &sends_}) {
    queue->Clear();
  }
  if (batch_.is_group()) FillTables();
  sending_.clear();
  receiving_.clear();
  native_ = {.step = kNoStep};
  weight_of_all_.reset();
  for (uint32_t peer = 0; peer < plan_->ranks; ++peer) {
    Inbound& inbound = inbound_[peer];
    inbound.request = nullptr;
    inbound.step = kNoStep;
    inbound.left = plan_->MessagesFrom(peer);
    inbound.weight.reset();
  }
  gate_ = PhaseGate(batch_);
  std::fill(exchange_left_.begin(), exchange_left_.end(), 0u);
  for (uint32_t step = 0; step < plan_->steps.size(); ++step) {
    if (IsArrival(plan_->steps[step])) ++exchange_left_[plan_->steps[step].exchange - 1u];
    waiting_for_[step] = plan_->steps[step].dependency_count;
    nonfinite_[step] = 0;
    messages_[step] = MessageState::kPending;
  }
  for (uint32_t step = 0; step < plan_->steps.size(); ++step) {
    if (waiting_for_[step] == 0) MakeReady(step);
  }
  steps_left_ -= gate_.CountLastSteps();
}

// If memory is too short for the full text the short one is used: requests must not keep the
// caller's buffers after the call.
Status HostExecutor::Fail(const Status& cause) {
  std::string situation;
  Status failure = CatchNoMemory([&]() -> Status {
    const std::string call = Subject();
    const std::string progress = Progress();
    situation = Format("in {}, {}", call, progress);
    return Error(cause.code(), "rank {}: {}: {} ({})", comm_.rank(), call, cause.text(), progress);
  });
  threads_.Drop();
  // The group learns the cause before peers can see its consequences, such as a payload that is not
  // received.
  failure = comm_.Fail(std::move(failure), situation);
  CancelAll();
  if (trace_ != nullptr) trace_->FailBatch(LatePeer());
  return failure;
}

std::string HostExecutor::Subject() const {
  if (!plan_->key.is_pairs()) return Describe(batch_.descriptor);
  if (batch_.calls.size() > 1) {
    return Format("group of {} sends and receives", batch_.calls.size());
  }
  const PlanKey& key = batch_.calls[0].plan->key;
  return Format("{} rank {}, {}", key.is_receive ? "receive from" : "send to", key.root,
                Describe(batch_.descriptor));
}

Status HostExecutor::MakeProgress(bool* has_moved) {
  if (comm_.is_stopped()) return Error(Code::kAborted, "stopped");
  bool has_worked = false;
  if (plan_->ranks > 1) {
    ONEBIT_TRY(endpoint_.Progress());
    ONEBIT_TRY(StartSends(&has_worked));
    ONEBIT_TRY(PollReceives(&has_worked));
    ONEBIT_TRY(PollSends(&has_worked));
    if (native_.step != kNoStep) ONEBIT_TRY(PollNative(&has_worked));
  }
  has_worked = ShareSteps() || has_worked;
  const bool has_turned =
      gate_.Pass(exchange_left_, [this](uint32_t step) { TakeFromStream(step); });
  has_worked = has_turned || has_worked;
  if (trace_ != nullptr && has_worked) {
    trace_->EndWait(has_turned || ReadySteps() != 0 || !copies_.empty() || is_done());
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool has_copied, CopyAll());
  has_worked = has_copied || ComputeSome() || has_worked;
  // The end of a step on another thread is not an event that Wait could wait for.
  if (has_worked || threads_.outstanding() != 0) {
    last_progress_ = Clock::now();
    if (!has_worked) std::this_thread::yield();  // they may need this core
    *has_moved = true;
  } else if (gate_.IsStreamsTurn()) {
    // The end of a phase is not an event either. A hung device must not count as progress.
    ONEBIT_TRY(Deadline());
    if (trace_ != nullptr) trace_->BeginWaitForStream();
    PauseForStream();
    *has_moved = true;
  }
  if (trace_ != nullptr && is_done()) trace_->EndBatch(Clock::now());
  return OkStatus();
}

// Long phases leave the core to others, and take little longer for it.
void HostExecutor::PauseForStream() const {
  const Clock::duration idle = Clock::now() - last_progress_;
  if (idle < kStreamPollTime) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(idle / 8, kLongestPause));
  }
}

Status HostExecutor::Wait(uint64_t timeout_ms) {
  if (is_done()) return OkStatus();
  ONEBIT_TRY(Deadline());
  ReportWait();
  if (trace_ != nullptr) trace_->BeginWait();
  const NvtxRange range("wait");
  return endpoint_.Wait(std::min(timeout_ms, comm_.options().timeout_ms));
}

// Receives need no queue: they check waiting_for_ when their header arrives. Steps on the stream
// run in phases.
void HostExecutor::MakeReady(uint32_t step) {
  if (gate_.IsOnStream(step)) return;
  switch (plan_->steps[step].kind) {
    case StepKind::kStage:
    case StepKind::kHostSum:
    case StepKind::kReduce:
    case StepKind::kVerdict:
      reduces_.Push(step);
      break;
    case StepKind::kCompress:
      compressions_.Push(step);
      break;
    case StepKind::kDecode:
    case StepKind::kCopy:
      decodings_.Push(step);
      break;
    case StepKind::kPack:
    case StepKind::kUnpack:
      copies_.Push(step);
      break;
    case StepKind::kSend:
      if (plan_->steps[step].call == kAllCalls) Seal(plan_->steps[step]);
      sends_.Push(step);
      break;
    case StepKind::kNative:
      native_.step = step;
      break;
    case StepKind::kReceive:
      break;
  }
}

// Steps inherit the non-finite flag of the steps whose results they use, which are those of their
// own call. A send or receive may wait for other calls only to keep the order of messages.
void HostExecutor::Finish(uint32_t step, bool is_nonfinite) {
  const Step& done = plan_->steps[step];
  if (is_nonfinite) {
    nonfinite_[step] = 1;
    are_finite_[done.call] = 0;
  }
  --steps_left_;
  if (IsArrival(done) && --exchange_left_[done.exchange - 1u] == 0 && trace_ != nullptr) {
    trace_->EndExchange(done.exchange);
  }
  for (uint32_t i = 0; i < done.successor_count; ++i) {
    const uint32_t successor = plan_->successors[done.first_successor + i];
    if (plan_->steps[successor].call == done.call) nonfinite_[successor] |= nonfinite_[step];
    if (--waiting_for_[successor] == 0) MakeReady(successor);
  }
}

// Steps that others wait for go first: a reduced chunk serves all peers, a compressed chunk one
// peer, a decoded chunk nobody.
StepQueue* HostExecutor::MostUrgent() {
  return !reduces_.empty()        ? &reduces_
         : !compressions_.empty() ? &compressions_
         : !decodings_.empty()    ? &decodings_
                                  : nullptr;
}

size_t HostExecutor::ReadySteps() const {
  return reduces_.size() + compressions_.size() + decodings_.size();
}

bool HostExecutor::ShareSteps() {
  if (threads_.size() == 0) return false;
  bool has_moved = false;
  for (ComputeThreads::Done done; threads_.Take(&done);) {
    has_moved = true;
    if (trace_ != nullptr) {
      trace_->AddStep(plan_->steps[done.step], done.begin, done.end, done.thread);
    }
    Finish(done.step, !done.is_finite);
  }
  // One step is left for the caller, which would otherwise be idle.
  while (threads_.has_room() && ReadySteps() > 1) {
    StepQueue* queue = MostUrgent();
    if (plan_->steps[queue->front()].elements.count < kWorthSharing) break;
    const uint32_t step = queue->Pop();
    threads_.Submit(step, nonfinite_[step] != 0);
    has_moved = true;
  }
  return has_moved;
}

// Packets are in host memory, so the host writes those that need no kernel.
void HostExecutor::TakeFromStream(uint32_t index) {
  const Step& step = plan_->steps[index];
  const Call& call = batch_.calls[step.call];
  const bool is_nonfinite = nonfinite_[index] != 0 || gate_.HasFaults(step.call);
  if (step.kind == StepKind::kVerdict) {
    kernels::Checksum held;
    if (!is_nonfinite && step.region.bytes != 0) held = gate_.Held(step.call, step.chunk);
    WriteVerdict(call, step, held, packet_checksums());
  } else {
    FinishPackets(call, step, !is_nonfinite, packet_checksums());
  }
  Finish(index, is_nonfinite);
}

// Runs several steps at once, because those of small tensors take less time than a poll of
// messages.
bool HostExecutor::ComputeSome() {
  StepQueue* queue = MostUrgent();
  if (queue == nullptr) return false;
  const auto begin = Clock::now();
  auto now = begin;
  for (; queue != nullptr && now - begin < kPollInterval; queue = MostUrgent()) {
    const uint32_t index = queue->Pop();
    const Step& step = plan_->steps[index];
    const bool is_finite =
        compute_.Run(batch_.calls[step.call], step, nonfinite_[index] != 0, packet_checksums());
    Finish(index, !is_finite);
    const auto end = Clock::now();
    if (trace_ != nullptr) trace_->AddStep(step, now, end);
    now = end;
  }
  codec_ns_ += Nanoseconds(now - begin);
  return true;
}

// Another rank may wait for this one in a collective of the control channel, where no message of
// this call arrives. Sends and receives need only their two ranks, so others may do anything.
void HostExecutor::ReportWait() {
  if (has_reported_wait_ || plan_->key.is_pairs() || Clock::now() - last_progress_ < kPatience)
    return;
  has_reported_wait_ = true;
  // Without memory the others learn when this call runs into its deadline.
  static_cast<void>(CatchNoMemory([this]() -> Status {
    comm_.ReportWait(batch_.descriptor.sequence, Subject());
    return OkStatus();
  }));
}

Status HostExecutor::Deadline() const {
  const Clock::duration timeout = std::chrono::milliseconds(comm_.options().timeout_ms);
  const Clock::duration silence = Clock::now() - last_progress_;
  // A rank that knows why nothing moves speaks before those that only wait for it.
  if (silence < timeout - timeout / 10) return OkStatus();
  const std::string head = Format("no progress for {:.1f} s (ONEBIT_COLLECTIVE_TIMEOUT_MS)",
                                  std::chrono::duration<double>(silence).count());
  for (uint32_t peer = 0; peer < plan_->ranks; ++peer) {
    if (!endpoint_.DescribePeer(static_cast<int>(peer)).is_stuck) continue;
    // A rank that nothing reaches would have been given up.
    const bool is_heard = silence > 2 * comm_.loss_timeout();
    return Error(
        Code::kTimeout,
        "{}: messages to rank {} do not arrive{}; compare the path MTU with the MTU of the "
        "interfaces (ping -M do -s SIZE), or set net.ipv4.tcp_mtu_probing to 1",
        head, peer,
        is_heard ? ", though small ones do, or the rank would be lost: packets of this "
                   "size are dropped on the way without a word"
                 : "; if small ones do, packets of this size are dropped on the way");
  }
  if (timeout > silence) return OkStatus();
  return Error(Code::kTimeout, "{}; does every rank make this call, each on its own thread?", head);
}

uint32_t HostExecutor::LatePeer() const {
  for (uint32_t exchange = 1; exchange <= plan_->exchanges; ++exchange) {
    for (const StepKind kind : {StepKind::kReceive, StepKind::kSend}) {
      for (uint32_t index = 0; index < plan_->steps.size(); ++index) {
        const Step& step = plan_->steps[index];
        const bool is_late = messages_[index] != MessageState::kDone;
        if (step.kind == kind && step.exchange == exchange && is_late) return step.peer;
      }
    }
  }
  return TraceEvent::kNone32;
}

std::string HostExecutor::Progress() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  return Describe({.plan = *plan_, .states = messages_, .seconds = seconds}, [this](uint32_t peer) {
    return endpoint_.DescribePeer(static_cast<int>(peer)).text;
  });
}

}  // namespace onebit
