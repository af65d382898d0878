// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Supervises the processes of a job until all have ended: if one fails, none may be left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "perf/common/child_process.h"
#include "perf/common/line_relay.h"

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
  // Kills and reaps the remaining processes.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Adds the next rank. If it may be killed, its end by SIGKILL is no failure.
  void Add(pid_t child, bool may_be_killed = false) { children_.push_back({child, may_be_killed}); }
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

  struct Failure {
    size_t rank = 0;
    bool was_signal = false;
    int number = 0;  // of the signal, or the exit status
  };

  struct Child {
    pid_t pid = 0;
    bool may_be_killed = false;
    bool has_ended = false;
  };

  bool HasLiveChild() const;
  void WaitForEvents();
  void HandleSignals();
  void CollectEnded();
  void NoteFailure(const Failure& failure);
  void Say(const std::string& line);
  void Explain();
  void Enter(Stage stage);
  void Escalate();
  void SignalLive(int signal);
  bool PumpOutputs();
  bool FlushOutputs();
  void DrainOutputs();
  bool IsDrainGivenUp();
  void GiveUpOutputs();
  std::string LiveRanks() const;

  SignalGate& signals_;
  const std::string tool_;
  const double grace_seconds_;
  std::vector<Child> children_;  // by rank
  // If both are the same file, as after 2>&1, the first takes everything, so lines do not mix.
  OutputQueue standard_output_;
  OutputQueue standard_error_;
  OutputQueue& messages_;
  std::vector<LineRelay> outputs_;
  std::vector<InputRelay> inputs_;
  Stage stage_ = Stage::kRunning;
  std::optional<Clock::time_point> deadline_;  // of the stage
  std::optional<Failure> failure_;             // the first
  bool is_explained_ = false;
  bool is_output_closed_ = false;
  int stop_signal_ = 0;  // what the job was told to stop with
};

}  // namespace onebit::perf
