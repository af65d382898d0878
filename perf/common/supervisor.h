// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Watches over the processes of a job until all have ended: none may be left when one has failed.
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

// Holds back, for its lifetime, the signals that the supervisor reads: make it before the first
// child, or the end of that child can be missed.
class SignalGate {
 public:
  SignalGate();  // throws ToolError
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  int descriptor() const { return descriptor_.number(); }
  // The next signal that has arrived; 0: none.
  int Next();

 private:
  sigset_t former_mask_;
  struct sigaction former_child_, former_pipe_, former_terminal_;
  Descriptor descriptor_;
};

class Supervisor {
 public:
  // `tool` begins the lines that are written to stderr.
  Supervisor(SignalGate& signals, std::string tool, double grace_seconds);
  // Kills and reaps what is left.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // The next rank. One that may be killed is no failure when SIGKILL ends it.
  void Add(pid_t child, bool may_be_killed = false) { children_.push_back({child, may_be_killed}); }
  // What comes from the rank goes to standard output or error, each line with its tag in front.
  void RelayOutput(Descriptor from, std::string tag);
  void RelayError(Descriptor from, std::string tag);
  void Relay(InputRelay relay) { inputs_.push_back(std::move(relay)); }

  // Waits for all. When one fails, the others get the grace period to say why in their own words,
  // then SIGTERM, then SIGKILL; when the job is told to stop, it is told, and then likewise.
  // Returns the status of the first that failed, 128 + signal if one ended it, or 0. First is one
  // that a signal ended, before we sent any, if there is one: who ends with a status may do so
  // because of it, and be done sooner than the kernel with the other.
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
  // Where both are the same, as after 2>&1, the first has all, so that lines do not mix.
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
