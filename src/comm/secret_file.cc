// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/socket.h"

namespace onebit {
namespace {

constexpr size_t kMostBytes = 4096;

}  // namespace

Result<std::string> ReadPrivateFile(const std::string& path) {
  // O_NONBLOCK, because opening a pipe would block.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    return Error(Code::kSystemError, "{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat facts;
  if (fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Error(Code::kInvalidUsage, "{}: is not a regular file", path);
  }
  // Root may have created it for the user.
  if (facts.st_uid != geteuid() && facts.st_uid != 0) {
    return Error(Code::kInvalidUsage, "{}: belongs to another user ({})", path, facts.st_uid);
  }
  if ((facts.st_mode & 077) != 0) {
    return Error(Code::kInvalidUsage,
                 "{}: other users may use it (mode {:o}), but it holds a secret: chmod 600 it",
                 path, facts.st_mode & 0777);
  }
  std::string content(kMostBytes + 1, '\0');
  const ssize_t size = read(file.get(), content.data(), content.size());
  if (size < 0) {
    return Error(Code::kSystemError, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  if (static_cast<size_t>(size) > kMostBytes) {
    return Error(Code::kInvalidUsage, "{}: has more than {} bytes", path, kMostBytes);
  }
  content.resize(static_cast<size_t>(size));
  return content;
}

Result<std::string> ReadSecretFile(const std::string& path) {
  auto content = ReadPrivateFile(path);
  if (!content.ok()) {
    return Error(Code::kInvalidUsage, "environment variable ONEBIT_SECRET_FILE: {}",
                 content.status().text());
  }
  return content;
}

}  // namespace onebit
