// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collects bytes into lines.
#include "perf/common/line_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace onebit::perf {
namespace {

constexpr size_t kReadBytes = 1 << 16;
// A "line" without an end, such as binary data, is passed on in parts of this size.
constexpr size_t kMaxLineBytes = 1 << 20;

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

LineRelay::LineRelay(Descriptor from, int to, std::string tag)
    : from_(std::move(from)), to_(to), tag_(std::move(tag)) {
  fcntl(from_.number(), F_SETFL, fcntl(from_.number(), F_GETFL) | O_NONBLOCK);
}

bool LineRelay::Pump() {
  std::string buffer(kReadBytes, '\0');
  while (from_.is_open()) {
    const ssize_t size = read(from_.number(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      from_ = Descriptor();
      break;
    }
    pending_.append(buffer.data(), static_cast<size_t>(size));
    if (!WriteLines()) return false;
  }
  return true;
}

bool LineRelay::Finish() {
  if (!Pump()) return false;
  if (pending_.empty()) return true;
  pending_ += '\n';
  return WriteLines();
}

bool LineRelay::WriteLines() {
  std::string text;
  std::string_view rest = pending_;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    text.append(tag_).append(rest.substr(0, end + 1));
  }
  if (rest.size() > kMaxLineBytes) {
    text.append(tag_).append(rest).append("\n");
    rest = {};
  }
  pending_ = std::string(rest);
  return WriteAll(to_, text.data(), text.size());
}

void InputRelay::Pump() {
  char buffer[4096];
  const ssize_t size = read(from_, buffer, sizeof(buffer));
  if (size < 0 && errno == EINTR) return;
  // An error, too, is an end: in the background a terminal cannot be read.
  if (size <= 0 || !WriteAll(to_.number(), buffer, static_cast<size_t>(size))) to_ = Descriptor();
}

}  // namespace onebit::perf
