// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/hosts/host_link.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using std::chrono::milliseconds;

// From the end of the agent, or the order to kill its ranks, to the end of the connection.
constexpr milliseconds kTimeToClose{5000};
constexpr size_t kMaxKeptBytes = 4096;
constexpr int kSshFailed = 255;  // ssh's status when it could not run the command

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace

void HostLink::ErrorOutput::Append(std::string_view bytes) {
  if (is_open_) {
    to_->Append(bytes);
  } else {
    kept_ += bytes.substr(0, kMaxKeptBytes - std::min(kMaxKeptBytes, kept_.size()));
  }
}

HostLink::HostLink(HostLinkSpec spec, const JobGuard& guard, ByteSink* output, ByteSink* errors)
    : spec_(std::move(spec)),
      output_(output),
      error_output_(errors),
      ranks_(static_cast<size_t>(spec_.host.ranks)),
      last_heard_(Clock::now()),
      next_beat_(Clock::now()) {
  for (Rank& rank : ranks_) rank.process = fmt::format("on {}", host());
  Pipe input = MakePipe();
  Pipe replies = MakePipe();
  Pipe words = MakePipe();
  try {
    process_ = StartChild({.program = spec_.command.front(),
                           .arguments = spec_.command,
                           .environment = OwnEnvironment(),
                           .standard_input = input.read.number(),
                           .standard_output = replies.write.number(),
                           .standard_error = words.write.number(),
                           .announcement = guard.groups()});
  } catch (const StartError& error) {
    throw ToolError(
        fmt::format("host {}: {}: install an ssh client, or name another command with --rsh",
                    host(), error.what()));
  }
  to_agent_ = std::move(input.write);
  from_agent_ = std::move(replies.read);
  fcntl(from_agent_.number(), F_SETFL, O_NONBLOCK);
  outgoing_.emplace(to_agent_.number());
  std::optional<std::string> whole_lines;
  if (spec_.is_output_tagged) whole_lines.emplace();
  errors_.emplace(std::move(words.read), &error_output_, whole_lines);
}

HostLink::~HostLink() {
  if (process_ == 0) return;
  kill(-process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string HostLink::StartupWords() const {
  std::string words;
  for (const char c : error_output_.kept()) {
    if (c != '\r') words += c;
  }
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? "" : ":\n" + words;
}

void HostLink::Start(AgentJob job) {
  job.first_rank = spec_.first_rank;
  job.local_ranks = spec_.host.ranks;
  job.is_output_tagged = spec_.is_output_tagged;
  job.loss_timeout_ms = static_cast<int>(spec_.loss_timeout.count());
  Tell(FrameKind::kJob, Encode(job));
  is_started_ = true;
  error_output_.Open();
}

void HostLink::Collect(std::vector<RankEnd>* ends) {
  if (is_closed_) return;
  const auto named = [&](const std::exception& error) {
    return fmt::format("host {}: {}", host(), error.what());
  };
  try {
    Exchange(ends);
  } catch (const StartError& error) {
    throw StartError(error.status(), named(error));
  } catch (const ToolError& error) {
    throw ToolError(named(error));
  }
}

void HostLink::Exchange(std::vector<RankEnd>* ends) {
  ReadFrames(ends);
  while (errors_->Pump()) {
  }
  if (WantsInput()) ReadInput();
  Beat();
  outgoing_->Flush();
  // Nothing is heard of an agent that we do not listen to.
  if (output_->is_full()) last_heard_ = Clock::now();
  const auto now = Clock::now();
  is_silent_ =
      is_silent_ || (is_ready() && !has_agent_ended_ && now - last_heard_ >= spec_.loss_timeout);
  if (is_silent_ || (break_at_ && now >= *break_at_)) kill(-process_, SIGKILL);
  NoticeEnd(ends);
}

void HostLink::ReadFrames(std::vector<RankEnd>* ends) {
  while (!has_agent_ended_ && !output_->is_full()) {
    char buffer[1 << 16];
    const ssize_t size = read(from_agent_.number(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      has_agent_ended_ = true;
      if (!break_at_) break_at_ = Clock::now() + kTimeToClose;
      return;
    }
    last_heard_ = Clock::now();
    frames_.Feed({buffer, static_cast<size_t>(size)});
    for (Frame frame; frames_.Next(&frame);) Handle(frame, ends);
  }
}

void HostLink::Handle(const Frame& frame, std::vector<RankEnd>* ends) {
  switch (frame.kind) {
    case FrameKind::kHello:
      hello_ = DecodeHello(frame.payload);
      if (hello_->version != OwnVersion()) {
        throw ToolError(
            fmt::format("{} there belongs to onebit {}, but this one to {}: install the same "
                        "version on all hosts",
                        spec_.agent_path, hello_->version, OwnVersion()));
      }
      return;
    case FrameKind::kStarted: {
      const std::vector<std::string> numbers = DecodeTexts(frame.payload, ranks_.size());
      for (size_t i = 0; i < ranks_.size(); ++i) {
        ranks_[i].process = fmt::format("pid {} on {}", numbers[i], host());
      }
      return;
    }
    case FrameKind::kProblem: {
      const std::vector<std::string> texts = DecodeTexts(frame.payload, 2);
      throw StartError(DecodeNumber(texts[0]), texts[1]);
    }
    case FrameKind::kOutput:
      output_->Append(frame.payload);
      return;
    case FrameKind::kEnded: {
      const std::vector<std::string> texts = DecodeTexts(frame.payload, 3);
      const int rank = DecodeNumber(texts[0]);
      Rank& ended = ranks_.at(static_cast<size_t>(rank - spec_.first_rank));
      ended.has_ended = true;
      ends->push_back(
          {.rank = rank,
           .process = ended.process,
           .kind = texts[1] == "signal" ? RankEnd::Kind::kSignal : RankEnd::Kind::kStatus,
           .number = DecodeNumber(texts[2]),
           .loss = {}});
      return;
    }
    case FrameKind::kInputTaken:
      input_on_its_way_ -= std::min(
          input_on_its_way_, static_cast<size_t>(DecodeNumber(DecodeTexts(frame.payload, 1)[0])));
      return;
    case FrameKind::kAlive:
    case FrameKind::kJob:  // this and those below are for the agent
    case FrameKind::kInput:
    case FrameKind::kInputEnd:
    case FrameKind::kSignal:
      return;
  }
}

bool HostLink::WantsInput() const {
  return is_started_ && spec_.first_rank == 0 && !has_input_ended_ &&
         input_on_its_way_ < kMaxInputBytes;
}

void HostLink::ReadInput() {
  pollfd wait = {STDIN_FILENO, POLLIN, 0};
  if (poll(&wait, 1, 0) <= 0) return;
  char buffer[1 << 12];
  const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (size < 0 && errno == EINTR) return;
  if (size <= 0) {  // an error counts as the end
    has_input_ended_ = true;
    Tell(FrameKind::kInputEnd, {});
    return;
  }
  input_on_its_way_ += static_cast<size_t>(size);
  Tell(FrameKind::kInput, {buffer, static_cast<size_t>(size)});
}

// Before the agent has answered, the login shell would get it.
void HostLink::Beat() {
  if (!is_ready() || Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kAgentBeat;
  if (outgoing_->is_empty()) Tell(FrameKind::kAlive, {});
}

void HostLink::NoticeEnd(std::vector<RankEnd>* ends) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return;
  }
  // Frames that the agent sent before it ended still count.
  ReadFrames(ends);
  while (errors_->Pump()) {
  }
  if (output_->is_full() || error_output_.is_full()) return;
  errors_->Finish();
  is_closed_ = true;
  if (!is_started_) ThrowNotStarted(info.si_code == CLD_EXITED ? info.si_status : kSshFailed);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (std::exchange(ranks_[i].has_ended, true)) continue;
    ends->push_back({.rank = spec_.first_rank + static_cast<int>(i),
                     .process = ranks_[i].process,
                     .kind = RankEnd::Kind::kLost,
                     .number = 0,
                     .loss = is_silent_ ? fmt::format("its host was silent for {} ms (twice {})",
                                                      spec_.loss_timeout.count(), kLossTimeout)
                                        : "the connection to its host has ended"});
  }
}

void HostLink::ThrowNotStarted(int status) const {
  std::string what;
  if (is_ready()) {
    what = "the connection ended before all hosts had answered";
  } else if (status == kExitNotFound || status == kExitNotExecutable) {
    what =
        fmt::format("there is no {} that can be run: install onebit at the same path on all hosts",
                    spec_.agent_path);
  } else if (status == kSshFailed) {
    what = fmt::format("{} cannot connect", spec_.command.front());
  } else {
    what = fmt::format(
        "{} ended with status {} before it could start a rank: it must belong to onebit {}, as "
        "this one does",
        spec_.agent_path, status, OwnVersion());
  }
  throw ToolError(what + StartupWords());
}

void HostLink::AppendLive(std::vector<int>* ranks) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].has_ended) ranks->push_back(spec_.first_rank + static_cast<int>(i));
  }
}

void HostLink::Signal(int signal) {
  if (is_closed_) return;
  Tell(FrameKind::kSignal, std::to_string(signal));
  if (signal == SIGKILL && !break_at_) break_at_ = Clock::now() + kTimeToClose;
}

void HostLink::AppendWaits(std::vector<pollfd>* waits) const {
  if (is_closed_) return;
  // At its end it would be readable for ever.
  const bool is_read = !output_->is_full() && !has_agent_ended_;
  waits->push_back({is_read ? from_agent_.number() : -1, POLLIN, 0});
  waits->push_back({errors_->waiting(), POLLIN, 0});
  waits->push_back({outgoing_->waiting(), POLLOUT, 0});
  if (WantsInput()) waits->push_back({STDIN_FILENO, POLLIN, 0});
}

std::optional<RankSet::Clock::time_point> HostLink::deadline() const {
  if (is_closed_) return std::nullopt;
  Clock::time_point next = Clock::time_point::max();
  if (is_ready()) next = std::min(next_beat_, last_heard_ + spec_.loss_timeout);
  if (break_at_) next = std::min(next, *break_at_);
  // A time that has passed must not make the loop spin: there may be nothing to do about it.
  return std::max(next, Clock::now() + milliseconds(10));
}

void HostLink::Tell(FrameKind kind, std::string_view payload) {
  std::string frame;
  AppendFrame(kind, payload, &frame);
  outgoing_->Append(frame);
  outgoing_->Flush();
}

}  // namespace onebit::perf
