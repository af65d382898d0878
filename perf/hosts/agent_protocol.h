// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The protocol of onebit_run and its agent on another host, over the agent's standard input and
// output: a greeting, then frames.
//
//   frame = kind (1 byte), length of the payload (4 bytes, little-endian), payload
//
// Structured payloads are texts, each with a NUL behind it. Output and input are plain bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onebit::perf {

// Start-up files of the login shell may print something before it.
inline constexpr std::string_view kAgentGreeting = "\nonebit_run --agent is ready\n";
// Time between the signs of life of either side.
inline constexpr std::chrono::milliseconds kAgentBeat{1000};
// Input of rank 0 that may be on its way. The agent acknowledges what the rank has taken.
inline constexpr size_t kMaxInputBytes = 1 << 16;

enum class FrameKind : char {
  // From the agent.
  kHello = 'H',       // AgentHello
  kStarted = 'P',     // the process number of each rank
  kProblem = 'X',     // an exit status, and why the ranks could not be started
  kOutput = 'O',      // bytes that ranks wrote to their standard output
  kEnded = 'D',       // rank, "status" or "signal", number
  kInputTaken = 'T',  // how many bytes of input rank 0 has read
  // To the agent.
  kJob = 'J',       // AgentJob
  kInput = 'I',     // bytes for the standard input of rank 0
  kInputEnd = 'E',  // there is no more
  kSignal = 'S',    // the number of a signal for all ranks
  // Both ways.
  kAlive = 'A',
};

struct Frame {
  FrameKind kind;
  std::string payload;
};

void AppendFrame(FrameKind kind, std::string_view payload, std::string* bytes);

class FrameReader {
 public:
  // after_greeting: drops everything up to kAgentGreeting and that itself.
  explicit FrameReader(bool after_greeting) : is_greeted_(!after_greeting) {}

  void Feed(std::string_view bytes) { buffer_ += bytes; }
  // Returns false if the next frame is not complete. Throws ToolError if these are no frames.
  bool Next(Frame* frame);

 private:
  bool is_greeted_;
  std::string buffer_;
  size_t begin_ = 0;
};

// The first frame.
struct AgentHello {
  std::string version;         // onebit's
  std::string server_address;  // where the caller reached this host; empty: unknown
  std::string client_address;  // the caller's, as this host sees it
  int rendezvous_port = 0;     // a free one, held for rank 0
  int master_port = 0;         // a free one for PyTorch's store
};
std::string Encode(const AgentHello& hello);
AgentHello DecodeHello(const std::string& payload);

// The task of an agent.
struct AgentJob {
  int first_rank = 0;
  int local_ranks = 0;
  int ranks = 0;
  int loss_timeout_ms = 0;  // a caller that is silent for so long counts as lost
  bool is_output_tagged = false;
  bool is_preloaded = false;
  std::string folder;  // where the ranks start
  // The members of RankPlace with these names, except that the secret travels by value; the agent
  // writes its file.
  std::string rendezvous;
  std::string secret;
  std::string master_address;
  int master_port = 0;
  std::vector<std::string> arguments;  // the program and its arguments
  std::vector<std::string> variables;  // "NAME=value"
};
std::string Encode(const AgentJob& job);
AgentJob DecodeJob(const std::string& payload);

std::string EncodeTexts(const std::vector<std::string>& texts);
// Throws ToolError if there are fewer than `least`.
std::vector<std::string> DecodeTexts(const std::string& payload, size_t least);
int DecodeNumber(const std::string& text);

// The version of onebit that this program belongs to.
std::string OwnVersion();

}  // namespace onebit::perf
