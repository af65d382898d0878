// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx` started for a test.
#include "tests/transports/ucx_fixture.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace onebit::ucx {
namespace {

struct HostState {
  std::mutex mutex;
  SettingTexts settings;  // set before init, then fixed
  std::string log;        // guarded by mutex
};

HostState& State() {
  static HostState state;
  return state;
}

void Log(int level, const char* text) {
  if (std::getenv("UCX_TEST_LOG") != nullptr) std::fprintf(stderr, "[%d] %s\n", level, text);
  if (level > onebitLogWarn) return;
  const std::lock_guard lock(State().mutex);
  State().log += text;
  State().log += '\n';
}

const char* Setting(const char* name) {
  const auto found = State().settings.find(name);
  return found == State().settings.end() ? nullptr : found->second.c_str();
}

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

StartedTransport::StartedTransport(const SettingTexts& settings, const char* interfaces) {
  State().settings = settings;
  State().log.clear();
  const onebitTransportHost host{.structSize = sizeof(onebitTransportHost),
                                 .log = Log,
                                 .setting = Setting,
                                 .nowNs = NowNs,
                                 .interfaces = interfaces};
  init_result_ = api().init(&host, &context_);
}

StartedTransport::~StartedTransport() {
  if (context_ != nullptr) api().finalize(context_);
}

std::string StartedTransport::log() const {
  const std::lock_guard lock(State().mutex);
  return State().log;
}

}  // namespace onebit::ucx
