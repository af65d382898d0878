// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One loop over the connection, signals, output and the clock.
#include "perf/hosts/rank_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "perf/common/child_process.h"
#include "perf/common/preload_path.h"
#include "perf/common/rank_environment.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeToEnd{2000};  // from SIGTERM to SIGKILL
// Until the job says another one. The caller may be waiting for other hosts, but shows that it
// lives.
constexpr milliseconds kFirstLossTimeout{60'000};

// The addresses of both ends of ssh's connection: "client port server port".
void ReadSshConnection(AgentHello* hello) {
  const char* const text = std::getenv("SSH_CONNECTION");
  if (text == nullptr) return;
  const std::string_view all(text);
  const size_t first = all.find(' ');
  const size_t second = all.find(' ', first + 1);
  const size_t third = all.find(' ', second + 1);
  if (first == all.npos || second == all.npos || third == all.npos) return;
  hello->client_address = all.substr(0, first);
  hello->server_address = all.substr(second + 1, third - second - 1);
}

void SetVariable(const std::string& variable) {
  const size_t equals = variable.find('=');
  setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
}

// Writes a file that only this user can read.
void WriteSecret(const std::string& path, const std::string& secret) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open() || !WriteAll(file.number(), secret.data(), secret.size())) {
    throw ToolError(fmt::format("cannot write {}: {}", path, ErrnoText()));
  }
}

}  // namespace

void RankAgent::FramedOutput::Append(std::string_view bytes) {
  std::string frame;
  AppendFrame(FrameKind::kOutput, bytes, &frame);
  connection_->Append(frame);
}

RankAgent::RankAgent(SignalGate& signals)
    : signals_(signals),
      connection_(STDOUT_FILENO),
      errors_(STDERR_FILENO),
      framed_(&connection_),
      frames_(false),
      loss_timeout_(kFirstLossTimeout),
      last_heard_(Clock::now()),
      next_beat_(Clock::now()) {}

int RankAgent::Run() {
  AgentHello hello = {.version = OwnVersion(),
                      .server_address = {},
                      .client_address = {},
                      .rendezvous_port = rendezvous_port_.number(),
                      .master_port = BoundPort().number()};
  ReadSshConnection(&hello);
  connection_.Append(kAgentGreeting);
  Tell(FrameKind::kHello, Encode(hello));
  while (!IsOver()) Step();
  if (ranks_) ranks_->KillLeftovers();
  Drain();
  return has_problem_ || is_caller_gone_ ? kExitFailed : kExitOk;
}

bool RankAgent::IsOver() const {
  if (ranks_ && ranks_->is_live()) return false;
  return ranks_.has_value() || kill_at_.has_value();
}

void RankAgent::Step() {
  WaitForEvents();
  ReadConnection();
  HandleSignals();
  WriteInput();
  PumpOutputs();
  Beat();
  errors_.Flush();
  if (!connection_.Flush()) is_caller_gone_ = true;
  if (Clock::now() - last_heard_ >= loss_timeout_) is_caller_gone_ = true;
  if (is_caller_gone_) Stop();
  if (kill_at_ && Clock::now() >= *kill_at_ && ranks_) ranks_->Signal(SIGKILL);
}

void RankAgent::WaitForEvents() {
  std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0},
                               {is_caller_gone_ ? -1 : STDIN_FILENO, POLLIN, 0},
                               {connection_.waiting(), POLLOUT, 0},
                               {errors_.waiting(), POLLOUT, 0},
                               {pending_input_.empty() ? -1 : input_.number(), POLLOUT, 0}};
  for (const LineRelay& relay : outputs_) waits.push_back({relay.waiting(), POLLIN, 0});
  Clock::time_point next = std::min(next_beat_, last_heard_ + loss_timeout_);
  if (kill_at_) next = std::min(next, *kill_at_);
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now());
  // A time that has passed must not make the loop spin: there may be nothing to do about it.
  poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 10, 60'000)));
}

void RankAgent::ReadConnection() {
  pollfd wait = {STDIN_FILENO, POLLIN, 0};
  while (!is_caller_gone_ && poll(&wait, 1, 0) > 0) {
    char buffer[1 << 14];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      is_caller_gone_ = true;
      return;
    }
    last_heard_ = Clock::now();
    frames_.Feed({buffer, static_cast<size_t>(size)});
    for (Frame frame; frames_.Next(&frame);) Handle(frame);
  }
}

void RankAgent::Handle(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kJob:
      if (!ranks_) Start(DecodeJob(frame.payload));
      return;
    case FrameKind::kInput:
      pending_input_ += frame.payload;
      return;
    case FrameKind::kInputEnd:
      has_input_ended_ = true;
      return;
    case FrameKind::kSignal:
      if (ranks_) ranks_->Signal(DecodeNumber(frame.payload));
      return;
    case FrameKind::kAlive:
    case FrameKind::kHello:  // this and those below come from an agent
    case FrameKind::kStarted:
    case FrameKind::kProblem:
    case FrameKind::kOutput:
    case FrameKind::kEnded:
    case FrameKind::kInputTaken:
      return;
  }
}

void RankAgent::Start(const AgentJob& job) {
  loss_timeout_ = milliseconds(job.loss_timeout_ms);
  ranks_.emplace(job.first_rank);
  const auto complain = [&](int status, const std::string& text) {
    Tell(FrameKind::kProblem, EncodeTexts({std::to_string(status), text}));
    has_problem_ = true;
    Stop();
  };
  try {
    StartRanks(job);
  } catch (const StartError& error) {
    complain(error.status(), error.what());
  } catch (const ToolError& error) {
    complain(kExitFailed, error.what());
  }
}

void RankAgent::StartRanks(const AgentJob& job) {
  if (chdir(job.folder.c_str()) != 0) {
    throw ToolError(
        fmt::format("cannot start in {}: {}: start the job in a folder that every host has",
                    job.folder, ErrnoText()));
  }
  SetVariable("PWD=" + job.folder);
  for (const std::string& variable : job.variables) SetVariable(variable);
  folder_.emplace();
  RankPlace place;
  place.rank = job.first_rank;
  place.ranks = job.ranks;
  place.local_ranks = job.local_ranks;
  place.rendezvous = job.rendezvous;
  place.master_address = job.master_address;
  place.master_port = job.master_port;
  if (!job.secret.empty()) {
    place.secret_file = folder_->path() + "/secret";
    WriteSecret(place.secret_file, job.secret);
  }
  if (job.is_preloaded) place.preload = PreloadPath();
  guard_.emplace(folder_->path());
  std::vector<std::string> numbers;
  for (; place.local_rank < job.local_ranks; ++place.local_rank, ++place.rank) {
    Pipe output = MakePipe();
    // A process that outlives its rank must not have the agent's own stream: ssh would wait for it.
    Pipe error = MakePipe();
    Descriptor input;
    if (place.rank == 0) {
      Pipe pipe = MakePipe();
      input = std::move(pipe.read);
      input_ = std::move(pipe.write);
      fcntl(input_.number(), F_SETFL, O_NONBLOCK);
    } else {
      input = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    const pid_t child = StartChild({.program = job.arguments.front(),
                                    .arguments = job.arguments,
                                    .environment = RankEnvironment(place),
                                    .standard_input = input.number(),
                                    .standard_output = output.write.number(),
                                    .standard_error = error.write.number(),
                                    .announcement = guard_->groups()});
    ranks_->Add(child);
    numbers.push_back(std::to_string(child));
    std::optional<std::string> tag;
    if (job.is_output_tagged) tag = fmt::format("[{}] ", place.rank);
    outputs_.emplace_back(std::move(output.read), &framed_, tag);
    outputs_.emplace_back(std::move(error.read), &errors_, tag);
  }
  Tell(FrameKind::kStarted, EncodeTexts(numbers));
  CollectEnded();  // some may have been faster than the start of the others
}

void RankAgent::HandleSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) {
      CollectEnded();
    } else {
      Stop();
    }
  }
}

void RankAgent::CollectEnded() {
  if (!ranks_) return;
  std::vector<RankEnd> ends;
  ranks_->Collect(&ends);
  for (const RankEnd& end : ends) {
    Tell(FrameKind::kEnded, EncodeTexts({std::to_string(end.rank),
                                         end.kind == RankEnd::Kind::kSignal ? "signal" : "status",
                                         std::to_string(end.number)}));
  }
}

void RankAgent::WriteInput() {
  while (!pending_input_.empty()) {
    size_t taken = pending_input_.size();  // all of it, if the rank reads no more
    if (input_.is_open()) {
      const ssize_t written = write(input_.number(), pending_input_.data(), pending_input_.size());
      if (written >= 0) {
        taken = static_cast<size_t>(written);
      } else if (errno == EAGAIN || errno == EINTR) {
        return;
      } else {
        input_ = Descriptor();
      }
    }
    pending_input_.erase(0, taken);
    Tell(FrameKind::kInputTaken, EncodeTexts({std::to_string(taken)}));
  }
  if (has_input_ended_) input_ = Descriptor();
}

void RankAgent::Tell(FrameKind kind, std::string_view payload) {
  std::string frame;
  AppendFrame(kind, payload, &frame);
  connection_.Append(frame);
}

// Output that waits to be sent is a sign of life as well.
void RankAgent::Beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kAgentBeat;
  if (connection_.is_empty()) Tell(FrameKind::kAlive, {});
}

void RankAgent::Stop() {
  if (kill_at_) return;
  kill_at_ = Clock::now() + kTimeToEnd;
  if (ranks_) ranks_->Signal(SIGTERM);
}

// Returns true if any had output.
bool RankAgent::PumpOutputs() {
  bool has_moved = false;
  for (LineRelay& relay : outputs_) has_moved = relay.Pump() || has_moved;
  return has_moved;
}

// All ranks have ended, so everything they wrote is in the pipes.
void RankAgent::Drain() {
  bool is_finished = false;
  while (!is_caller_gone_) {
    const bool was_full = connection_.is_full() || errors_.is_full();
    if (!PumpOutputs() && !was_full && !std::exchange(is_finished, true)) {
      for (LineRelay& relay : outputs_) relay.Finish();
      outputs_.clear();
    }
    errors_.Flush();
    is_caller_gone_ = !connection_.Flush();
    if (is_finished && connection_.is_empty() && errors_.is_empty()) return;
    if (!connection_.is_empty() || !errors_.is_empty()) Step();
  }
}

}  // namespace onebit::perf
