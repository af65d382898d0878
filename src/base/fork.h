// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Forked children: they get copies of their parent's handles and descriptors, and none of its
// threads. One handler of the process closes the descriptors in the child, so that peers notice the
// end of the parent while its children live, and makes the copies of handles recognizable.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace onebit {

// The process that made an object.
class Origin {
 public:
  // Throws std::bad_alloc if forks cannot be noticed.
  Origin();

  // False in a forked child of that process. One load.
  bool is_here() const {
    // relaxed: only a fork changes it, and the child has a single thread then.
    return process_ == current_process_.load(std::memory_order_relaxed);
  }

 private:
  friend class ForkHandler;
  static std::atomic<uint32_t> current_process_;

  uint32_t process_;
};

// The error of a call with a copy that a fork made of `name`.
Status ForkedError(const char* name);

// Checks a handle of the C API, which may be null.
template <typename Handle>
Status CheckHandle(const Handle* handle, const char* name) {
  if (handle == nullptr) return Error(Code::kInvalidArgument, "{} is NULL", name);
  return handle->origin.is_here() ? OkStatus() : ForkedError(name);
}

// Owns a file descriptor. A forked child does not keep it.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes over what others have opened. Throws std::bad_alloc, having closed it.
  explicit Descriptor(int fd);
  // Takes over the result of `open`, a system call that does not wait; errno stays as it was left.
  // A child that another thread forks meanwhile does not get the descriptor, either.
  template <typename Open>
  static Descriptor From(Open&& open) {
    const ForkLock lock;
    return Descriptor(open(), lock);
  }
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), origin_(other.origin_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(origin_, other.origin_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  // While it lives, no thread forks.
  class ForkLock {
   public:
    ForkLock();
    ~ForkLock();
    ForkLock(const ForkLock&) = delete;
    ForkLock& operator=(const ForkLock&) = delete;
  };

  Descriptor(int fd, const ForkLock& lock);

  int fd_ = -1;
  Origin origin_;
};

}  // namespace onebit
