// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The ranks of another host, as onebit_run sees them: ssh and the agent at its other end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/common/child_process.h"
#include "perf/common/job_guard.h"
#include "perf/common/line_relay.h"
#include "perf/common/rank_set.h"
#include "perf/hosts/agent_protocol.h"
#include "perf/hosts/host_list.h"

namespace onebit::perf {

// A host that is silent for so long is lost.
inline constexpr char kLossTimeout[] = "ONEBIT_LOSS_TIMEOUT_MS";

struct HostLinkSpec {
  HostRanks host;
  bool is_this_host = false;
  int first_rank = 0;                // the standard input is for rank 0
  std::vector<std::string> command;  // starts the agent there
  std::string agent_path;
  bool is_output_tagged = false;
  std::chrono::milliseconds loss_timeout{0};
};

class HostLink : public RankSet {
 public:
  // Starts the command. Output of the ranks goes to `output` and `errors`. Throws ToolError.
  HostLink(HostLinkSpec spec, const JobGuard& guard, ByteSink* output, ByteSink* errors);
  // Ends the command. The agent then ends its ranks.
  ~HostLink() override;

  const std::string& host() const { return spec_.host.name; }
  bool is_this_host() const { return spec_.is_this_host; }
  // True when the agent has answered. If that fails, or the host is lost before Start, Collect
  // throws a ToolError.
  bool is_ready() const { return hello_.has_value(); }
  const AgentHello& hello() const { return *hello_; }
  // The words of ssh so far, to be appended to an error about this host.
  std::string StartupWords() const;
  // Fills in what depends on the host, and tells the agent to start its ranks. If it cannot,
  // Collect throws a StartError.
  void Start(AgentJob job);

  // Names the host in what it throws.
  void Collect(std::vector<RankEnd>* ends) override;
  bool is_live() const override { return !is_closed_; }
  void AppendLive(std::vector<int>* ranks) const override;
  void Signal(int signal) override;
  void AppendWaits(std::vector<pollfd>* waits) const override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  // Keeps the beginning of ssh's words until the ranks are started, and passes on all that follows.
  class ErrorOutput : public ByteSink {
   public:
    explicit ErrorOutput(ByteSink* to) : to_(to) {}
    void Append(std::string_view bytes) override;
    bool is_full() const override { return to_->is_full(); }
    void Open() { is_open_ = true; }
    const std::string& kept() const { return kept_; }

   private:
    ByteSink* to_;
    bool is_open_ = false;
    std::string kept_;
  };

  struct Rank {
    std::string process;
    bool has_ended = false;
  };

  void Exchange(std::vector<RankEnd>* ends);
  void ReadFrames(std::vector<RankEnd>* ends);
  void Handle(const Frame& frame, std::vector<RankEnd>* ends);
  void ReadInput();
  bool WantsInput() const;
  void Beat();
  void NoticeEnd(std::vector<RankEnd>* ends);
  [[noreturn]] void ThrowNotStarted(int status) const;
  void Tell(FrameKind kind, std::string_view payload);

  const HostLinkSpec spec_;
  ByteSink* const output_;
  ErrorOutput error_output_;
  Descriptor to_agent_;
  Descriptor from_agent_;
  pid_t process_ = 0;  // ssh
  std::optional<OutputQueue> outgoing_;
  std::optional<LineRelay> errors_;
  FrameReader frames_{true};
  std::optional<AgentHello> hello_;
  std::vector<Rank> ranks_;
  bool is_started_ = false;
  bool has_agent_ended_ = false;  // its output has
  bool is_silent_ = false;
  bool is_closed_ = false;
  size_t input_on_its_way_ = 0;
  bool has_input_ended_ = false;
  Clock::time_point last_heard_;
  Clock::time_point next_beat_;
  std::optional<Clock::time_point> break_at_;  // when to give the connection up
};

}  // namespace onebit::perf
