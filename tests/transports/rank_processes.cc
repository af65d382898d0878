// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Forked ranks, which exchange texts through the parent over one socket each.
#include "tests/transports/rank_processes.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>

namespace onebit::conformance {
namespace {

constexpr int kTestTimeoutMs = 60'000;

// A message holds its kind, its length and the text. Kinds: 'e', a text to exchange; 'f', a
// failure.
struct Head {
  char kind;
  uint32_t bytes;
};

bool WriteAll(int fd, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t written = send(fd, at, bytes, MSG_NOSIGNAL);
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int fd, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kTestTimeoutMs) <= 0) return false;
    const ssize_t count = read(fd, at, bytes);
    if (count <= 0) return false;
    at += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

bool WriteText(int fd, char kind, const std::string& text) {
  const Head head{.kind = kind, .bytes = static_cast<uint32_t>(text.size())};
  return WriteAll(fd, &head, sizeof head) && WriteAll(fd, text.data(), text.size());
}

bool ReadText(int fd, char* kind, std::string* text) {
  Head head{};
  if (!ReadAll(fd, &head, sizeof head)) return false;
  text->resize(head.bytes);
  *kind = head.kind;
  return ReadAll(fd, text->data(), text->size());
}

class ProcessMeeting : public OutOfBand {
 public:
  ProcessMeeting(int fd, int rank, int nranks) : fd_(fd), rank_(rank), nranks_(nranks) {}
  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }

  std::vector<std::string> Exchange(const std::string& mine) override {
    Expect(WriteText(fd_, 'e', mine), "the parent is gone");
    std::vector<std::string> all(static_cast<size_t>(nranks_));
    for (std::string& text : all) {
      char kind = 0;
      Expect(ReadText(fd_, &kind, &text) && kind == 'e', "another rank failed, or did not come");
    }
    return all;
  }

 private:
  const int fd_;
  const int rank_;
  const int nranks_;
};

[[noreturn]] void BeRank(int fd, int rank, int nranks,
                         const std::function<void(OutOfBand&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    ProcessMeeting oob(fd, rank, nranks);
    body(oob);
  } catch (const std::exception& error) {
    WriteText(fd, 'f', Text("rank ", rank, ": ", error.what()));
    status = 1;
  }
  // Unlike _exit, this runs the check of LeakSanitizer.
  std::exit(status);
}

// Carries texts between the ranks until all are gone. Returns the first failure.
std::string Serve(std::vector<int> fds, const std::vector<int>& may_die) {
  std::vector<std::string> texts(fds.size());
  std::vector<bool> has_text(fds.size());
  std::string failure;
  const auto is_over = [&] {
    return std::all_of(fds.begin(), fds.end(), [](int fd) { return fd < 0; });
  };
  while (!is_over()) {
    for (size_t rank = 0; rank < fds.size(); ++rank) {
      if (fds[rank] < 0 || has_text[rank]) continue;
      char kind = 0;
      if (!ReadText(fds[rank], &kind, &texts[rank])) {  // it has ended
        close(fds[rank]);
        fds[rank] = -1;
        continue;
      }
      if (kind == 'e') has_text[rank] = true;
      if (kind == 'f' && failure.empty()) failure = texts[rank];
      if (kind == 'f') {
        // The others cannot go on, and learn it from the closed socket.
        for (int& fd : fds) {
          if (fd >= 0) close(fd);
          fd = -1;
        }
        return failure;
      }
    }
    bool are_all_here = true;
    const bool is_any_here = std::count(has_text.begin(), has_text.end(), true) != 0;
    for (size_t rank = 0; rank < fds.size(); ++rank) {
      const bool has_ended = fds[rank] < 0 && !has_text[rank];
      const bool is_excused =
          has_ended && std::count(may_die.begin(), may_die.end(), static_cast<int>(rank)) != 0;
      are_all_here &= has_text[rank] || is_excused;
      if (has_ended && !is_excused && is_any_here) {
        for (const int fd : fds) {
          if (fd >= 0) close(fd);
        }
        return Text("rank ", rank, " ended before the others met it");
      }
    }
    if (are_all_here && !is_over()) {
      for (const int fd : fds) {
        for (const std::string& text : texts) {
          if (fd >= 0) WriteText(fd, 'e', text);
        }
      }
      has_text.assign(fds.size(), false);
    }
  }
  return failure;
}

}  // namespace

std::string RunRankProcesses(int nranks, const std::function<void(OutOfBand&)>& body,
                             const std::vector<int>& may_die) {
  std::vector<int> fds;
  std::vector<pid_t> children;
  for (int rank = 0; rank < nranks; ++rank) {
    int pair[2];
    Expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "no socket pair");
    const pid_t child = fork();
    Expect(child >= 0, "cannot fork");
    if (child == 0) {
      for (const int fd : fds) close(fd);
      close(pair[0]);
      BeRank(pair[1], rank, nranks, body);
    }
    close(pair[1]);
    fds.push_back(pair[0]);
    children.push_back(child);
  }
  std::string failure = Serve(fds, may_die);
  for (int rank = 0; rank < nranks; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (status != 0 && failure.empty() && std::count(may_die.begin(), may_die.end(), rank) == 0) {
      failure = Text("rank ", rank, " ended with status ", status);
    }
  }
  return failure;
}

}  // namespace onebit::conformance
