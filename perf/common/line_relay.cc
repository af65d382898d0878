// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collects bytes into lines.
#include "perf/common/line_relay.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <fmt/format.h>

namespace onebit::perf {
namespace {

constexpr size_t kReadBytes = 1 << 16;
// A "line" without an end, such as binary data, is passed on in parts of this size.
constexpr size_t kMaxLineBytes = 1 << 20;
// Output kept for a slow reader. Beyond this the ranks wait.
constexpr size_t kMaxQueuedBytes = 1 << 20;

}  // namespace

bool WriteAll(int descriptor, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(descriptor, bytes, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

OutputQueue::OutputQueue(int to) : to_(to) {
  struct stat status;
  const bool can_block = fstat(to, &status) == 0 && (S_ISFIFO(status.st_mode) || isatty(to) == 1);
  if (!can_block) return;
  // This fails for a pipe of another user; Flush() works without it.
  own_ = Descriptor(open(fmt::format("/proc/self/fd/{}", to).c_str(),
                         O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_.is_open()) to_ = own_.number();
}

void OutputQueue::Append(std::string_view bytes) {
  if (!is_broken_) bytes_ += bytes;
}

bool OutputQueue::is_full() const { return bytes_.size() - begin_ >= kMaxQueuedBytes; }

bool OutputQueue::Flush() {
  while (!is_empty()) {
    // A pipe or socket that poll() reports as writable takes this many bytes without blocking.
    pollfd wait = {to_, POLLOUT, 0};
    if (poll(&wait, 1, 0) <= 0) break;
    const size_t size = std::min<size_t>(bytes_.size() - begin_, PIPE_BUF);
    const ssize_t written = write(to_, bytes_.data() + begin_, size);
    if (written >= 0) {
      begin_ += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      is_broken_ = true;
      begin_ = bytes_.size();
    }
  }
  if (is_empty() || begin_ >= kMaxQueuedBytes) bytes_.erase(0, std::exchange(begin_, 0));
  return !is_broken_;
}

LineRelay::LineRelay(Descriptor from, ByteSink* to, std::optional<std::string> tag)
    : from_(std::move(from)), to_(to), tag_(std::move(tag)) {
  fcntl(from_.number(), F_SETFL, fcntl(from_.number(), F_GETFL) | O_NONBLOCK);
}

bool LineRelay::Pump() {
  if (waiting() < 0) return false;
  std::string buffer(kReadBytes, '\0');
  ssize_t size;
  do {
    size = read(from_.number(), buffer.data(), buffer.size());
  } while (size < 0 && errno == EINTR);
  if (size > 0) {
    const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
    if (tag_) {
      pending_ += bytes;
      PassLines();
    } else {
      to_->Append(bytes);
    }
    return true;
  }
  if (size == 0 || errno != EAGAIN) from_ = Descriptor();
  return false;
}

void LineRelay::Finish() {
  if (pending_.empty()) return;
  pending_ += '\n';
  PassLines();
}

void LineRelay::PassLines() {
  std::string text;
  std::string_view rest = pending_;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    text.append(*tag_).append(rest.substr(0, end + 1));
  }
  if (rest.size() > kMaxLineBytes) {
    text.append(*tag_).append(rest).append("\n");
    rest = {};
  }
  pending_ = std::string(rest);
  to_->Append(text);
}

InputRelay::InputRelay(int from, Descriptor to) : from_(from), to_(std::move(to)) {
  // The child's end of the pipe has flags of its own.
  fcntl(to_.number(), F_SETFL, fcntl(to_.number(), F_GETFL) | O_NONBLOCK);
}

pollfd InputRelay::Wait() const {
  if (!to_.is_open()) return {-1, 0, 0};
  if (!pending_.empty()) return {to_.number(), POLLOUT, 0};
  return {from_, POLLIN, 0};
}

void InputRelay::Pump() {
  if (pending_.empty()) {
    char buffer[4096];
    const ssize_t size = read(from_, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) return;
    // An error counts as the end: a terminal cannot be read in the background.
    if (size <= 0) {
      to_ = Descriptor();
      return;
    }
    pending_.assign(buffer, static_cast<size_t>(size));
  }
  const ssize_t written = write(to_.number(), pending_.data(), pending_.size());
  if (written >= 0) {
    pending_.erase(0, static_cast<size_t>(written));
  } else if (errno != EAGAIN && errno != EINTR) {
    to_ = Descriptor();
  }
}

}  // namespace onebit::perf
