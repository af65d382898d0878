// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local` started for a test.
#include "tests/transports/local_fixture.h"

#include <chrono>
#include <mutex>
#include <string_view>

namespace onebit::local {
namespace {

struct HostState {
  std::mutex mutex;
  std::string eager_bytes;  // set before init, then fixed
  std::string log;          // guarded by mutex
};

HostState& State() {
  static HostState state;
  return state;
}

void Log(int /*level*/, const char* text) {
  const std::lock_guard lock(State().mutex);
  State().log = text;
}

const char* Setting(const char* name) {
  const bool is_set = !State().eager_bytes.empty();
  return is_set && std::string_view(name) == "ONEBIT_LOCAL_EAGER_BYTES"
             ? State().eager_bytes.c_str()
             : nullptr;
}

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

constexpr onebitTransportHost kHost{.structSize = sizeof(onebitTransportHost),
                                    .log = Log,
                                    .setting = Setting,
                                    .nowNs = NowNs,
                                    .interfaces = ""};

}  // namespace

StartedTransport::StartedTransport(const std::string& eager_bytes) {
  State().eager_bytes = eager_bytes;
  State().log.clear();
  init_result_ = api().init(&kHost, &context_);
}

StartedTransport::~StartedTransport() {
  if (context_ != nullptr) api().finalize(context_);
}

std::string StartedTransport::log() const {
  const std::lock_guard lock(State().mutex);
  return State().log;
}

}  // namespace onebit::local
