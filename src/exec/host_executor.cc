// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/host_executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "exec/group_messages.h"

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

}  // namespace

HostExecutor::HostExecutor(Comm& comm)
    : comm_(comm),
      endpoint_(comm.endpoint()),
      compute_(static_cast<uint32_t>(comm.ranks())),
      messages_(comm, schedule_) {}

void HostExecutor::Reserve(const Plan& plan, size_t calls) {
  threads_.Reserve(plan.steps.size());
  schedule_.Reserve(plan, calls);
  messages_.Reserve(plan);
  if (plan.packet_count > checksums_.size()) checksums_.resize(plan.packet_count);
}

Status HostExecutor::StartThreads(size_t elements) {
  if (has_threads_ || comm_.ranks() == 1 || elements < kWorthSharing) return OkStatus();
  has_threads_ = true;  // even after an error: one attempt is enough
  const CpuSet cpus = comm_.FindCpuSet();
  Status status =
      threads_.Start(cpus.threads, static_cast<uint32_t>(comm_.ranks()), cpus.processors);
  threads_.Reserve(schedule_.most_steps());
  comm_.counters().compute_threads.store(threads_.size(), std::memory_order_relaxed);
  if (status.ok() || comm_.options().compute_threads.has_value()) return status;
  Log(LogLevel::kWarn, "rank {}: {}", comm_.rank(), status.text());  // nobody asked for threads
  return OkStatus();
}

void HostExecutor::Start(const Batch& batch) {
  batch_ = batch;
  plan_ = batch.plan;
  codec_ns_ = 0;
  has_reported_wait_ = false;
  threads_.Begin(batch_, packet_checksums(), trace_ != nullptr);
  begin_ = last_progress_ = Clock::now();
  if (trace_ != nullptr) trace_->BeginBatch(batch_, begin_);
  if (batch_.is_group()) FillTables(batch_);
  messages_.Start(batch_, checksums_, trace_);
  schedule_.Start(batch_, trace_);
  SealAll();
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
  messages_.CancelAll();
  if (trace_ != nullptr) trace_->FailBatch(messages_.LatePeer());
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
  if (plan_->ranks > 1) ONEBIT_TRY(messages_.Poll(&has_worked));
  has_worked = ShareSteps() || has_worked;
  const bool has_turned = schedule_.PassGate([this](uint32_t step) { TakeFromStream(step); });
  has_worked = has_turned || has_worked;
  if (trace_ != nullptr && has_worked) {
    trace_->EndWait(has_turned || schedule_.ComputableSteps() != 0 || !schedule_.copies().empty() ||
                    is_done());
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool has_copied, CopyAll());
  has_worked = has_copied || ComputeSome() || has_worked;
  // The end of a step on another thread is not an event that Wait could wait for.
  if (has_worked || threads_.outstanding() != 0) {
    last_progress_ = Clock::now();
    if (!has_worked) std::this_thread::yield();  // they may need this core
    *has_moved = true;
  } else if (schedule_.gate().IsStreamsTurn()) {
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

bool HostExecutor::ShareSteps() {
  if (threads_.size() == 0) return false;
  bool has_moved = false;
  for (ComputeThreads::Done done; threads_.Take(&done);) {
    has_moved = true;
    if (trace_ != nullptr) {
      trace_->AddStep(plan_->steps[done.step], done.begin, done.end, done.thread);
    }
    schedule_.Finish(done.step, !done.is_finite);
  }
  // One step is left for the caller, which would otherwise be idle.
  while (threads_.has_room() && schedule_.ComputableSteps() > 1) {
    StepQueue* queue = schedule_.MostUrgent();
    if (plan_->steps[queue->front()].elements.count < kWorthSharing) break;
    const uint32_t step = queue->Pop();
    threads_.Submit(step, schedule_.is_nonfinite(step));
    has_moved = true;
  }
  return has_moved;
}

// Packets are in host memory, so the host writes those that need no kernel.
void HostExecutor::TakeFromStream(uint32_t index) {
  const Step& step = plan_->steps[index];
  const Call& call = batch_.calls[step.call];
  const bool is_nonfinite = schedule_.is_nonfinite(index) || schedule_.gate().HasFaults(step.call);
  if (step.kind == StepKind::kVerdict) {
    kernels::Checksum held;
    if (!is_nonfinite && step.region.bytes != 0)
      held = schedule_.gate().Held(step.call, step.chunk);
    WriteVerdict(call, step, held, packet_checksums());
  } else {
    FinishPackets(call, step, !is_nonfinite, packet_checksums());
  }
  schedule_.Finish(index, is_nonfinite);
}

// Runs several steps at once, because those of small tensors take less time than a poll of
// messages.
bool HostExecutor::ComputeSome() {
  StepQueue* queue = schedule_.MostUrgent();
  if (queue == nullptr) return false;
  const auto begin = Clock::now();
  auto now = begin;
  for (; queue != nullptr && now - begin < kPollInterval; queue = schedule_.MostUrgent()) {
    const uint32_t index = queue->Pop();
    const Step& step = plan_->steps[index];
    const bool is_finite = compute_.Run(batch_.calls[step.call], step,
                                        schedule_.is_nonfinite(index), packet_checksums());
    schedule_.Finish(index, !is_finite);
    const auto end = Clock::now();
    if (trace_ != nullptr) trace_->AddStep(step, now, end);
    now = end;
  }
  codec_ns_ += Nanoseconds(now - begin);
  return true;
}

// Runs as soon as all pieces of a message are packed, which the processor's caches then have.
void HostExecutor::SealAll() {
  for (StepQueue& seals = schedule_.seals(); !seals.empty();) {
    const uint32_t index = seals.Pop();
    const Step& step = plan_->steps[index];
    checksums_[step.packet] = kernels::cpu::ChecksumOf(batch_.Read(step), step.region.bytes);
    schedule_.sends().Push(index);
  }
}

Result<bool> HostExecutor::CopyAll() {
  StepQueue& copies = schedule_.copies();
  if (copies.empty()) return false;
  const auto begin = Clock::now();
  while (!copies.empty()) {
    const uint32_t index = copies.Pop();
    const Step& step = plan_->steps[index];
    bool is_nonfinite = false;
    if (step.kind == StepKind::kPack) {
      Pack(batch_, step, schedule_.is_nonfinite(index));
      schedule_.set_nonfinite(index, false);
    } else {
      ONEBIT_ASSIGN_OR_RETURN(is_nonfinite, Unpack(batch_, step));
    }
    schedule_.Finish(index, is_nonfinite);
    SealAll();
  }
  const auto end = Clock::now();
  codec_ns_ += Nanoseconds(end - begin);
  if (trace_ != nullptr) trace_->AddCopies(begin, end);
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
        is_heard ? ", though small ones do, or the rank would be lost: packets of this size are "
                   "dropped on the way without notice"
                 : "; if small ones do, packets of this size are dropped on the way");
  }
  if (timeout > silence) return OkStatus();
  return Error(Code::kTimeout, "{}; does every rank make this call, each on its own thread?", head);
}

std::string HostExecutor::Progress() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  return Describe(
      {.plan = *plan_, .states = messages_.states(), .seconds = seconds},
      [this](uint32_t peer) { return endpoint_.DescribePeer(static_cast<int>(peer)).text; });
}

}  // namespace onebit
