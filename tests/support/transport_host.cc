// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transport_host.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "transport/declared_settings.h"

namespace onebit::testing {
namespace {

struct Log {
  std::mutex mutex;
  std::string warnings;  // guarded by mutex
  std::string lines;     // guarded by mutex
};

Log& TheLog() {
  static auto* log = new Log;  // never destroyed, because a transport may log at exit
  return *log;
}

void AppendLine(const char* text, std::string* lines) {
  if (!lines->empty()) *lines += '\n';
  *lines += text;
}

void TakeLine(int level, const char* text) {
  if (std::getenv("TRANSPORT_TEST_LOG") != nullptr) std::fprintf(stderr, "[%d] %s\n", level, text);
  const std::lock_guard lock(TheLog().mutex);
  AppendLine(text, &TheLog().lines);
  if (level <= onebitLogWarn) AppendLine(text, &TheLog().warnings);
}

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

StartedTransport::StartedTransport(const onebitTransport& transport, const SettingTexts& settings,
                                   const char* interfaces)
    : transport_(transport) {
  {
    const std::lock_guard lock(TheLog().mutex);
    TheLog().warnings.clear();
    TheLog().lines.clear();
  }
  for (const auto& [name, value] : settings) environment_.push_back(name + "=" + value);
  std::vector<const char*> entries;
  for (const std::string& entry : environment_) entries.push_back(entry.c_str());
  onebitTransportProperties properties{.structSize = sizeof properties};
  transport.getProperties(nullptr, &properties);
  const auto values = SettingsForInit(properties, entries);
  if (!values.ok()) {
    TakeLine(onebitLogWarn, values.status().text().c_str());
    return;
  }
  const onebitTransportHost host{.structSize = sizeof host,
                                 .log = TakeLine,
                                 .nowNs = NowNs,
                                 .interfaces = interfaces,
                                 .settings = values.value().data()};
  start_result_ = transport.init(&host, &context_);
  if (start_result_ != onebitSuccess) return;
  channels_ =
      std::make_unique<channel::ChannelContext>(transport, context_, this->properties(), host);
}

onebitTransportProperties StartedTransport::properties() const {
  onebitTransportProperties properties{.structSize = sizeof properties};
  transport_.getProperties(context_, &properties);
  return properties;
}

StartedTransport::~StartedTransport() {
  if (context_ == nullptr || transport_.finalize(context_) == onebitSuccess) return;
  std::fprintf(stderr, "finalize failed: an endpoint was left open\n");
  std::abort();
}

std::string StartedTransport::warnings() {
  const std::lock_guard lock(TheLog().mutex);
  return TheLog().warnings;
}

std::string StartedTransport::lines() {
  const std::lock_guard lock(TheLog().mutex);
  return TheLog().lines;
}

}  // namespace onebit::testing
