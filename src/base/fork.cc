// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <vector>

namespace onebit {

std::atomic<uint32_t> Origin::current_process_{0};

// One per process, never destroyed, because descriptors are closed during exit, too.
class ForkHandler {
 public:
  // Fails if the system has no memory for the handler.
  static ForkHandler& Get() {
    static ForkHandler* const handler = new ForkHandler;
    // The C library forgets the functions when this library is unloaded.
    static const int error =
        pthread_atfork([] { Get().Lock(); }, [] { Get().Unlock(); }, [] { Get().CloseInChild(); });
    if (error != 0) throw std::bad_alloc();
    return *handler;
  }

  static uint32_t current_process() {
    Get();
    return Origin::current_process_.load(std::memory_order_relaxed);
  }

  void Lock() { mutex_.lock(); }
  void Unlock() { mutex_.unlock(); }

  // These need the lock.
  void Add(int fd) {
    const auto index = static_cast<size_t>(fd);
    if (index >= is_open_.size()) is_open_.resize(index + 1);
    is_open_[index] = true;
  }
  void Close(int fd) {
    is_open_[static_cast<size_t>(fd)] = false;
    close(fd);
  }

 private:
  // Nothing else may be done to what the parent shares: shutdown would end its connections, and
  // EPOLL_CTL_DEL would make its threads deaf. The thread that forked holds the lock, also here.
  void CloseInChild() {
    for (size_t fd = 0; fd < is_open_.size(); ++fd) {
      if (is_open_[fd]) Close(static_cast<int>(fd));
    }
    Origin::current_process_.fetch_add(1, std::memory_order_relaxed);
    Unlock();
  }

  std::mutex mutex_;
  std::vector<bool> is_open_;  // by number
};

Origin::Origin() : process_(ForkHandler::current_process()) {}

Status ForkedError(const char* name) {
  return Error(Code::kInvalidUsage,
               "{} belongs to the parent of this forked process: a child may only destroy its "
               "copy; let the parent make the call, or join a communicator of the child's own",
               name);
}

Descriptor::ForkLock::ForkLock() { ForkHandler::Get().Lock(); }

Descriptor::ForkLock::~ForkLock() { ForkHandler::Get().Unlock(); }

Descriptor::Descriptor(int fd) : Descriptor(fd, ForkLock()) {}

Descriptor::Descriptor(int fd, const ForkLock&) : fd_(fd) {
  if (fd < 0) return;
  try {
    ForkHandler::Get().Add(fd);
  } catch (const std::bad_alloc&) {
    close(fd);
    throw;
  }
}

Descriptor::~Descriptor() {
  // In a child the number may be that of another file by now.
  if (fd_ < 0 || !origin_.is_here()) return;
  const ForkLock lock;
  ForkHandler::Get().Close(fd_);
}

}  // namespace onebit
