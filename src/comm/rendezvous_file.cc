// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Format: one line, "onebit-rendezvous 1 ", then the unique id in hexadecimal digits.
#include "comm/rendezvous_file.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/without_file_size_signal.h"
#include "comm/secret_file.h"

namespace onebit {
namespace {

constexpr std::string_view kPrefix = "onebit-rendezvous 1 ";

std::string Hex(std::span<const char, kUniqueIdBytes> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  text.pop_back();
  return text;
}

Status FileError(const char* what, const std::string& path) {
  return Error(Code::kSystemError, "rendezvous file {}: {}: {}{}", path, what, std::strerror(errno),
               errno == EFBIG ? ": raise the limit of file sizes (ulimit -f)" : "");
}

Status WriteAll(int fd, const std::string& content, const std::string& path) {
  const WithoutFileSizeSignal no_signal;
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t count = write(fd, content.data() + written, content.size() - written);
    if (count >= 0) {
      written += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      return FileError("cannot be written", path);
    }
  }
  return OkStatus();
}

Result<UniqueId> Parse(std::string_view text, const std::string& path) {
  std::array<char, kUniqueIdBytes> bytes;
  size_t size = 0;
  bool is_ours = text.starts_with(kPrefix) && text.ends_with('\n');
  if (is_ours) {
    text = text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1);
    is_ours = sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                             text.data(), text.size(), nullptr, &size, nullptr) == 0;
  }
  if (!is_ours || size != bytes.size()) {
    return Error(Code::kInvalidUsage, "rendezvous file {} was not written by onebit", path);
  }
  return DecodeUniqueId(bytes);
}

// Gives the file its name unless it is the name of another job's. Two jobs that begin at once may
// both find a third one's file; then the last of them has the name, and the server of its rank 0
// turns the ranks of the other away.
Status PutInPlace(const std::string& draft, const std::string& path,
                  const CheckFormer& check_former) {
  std::string checked;
  // Unlike rename, link does not replace a file. Where there are no links, rename must do.
  while (link(draft.c_str(), path.c_str()) != 0) {
    const bool is_there = errno == EEXIST;
    const auto former = is_there ? ReadPrivateFile(path) : Result<std::string>(std::string());
    if (is_there && former.ok() && former.value() != checked) {
      checked = former.value();
      const auto id = Parse(checked, path);
      if (id.ok()) ONEBIT_TRY(check_former(id.value()));
      continue;
    }
    if (rename(draft.c_str(), path.c_str()) == 0) return OkStatus();
    return FileError("cannot be put in place", path);
  }
  return OkStatus();
}

}  // namespace

Result<std::string> WriteRendezvousFile(const std::string& path, const UniqueId& id,
                                        const CheckFormer& check_former) {
  std::string content(kPrefix);
  content += Hex(EncodeUniqueId(id)) + "\n";
  // Written under another name first, so that nobody reads half of it.
  const std::string draft = Format("{}.{}", path, getpid());
  unlink(draft.c_str());
  const Descriptor file(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return FileError("cannot be made", draft);
  Status status = WriteAll(file.get(), content, draft);
  if (status.ok()) status = PutInPlace(draft, path, check_former);
  unlink(draft.c_str());
  ONEBIT_TRY(status);
  return content;
}

Result<UniqueId> ReadRendezvousFile(const std::string& path) {
  auto content = ReadPrivateFile(path);
  if (!content.ok()) {
    return Error(content.status().code(), "rendezvous file {}", content.status().text());
  }
  return Parse(content.value(), path);
}

void RemoveRendezvousFile(const std::string& path, const std::string& content) noexcept {
  try {
    const auto found = ReadPrivateFile(path);
    if (found.ok() && found.value() == content) unlink(path.c_str());
  } catch (...) {
    // A file that cannot be removed stays; the next job replaces it.
  }
}

Status MakePrivateFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError("its folder cannot be made", path);
  }
  struct stat facts;
  if (lstat(folder.c_str(), &facts) != 0) return FileError("its folder cannot be examined", path);
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 022) != 0) {
    return Error(Code::kInvalidUsage,
                 "rendezvous file {}: its folder must be one that only this user can write to: "
                 "remove {}, or set ONEBIT_RENDEZVOUS",
                 path, folder);
  }
  return OkStatus();
}

}  // namespace onebit
