// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A single loop over signals, output and the clock.
#include "perf/common/job_supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr double kSecondsToTerminate = 2;
constexpr int kSignalStatus = 128;  // what shells add to the number of a signal

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Signals that were ignored at our start, as nohup does it, stay ignored: here and, across exec, in
// the ranks.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  return set;
}

bool IsSameFile(int left, int right) {
  struct stat a, b;
  return fstat(left, &a) == 0 && fstat(right, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

void SetHandler(int signal, void (*handler)(int), struct sigaction* former) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(signal, &action, former);
}

}  // namespace

SignalGate::SignalGate() {
  const sigset_t watched = WatchedSignals();
  descriptor_ = Descriptor(signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor_.is_open()) {
    throw ToolError(fmt::format("cannot watch for signals: {}", ErrnoText()));
  }
  sigprocmask(SIG_BLOCK, &watched, &former_mask_);
  // SIGCHLD may have been ignored at our start, and then no child could be waited for.
  SetHandler(SIGCHLD, SIG_DFL, &former_child_);
  // A closed stdout and a terminal in the background then show as errors of write and read.
  SetHandler(SIGPIPE, SIG_IGN, &former_pipe_);
  SetHandler(SIGTTIN, SIG_IGN, &former_terminal_);
}

SignalGate::~SignalGate() {
  sigaction(SIGCHLD, &former_child_, nullptr);
  sigaction(SIGPIPE, &former_pipe_, nullptr);
  sigaction(SIGTTIN, &former_terminal_, nullptr);
  sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

int SignalGate::Next() {
  signalfd_siginfo info;
  const ssize_t size = read(descriptor_.number(), &info, sizeof(info));
  return size == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

Supervisor::Supervisor(SignalGate& signals, std::string tool, double grace_seconds)
    : signals_(signals),
      tool_(std::move(tool)),
      grace_seconds_(grace_seconds),
      standard_output_(STDOUT_FILENO),
      standard_error_(STDERR_FILENO),
      messages_(IsSameFile(STDOUT_FILENO, STDERR_FILENO) ? standard_output_ : standard_error_) {}

void Supervisor::RelayOutput(Descriptor from, std::string tag) {
  outputs_.emplace_back(std::move(from), &standard_output_, std::move(tag));
}

void Supervisor::RelayError(Descriptor from, std::string tag) {
  outputs_.emplace_back(std::move(from), &messages_, std::move(tag));
}

int Supervisor::Wait() {
  CollectEnded();  // some may have been faster than the start of the others
  while (HasLiveRank()) {
    WaitForEvents();
    HandleSignals();
    CollectEnded();
    PumpOutputs();
    if (!FlushOutputs()) GiveUpOutputs();
    if (deadline_ && Clock::now() >= *deadline_) Escalate();
  }
  // No rank is left to stop what it started. Its leftovers would keep the output open, so they are
  // killed.
  for (const auto& ranks : sets_) ranks->KillLeftovers();
  DrainOutputs();
  if (is_output_closed_) return kSignalStatus + SIGPIPE;
  if (failure_) {
    switch (failure_->kind) {
      case RankEnd::Kind::kStatus:
        return failure_->number;
      case RankEnd::Kind::kSignal:
        return kSignalStatus + failure_->number;
      case RankEnd::Kind::kLost:
        return kExitFailed;
    }
  }
  return stop_signal_ == 0 ? 0 : kSignalStatus + stop_signal_;
}

bool Supervisor::HasLiveRank() const {
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const auto& ranks) { return ranks->is_live(); });
}

void Supervisor::WaitForEvents() {
  // poll() ignores negative descriptors, which stand for streams that have ended.
  std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0}};
  for (const OutputQueue* queue : {&standard_output_, &standard_error_}) {
    waits.push_back({queue->waiting(), POLLOUT, 0});
  }
  for (const LineRelay& relay : outputs_) waits.push_back({relay.waiting(), POLLIN, 0});
  const size_t first_input = waits.size();
  for (const InputRelay& relay : inputs_) waits.push_back(relay.Wait());
  std::optional<Clock::time_point> next = deadline_;
  for (const auto& ranks : sets_) {
    ranks->AppendWaits(&waits);
    const auto other = ranks->deadline();
    if (other && (!next || *other < *next)) next = other;
  }
  int timeout_ms = -1;
  if (next) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  if (poll(waits.data(), waits.size(), timeout_ms) <= 0) return;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (waits[first_input + i].revents != 0) inputs_[i].Pump();
  }
}

void Supervisor::HandleSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) {
      CollectEnded();
      continue;
    }
    // A second signal means: stop now.
    const bool is_second = std::exchange(stop_signal_, signal) != 0;
    SignalLive(signal);
    if (is_second) {
      Escalate();
    } else if (stage_ == Stage::kRunning) {
      Enter(Stage::kGrace);
    }
  }
}

void Supervisor::CollectEnded() {
  std::vector<RankEnd> ends;
  for (const auto& ranks : sets_) ranks->Collect(&ends);
  for (const RankEnd& end : ends) {
    if (end.is_failure()) NoteFailure(end);
  }
}

void Supervisor::NoteFailure(const RankEnd& failure) {
  // Once we have sent signals, a failure may be our own doing.
  const bool is_told = stage_ == Stage::kTerminating || stage_ == Stage::kKilling ||
                       stop_signal_ != 0 || is_explained_;
  const bool is_cause = failure_ && failure_->kind == RankEnd::Kind::kStatus &&
                        failure.kind != RankEnd::Kind::kStatus && !is_told;
  if (!failure_ || is_cause) failure_ = failure;
  if (stage_ == Stage::kRunning) Enter(Stage::kGrace);
}

void Supervisor::Explain() {
  if (!failure_ || stop_signal_ != 0 || is_output_closed_) return;
  if (std::exchange(is_explained_, true)) return;
  std::string what;
  switch (failure_->kind) {
    case RankEnd::Kind::kStatus:
      what = fmt::format("ended with status {}", failure_->number);
      break;
    case RankEnd::Kind::kSignal:
      what = fmt::format("was killed by signal {} ({})", failure_->number,
                         strsignal(failure_->number));
      break;
    case RankEnd::Kind::kLost:
      what = fmt::format("was lost: {}", failure_->loss);
      break;
  }
  Say(fmt::format("rank {} ({}) {}", failure_->rank, failure_->process, what));
}

// A blocked reader of our messages must not keep us from ending the job.
void Supervisor::Say(const std::string& line) {
  messages_.Append(fmt::format("{}: {}\n", tool_, line));
}

void Supervisor::Enter(Stage stage) {
  stage_ = stage;
  const double seconds = stage == Stage::kGrace ? grace_seconds_ : kSecondsToTerminate;
  deadline_ = Clock::now() +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Supervisor::Escalate() {
  Explain();
  switch (stage_) {
    case Stage::kRunning:
    case Stage::kGrace:
      SayOfLive("terminating");
      SignalLive(SIGTERM);
      Enter(Stage::kTerminating);
      return;
    case Stage::kTerminating:
      SayOfLive("killing");
      [[fallthrough]];
    case Stage::kKilling:
      SignalLive(SIGKILL);
      Enter(Stage::kKilling);
      return;
  }
}

void Supervisor::SignalLive(int signal) {
  for (const auto& ranks : sets_) ranks->Signal(signal);
}

// Returns true if any had output.
bool Supervisor::PumpOutputs() {
  bool has_moved = false;
  for (LineRelay& relay : outputs_) has_moved = relay.Pump() || has_moved;
  return has_moved;
}

// Returns false if ranks have output that can no longer be delivered.
bool Supervisor::FlushOutputs() {
  bool is_fine = true;
  for (OutputQueue* queue : {&standard_output_, &standard_error_}) {
    is_fine = queue->Flush() && is_fine;
  }
  return is_fine || outputs_.empty();
}

// Nobody reads our output, so the job is pointless, as for any program in a pipe.
void Supervisor::GiveUpOutputs() {
  is_output_closed_ = !failure_;
  outputs_.clear();
  SignalLive(SIGTERM);
  if (stage_ == Stage::kRunning) Enter(Stage::kTerminating);
}

// Waits for slow readers, as any program does, until told to stop.
void Supervisor::DrainOutputs() {
  inputs_.clear();
  deadline_.reset();
  if (stop_signal_ != 0) Enter(Stage::kTerminating);
  bool is_finished = false;
  while (!IsDrainGivenUp()) {
    const bool was_full = standard_output_.is_full() || standard_error_.is_full();
    const bool has_moved = PumpOutputs();
    if (!FlushOutputs()) GiveUpOutputs();
    if (!has_moved && !was_full && !std::exchange(is_finished, true)) {
      for (LineRelay& relay : outputs_) relay.Finish();
      outputs_.clear();
      Explain();
      continue;
    }
    const bool is_empty = standard_output_.is_empty() && standard_error_.is_empty();
    if (is_finished && is_empty) return;
    if (!has_moved && !is_empty) WaitForEvents();
  }
  Explain();
  FlushOutputs();
}

bool Supervisor::IsDrainGivenUp() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) continue;
    if (std::exchange(stop_signal_, signal) != 0) return true;
    Enter(Stage::kTerminating);
  }
  return deadline_ && Clock::now() >= *deadline_;
}

// There may be none, and only a connection that is not closed yet.
void Supervisor::SayOfLive(const char* what_happens) {
  std::vector<int> live;
  for (const auto& ranks : sets_) ranks->AppendLive(&live);
  if (!live.empty()) Say(fmt::format("{} rank {}", what_happens, fmt::join(live, ", ")));
}

}  // namespace onebit::perf
