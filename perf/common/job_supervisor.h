// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Supervises the processes of a job until all have ended: if one fails, none may be left behind.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perf/common/child_process.h"
#include "perf/common/line_relay.h"
#include "perf/common/rank_set.h"

namespace onebit::perf {

// Blocks, for its lifetime, the signals that the supervisor reads. Construct it before the first
// child, or the end of that child can be missed.
class SignalGate {
 public:
  SignalGate();  // throws ToolError
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  int descriptor() const { return descriptor_.number(); }
  // Returns the next pending signal; 0: none.
  int Next();

 private:
  sigset_t former_mask_;
  struct sigaction former_child_, former_pipe_, former_terminal_;
  Descriptor descriptor_;
};

class Supervisor {
 public:
  // `tool` prefixes the lines that are written to stderr.
  Supervisor(SignalGate& signals, std::string tool, double grace_seconds);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Receives the output of ranks that have no relay. Must outlive the supervisor.
  ByteSink* output() { return &standard_output_; }
  ByteSink* errors() { return &messages_; }
  void Add(std::unique_ptr<RankSet> ranks) { sets_.push_back(std::move(ranks)); }
  // Relays the output of a rank to standard output or error, with its tag in front of each line.
  void RelayOutput(Descriptor from, std::string tag);
  void RelayError(Descriptor from, std::string tag);
  void Relay(InputRelay relay) { inputs_.push_back(std::move(relay)); }

  // Waits for all ranks. After a failure, the others get the grace period to report it in their own
  // words, then SIGTERM, then SIGKILL. A signal to stop the job is passed on, and the same steps
  // follow.
  //
  // Returns the status of the first rank that failed, 128 + signal if a signal ended it, or 0. A
  // rank that was ended by a signal before we sent any counts as the first: another rank may have
  // exited because of it and been reaped sooner.
  int Wait();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kRunning, kGrace, kTerminating, kKilling };

  bool HasLiveRank() const;
  void WaitForEvents();
  void HandleSignals();
  void CollectEnded();
  void NoteFailure(const RankEnd& failure);
  void Say(const std::string& line);
  void SayOfLive(const char* what_happens);
  void Explain();
  void Enter(Stage stage);
  void Escalate();
  void SignalLive(int signal);
  bool PumpOutputs();
  bool FlushOutputs();
  void DrainOutputs();
  bool IsDrainGivenUp();
  void GiveUpOutputs();

  SignalGate& signals_;
  const std::string tool_;
  const double grace_seconds_;
  // If both are the same file, as after 2>&1, the first takes everything, so lines do not mix.
  OutputQueue standard_output_;
  OutputQueue standard_error_;
  OutputQueue& messages_;
  std::vector<LineRelay> outputs_;
  std::vector<InputRelay> inputs_;
  std::vector<std::unique_ptr<RankSet>> sets_;  // end before the queues that they fill
  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;  // of the stage
  std::optional<RankEnd> failure_;             // the first
  bool is_explained_ = false;
  bool is_output_closed_ = false;
  int stop_signal_ = 0;  // what the job was told to stop with
};

}  // namespace onebit::perf
