// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Records spans of time in the JSON format of Chrome's tracing, which Perfetto reads. A process has
// one file. A thread of the library writes it, so recording takes neither a lock nor memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace onebit {

using TraceClock = std::chrono::steady_clock;

// A span on a row of the viewer. Texts have static storage and no character that JSON escapes. The
// file leaves out texts that are null and numbers that are kNone.
struct TraceEvent {
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr uint32_t kNone32 = UINT32_MAX;

  const char* name = nullptr;
  const char* category = nullptr;
  TraceClock::time_point begin;
  TraceClock::time_point end;
  uint32_t row = 0;          // below TraceRecorder::kMostRows
  bool may_overlap = false;  // with spans of its category on the same row
  bool has_failed = false;
  const char* collective = nullptr;
  const char* codec = nullptr;
  const char* mode = nullptr;
  uint64_t call = kNone;
  uint64_t bytes = kNone;
  uint64_t elements = kNone;
  uint32_t exchange = kNone32;
  uint32_t peer = kNone32;
  uint32_t chunk = kNone32;
  uint32_t segment = kNone32;
};

// The rank and the communicator whose events a recorder takes.
struct TraceSource {
  int rank = 0;
  uint32_t comm_id = 0;
  uint32_t host = 0;   // number of the rank's host, of which the communicator has
  uint32_t hosts = 1;  // so many
  // Ranks of other processes may write to a file of the same name.
  bool has_other_processes = false;
  std::string (*name_of_row)(uint32_t row) = nullptr;
};

// A recorder is used by one thread at a time.
class TraceRecorder {
 public:
  static constexpr uint32_t kMostRows = 128;
  // Events that wait to be written. Further ones are dropped and counted.
  static constexpr size_t kCapacity = size_t{1} << 15;

  // `pattern` is the value of ONEBIT_TRACE. The first recorder of the process creates the file,
  // or empties it; %r is the rank of that recorder. Fails if another process writes the file.
  static Result<std::unique_ptr<TraceRecorder>> Open(const std::string& pattern,
                                                     const TraceSource& source);
  // Writes what is left.
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void Add(const TraceEvent& event) noexcept {
    const uint64_t number = added_.load(std::memory_order_relaxed);
    // acquire: the entry has been read before it is overwritten.
    if (number - taken_.load(std::memory_order_acquire) == kCapacity) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    ring_[number % kCapacity] = event;
    added_.store(number + 1, std::memory_order_release);
  }
  // Writes all events of the process now. Allocates and locks. A file that cannot be written any
  // more is a line in the log.
  void Flush() noexcept;

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  friend class TraceFile;

  TraceRecorder(class TraceFile& file, const TraceSource& source)
      : file_(file), source_(source), ring_(kCapacity), is_row_named_(kMostRows) {}

  class TraceFile& file_;
  const TraceSource source_;
  std::vector<TraceEvent> ring_;
  std::atomic<uint64_t> added_{0};    // events; those before it may be read
  std::atomic<uint64_t> taken_{0};    // by the file
  std::atomic<uint64_t> dropped_{0};  // for want of room, in the ring or the file
  // For the file, which holds its lock.
  uint32_t number_ = 0;  // in the file
  std::vector<bool> is_row_named_;
  uint64_t dropped_in_file_ = 0;  // of dropped(), those that the file has the number of
};

}  // namespace onebit
