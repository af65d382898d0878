// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reverts what libucs does to the process when it is loaded, and filters its log.
#include "plugins/transport_ucx/ucx_process.h"

#include <dlfcn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace onebit::ucx {
namespace {

thread_local const onebitTransportHost* scope_host = nullptr;
thread_local char last_error[512] = "";

ucs_log_func_rc_t TakeLine(const char*, unsigned, const char*, ucs_log_level_t level,
                           const ucs_log_component_config_t*, const char* format,
                           va_list arguments) {
  if (scope_host == nullptr) return UCS_LOG_FUNC_RC_CONTINUE;
  char text[512] = "ucx: ";
  // The argument list is consumed here: no other handler sees this line.
  std::vsnprintf(text + 5, sizeof text - 5, format, arguments);
  const bool is_trouble = level <= UCS_LOG_LEVEL_WARN;
  if (is_trouble) std::snprintf(last_error, sizeof last_error, "%s", text + 5);
  // UCX goes on without a transport that it does not find, which the user has named.
  static std::atomic<bool> has_warned = false;
  const bool lacks_transport = std::strstr(text, "not available, please use") != nullptr;
  const bool warns = lacks_transport && !has_warned.exchange(true);
  scope_host->log(warns ? onebitLogWarn : is_trouble ? onebitLogInfo : onebitLogTrace, text);
  return UCS_LOG_FUNC_RC_STOP;
}

// libucs installs handlers of SIGSEGV, SIGBUS, SIGILL and SIGFPE in its constructor, so
// HANDLE_ERRORS and ERROR_SIGNALS given to ucp_config_modify come too late (UCX 1.13 accepts them
// silently). A library must not do that to its application. This constructor of the plugin runs
// right after that of libucs and removes them, unless the user asked UCX for them, and only where
// the handler is libucs's own: handlers that the application has installed since stay.
[[gnu::constructor]] void RestoreSignalHandlers() {
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
  Dl_info ucs{};
  if (dladdr(reinterpret_cast<const void*>(&ucs_debug_disable_signal), &ucs) == 0) return;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    struct sigaction action {};
    Dl_info handler{};
    if (sigaction(signal, nullptr, &action) == 0 &&
        dladdr(reinterpret_cast<const void*>(action.sa_sigaction), &handler) != 0 &&
        handler.dli_fbase == ucs.dli_fbase) {
      ucs_debug_disable_signal(signal);
    }
  }
}

// The plugin is never unloaded (its host keeps it), so the handler may stay for good.
void PushHandlerOnce() {
  [[maybe_unused]] static const bool is_pushed = [] {
    ucs_log_push_handler(TakeLine);
    return true;
  }();
}

}  // namespace

bool HasDescriptorsForUcx() {
  constexpr int kNeeded = 32;
  int opened[kNeeded];
  int count = 0;
  while (count < kNeeded) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0) break;
    opened[count++] = fd;
  }
  for (int i = 0; i < count; ++i) close(opened[i]);
  return count == kNeeded;
}

bool CanLockMemoryForUcx() {
  constexpr rlim_t kNeeded = 64 << 20;  // 58 MiB were seen
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= kNeeded) return true;
  // The limit does not hold for a privileged process, which can lock more.
  const size_t bytes = limit.rlim_cur + 1;
  void* const probe =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return true;
  const bool can_lock = mlock(probe, bytes) == 0;
  munmap(probe, bytes);
  return can_lock;
}

LogScope::LogScope(const onebitTransportHost& host) : outer_(scope_host) {
  PushHandlerOnce();
  if (outer_ == nullptr) *last_error = '\0';
  scope_host = &host;
}

LogScope::~LogScope() { scope_host = outer_; }

std::string LogScope::LastError() { return last_error; }

}  // namespace onebit::ucx
