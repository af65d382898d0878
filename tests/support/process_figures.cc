// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self.
#include "tests/support/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace onebit::testing {
namespace {

// Excludes "." and "..". In the folder of descriptors it counts its own.
size_t EntriesOf(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder), closedir);
  size_t entries = 0;
  while (directory != nullptr) {
    const dirent* entry = readdir(directory.get());  // no other thread uses this stream
    if (entry == nullptr) break;
    entries += entry->d_name[0] == '.' ? 0 : 1;
  }
  return entries;
}

template <typename Count>
bool SettlesAt(Count count, size_t most, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (count() > most) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct ThreadLook {
  bool is_asleep = false;
  uint64_t sleeps = 0;  // so far
};

// Looks at all threads but the calling one, by thread id.
std::map<std::string, ThreadLook> LookAtOtherThreads() {
  std::map<std::string, ThreadLook> looks;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/task"), closedir);
  while (directory != nullptr) {
    const dirent* entry = readdir(directory.get());  // no other thread uses this stream
    if (entry == nullptr) break;
    const std::string thread = entry->d_name;
    if (thread[0] == '.' || thread == std::to_string(gettid())) continue;
    std::ifstream status("/proc/self/task/" + thread + "/status");
    ThreadLook look;
    bool has_ended = true;
    for (std::string line; std::getline(status, line);) {
      look.is_asleep |= line == "State:\tS (sleeping)";
      if (line.starts_with("voluntary_ctxt_switches:")) {
        look.sleeps = std::stoull(line.substr(line.find(':') + 1));
        has_ended = false;
      }
    }
    if (!has_ended) looks[thread] = look;
  }
  return looks;
}

}  // namespace

size_t OpenDescriptors() { return EntriesOf("/proc/self/fd") - 1; }

size_t Threads() {
  // A sanitizer starts a thread of its own with the program's first one.
  static const bool has_started_one = (std::thread([] {}).join(), true);
  return has_started_one ? EntriesOf("/proc/self/task") : 0;
}

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

uint64_t Sleeps() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_nvcsw);
}

size_t ResidentBytes() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                   std::fclose);
  size_t pages = 0;
  size_t resident = 0;
  if (file == nullptr || std::fscanf(file.get(), "%zu %zu", &pages, &resident) != 2) return 0;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

bool DescriptorsSettleAt(size_t most, std::chrono::milliseconds timeout) {
  return SettlesAt(OpenDescriptors, most, timeout);
}

bool ThreadsSettleAt(size_t most, std::chrono::milliseconds timeout) {
  return SettlesAt(Threads, most, timeout);
}

bool AwaitOtherThreadsAsleep(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  // A thread that polls is awake at times, and on a busy machine for long while it waits for a
  // processor: what counts is that it has slept since the last look.
  constexpr std::chrono::milliseconds kLongestPause(50);
  std::chrono::milliseconds pause(1);
  for (int times = 0; times < 3;) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    const std::map<std::string, ThreadLook> before = LookAtOtherThreads();
    std::this_thread::sleep_for(pause);
    const std::map<std::string, ThreadLook> now = LookAtOtherThreads();
    const bool all_sleep = std::ranges::all_of(now, [&](const auto& thread) {
      const auto [id, look] = thread;
      const auto former = before.find(id);
      return look.is_asleep || (former != before.end() && look.sleeps > former->second.sleeps);
    });
    times = all_sleep ? times + 1 : 0;
    if (!all_sleep) pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

}  // namespace onebit::testing
