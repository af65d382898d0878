// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/scripted_rank.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace onebit::testing {
namespace {

// The library refuses a call of one of several ranks in a process of a single thread, because no
// other thread could be the peer.
void KeepAnotherThread() {
  static const bool is_running = [] {
    std::thread([] {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }).detach();
    return true;
  }();
  static_cast<void>(is_running);
}

const Transport& TheTransport() {
  static const auto* transport =
      new Transport(Transport::Start(ScriptedTransport::functions()).value());
  return *transport;
}

}  // namespace

ScriptedRank::ScriptedRank(CommOptions options) {
  KeepAnotherThread();
  // Nothing arrives after the end of the script, so a longer timeout would only delay a failing
  // test.
  options.timeout_ms = std::min<uint64_t>(options.timeout_ms, 1000);
  auto group = Comm::CreateLocalGroup(TheTransport(), 2, options);
  if (!group.ok()) throw std::runtime_error(group.status().text());
  comms_ = std::move(group).value();
  engine_ = std::make_unique<Engine>(comm());
}

PlannedCompressor ScriptedRank::NewCompressor(const Compressor::Config& config) {
  return engine_->CreateCompressor(config).value();
}

Status ScriptedRank::Run(std::span<const CallRequest> requests,
                         std::deque<ScriptedMessage> messages) {
  ScriptedTransport::SetScript(1, std::move(messages));
  GroupMember member{.engine = engine_.get(), .requests = requests};
  return RunCalls({&member, 1});
}

ScriptedMessage MessageOf(MessageHeader header, std::span<const std::byte> payload) {
  const uint32_t damage = header.payload_checksum.sum;
  if (header.has_payload_checksum) {
    header.payload_checksum = kernels::cpu::ChecksumOf(payload.data(), payload.size());
    header.payload_checksum.sum += damage;
  }
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  return {.header = {bytes.begin(), bytes.end()}, .payload = {payload.begin(), payload.end()}};
}

}  // namespace onebit::testing
