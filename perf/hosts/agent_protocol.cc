// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/hosts/agent_protocol.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr size_t kHeadBytes = 5;
// An environment and arguments are smaller: the kernel takes 6 MiB.
constexpr size_t kMaxPayloadBytes = 1 << 24;

[[noreturn]] void RefuseBytes() {
  throw ToolError(
      "onebit_run and its agent do not understand each other: install the same build of onebit on "
      "all hosts");
}

}  // namespace

void AppendFrame(FrameKind kind, std::string_view payload, std::string* bytes) {
  if (payload.size() > kMaxPayloadBytes) {
    throw ToolError("the arguments and variables of the ranks are too long");
  }
  *bytes += static_cast<char>(kind);
  for (int shift = 0; shift < 32; shift += 8) {
    *bytes += static_cast<char>(payload.size() >> shift & 0xff);
  }
  *bytes += payload;
}

bool FrameReader::Next(Frame* frame) {
  if (!is_greeted_) {
    const size_t greeting = buffer_.find(kAgentGreeting);
    if (greeting == buffer_.npos) return false;
    begin_ = greeting + kAgentGreeting.size();
    is_greeted_ = true;
  }
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() >= kHeadBytes) {
    size_t size = 0;
    for (size_t i = kHeadBytes - 1; i > 0; --i) size = size << 8 | static_cast<uint8_t>(rest[i]);
    if (size > kMaxPayloadBytes) RefuseBytes();
    if (rest.size() - kHeadBytes >= size) {
      frame->kind = static_cast<FrameKind>(rest[0]);
      frame->payload = rest.substr(kHeadBytes, size);
      begin_ += kHeadBytes + size;
      return true;
    }
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  return false;
}

std::string EncodeTexts(const std::vector<std::string>& texts) {
  std::string payload;
  for (const std::string& text : texts) payload.append(text).push_back('\0');
  return payload;
}

std::vector<std::string> DecodeTexts(const std::string& payload, size_t least) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < payload.size();) {
    const size_t end = payload.find('\0', begin);
    if (end == payload.npos) RefuseBytes();
    texts.push_back(payload.substr(begin, end - begin));
    begin = end + 1;
  }
  if (texts.size() < least) RefuseBytes();
  return texts;
}

int DecodeNumber(const std::string& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) RefuseBytes();
  return number;
}

std::string Encode(const AgentHello& hello) {
  return EncodeTexts({hello.version, hello.server_address, hello.client_address,
                      std::to_string(hello.rendezvous_port), std::to_string(hello.master_port)});
}

AgentHello DecodeHello(const std::string& payload) {
  AgentHello hello;
  hello.version = DecodeTexts(payload, 1).front();
  // Another version may say something else behind its own.
  if (hello.version != OwnVersion()) return hello;
  const std::vector<std::string> texts = DecodeTexts(payload, 5);
  hello.server_address = texts[1];
  hello.client_address = texts[2];
  hello.rendezvous_port = DecodeNumber(texts[3]);
  hello.master_port = DecodeNumber(texts[4]);
  return hello;
}

std::string Encode(const AgentJob& job) {
  std::vector<std::string> texts = {std::to_string(job.first_rank),
                                    std::to_string(job.local_ranks),
                                    std::to_string(job.ranks),
                                    std::to_string(job.loss_timeout_ms),
                                    std::to_string(job.is_output_tagged),
                                    std::to_string(job.is_preloaded),
                                    job.folder,
                                    job.rendezvous,
                                    job.secret,
                                    job.master_address,
                                    std::to_string(job.master_port),
                                    std::to_string(job.arguments.size())};
  texts.insert(texts.end(), job.arguments.begin(), job.arguments.end());
  texts.insert(texts.end(), job.variables.begin(), job.variables.end());
  return EncodeTexts(texts);
}

AgentJob DecodeJob(const std::string& payload) {
  constexpr size_t kFields = 12;
  const std::vector<std::string> texts = DecodeTexts(payload, kFields + 1);
  AgentJob job = {.first_rank = DecodeNumber(texts[0]),
                  .local_ranks = DecodeNumber(texts[1]),
                  .ranks = DecodeNumber(texts[2]),
                  .loss_timeout_ms = DecodeNumber(texts[3]),
                  .is_output_tagged = DecodeNumber(texts[4]) != 0,
                  .is_preloaded = DecodeNumber(texts[5]) != 0,
                  .folder = texts[6],
                  .rendezvous = texts[7],
                  .secret = texts[8],
                  .master_address = texts[9],
                  .master_port = DecodeNumber(texts[10]),
                  .arguments = {},
                  .variables = {}};
  const auto count = static_cast<size_t>(DecodeNumber(texts[11]));
  if (count == 0 || count > texts.size() - kFields) RefuseBytes();
  const auto arguments = texts.begin() + kFields;
  const auto variables = arguments + static_cast<std::ptrdiff_t>(count);
  job.arguments.assign(arguments, variables);
  job.variables.assign(variables, texts.end());
  return job;
}

std::string OwnVersion() {
  return fmt::format("{}.{}.{}", ONEBIT_MAJOR, ONEBIT_MINOR, ONEBIT_PATCH);
}

}  // namespace onebit::perf
