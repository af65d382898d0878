// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The part of onebit_run --hosts that runs on each host, started by ssh: it starts the ranks there,
// passes on what they write, and ends them when it is told to, or when nobody is there to tell it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/common/bound_port.h"
#include "perf/common/job_guard.h"
#include "perf/common/job_supervisor.h"
#include "perf/common/line_relay.h"
#include "perf/common/local_ranks.h"
#include "perf/common/private_folder.h"
#include "perf/hosts/agent_protocol.h"

namespace onebit::perf {

class RankAgent {
 public:
  // Speaks agent_protocol.h over the standard input and output of this process.
  explicit RankAgent(SignalGate& signals);

  // Returns an exit status when all ranks have ended and what they wrote is on its way, or when the
  // caller is gone.
  int Run();

 private:
  using Clock = std::chrono::steady_clock;

  // Puts output of ranks into frames.
  class FramedOutput : public ByteSink {
   public:
    explicit FramedOutput(OutputQueue* connection) : connection_(connection) {}
    void Append(std::string_view bytes) override;
    bool is_full() const override { return connection_->is_full(); }

   private:
    OutputQueue* connection_;
  };

  bool IsOver() const;
  void Step();
  void WaitForEvents();
  void ReadConnection();
  void Handle(const Frame& frame);
  void Start(const AgentJob& job);
  void StartRanks(const AgentJob& job);
  void HandleSignals();
  void CollectEnded();
  void WriteInput();
  void Tell(FrameKind kind, std::string_view payload);
  void Beat();
  void Stop();
  bool PumpOutputs();
  void Drain();

  SignalGate& signals_;
  const BoundPort rendezvous_port_;
  OutputQueue connection_;
  OutputQueue errors_;
  FramedOutput framed_;
  FrameReader frames_;
  std::optional<PrivateFolder> folder_;  // outlives the ranks
  std::optional<JobGuard> guard_;
  std::optional<LocalRanks> ranks_;  // set when there is a job
  std::vector<LineRelay> outputs_;
  Descriptor input_;  // to rank 0
  std::string pending_input_;
  bool has_input_ended_ = false;
  bool is_caller_gone_ = false;
  bool has_problem_ = false;
  std::chrono::milliseconds loss_timeout_;
  Clock::time_point last_heard_;
  Clock::time_point next_beat_;
  std::optional<Clock::time_point> kill_at_;  // set once the ranks were told to end
};

}  // namespace onebit::perf
