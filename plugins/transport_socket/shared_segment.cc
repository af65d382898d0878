// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace onebit::sockets {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string ErrnoOf(const char* call) { return std::string(call) + ": " + std::strerror(errno); }

void* MapShared(int fd, size_t bytes, std::string* problem) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    *problem = Format("mmap of {} bytes: {}{}", bytes, std::strerror(errno),
                      errno == ENOMEM ? " (ulimit -v)" : "");
    return nullptr;
  }
  // A forked child must not write into it. Nothing depends on this, so a refusal is no failure.
  madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

}  // namespace

SharedSegment::SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

SharedSegment SharedSegment::Create(size_t bytes, Descriptor* descriptor, std::string* problem) {
  // Beyond this limit ftruncate would send SIGXFSZ, which ends the process.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    *problem = "the limit of file sizes (ulimit -f) is too low";
    return {};
  }
  Descriptor file =
      Descriptor::From([] { return memfd_create("onebit", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!file.is_open()) {
    *problem = ErrnoOf("memfd_create");
    return {};
  }
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    *problem = ErrnoOf("ftruncate or F_ADD_SEALS");
    return {};
  }
  void* const memory = MapShared(file.get(), bytes, problem);
  if (memory == nullptr) return {};
  *descriptor = std::move(file);
  return {memory, bytes};
}

SharedSegment SharedSegment::Map(const Descriptor& descriptor, size_t bytes, std::string* problem) {
  struct stat facts {};
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(descriptor.get(), &facts) != 0 ||
      facts.st_size != static_cast<off_t>(bytes)) {
    *problem = "the peer's memory is not sealed, or of another size";
    return {};
  }
  void* const memory = MapShared(descriptor.get(), bytes, problem);
  if (memory == nullptr) return {};
  return {memory, bytes};
}

}  // namespace onebit::sockets
