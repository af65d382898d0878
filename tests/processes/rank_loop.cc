// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank for tests that stop, kill and abort processes: joins by its launch variables, prints
// "ready", and calls onebitAllReduce until it fails or the calls are over.
//
//   rank_loop CALLS COUNT dense|ef [--pause MS] [--abort-after MS] [--tries N] [--fork 1]
//             [--workers N]
//
// With CALLS 0 there is no end. After the last call it prints one line, "ended RESULT SECONDS
// TEXT", SECONDS being the monotonic clock when the failing call returned; then it destroys
// everything and exits with 0. --fork: between "ready" and the first call a forked child destroys
// its copy of the communicator. --workers: forks so many children, which use their copies of the
// communicator, print "worker PID ..." with what they were told, and live until somebody ends them,
// for a minute at most. --tries: how often it tries to join. --pause: sleeps between
// "ready" and the first call. --abort-after: only rank 0 makes a call, which blocks; another of its
// threads calls onebitCommAbort after this time and prints "aborted SECONDS-THE-ABORT-TOOK"; the
// other ranks poll the communicator's error until there is one.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "onebit/onebit.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// One write per line, because launchers mix the output of ranks.
void Say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int Fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, onebitGetLastError(nullptr));
  return 1;
}

// What a worker of a data loader must not do.
[[noreturn]] void Work(onebitComm_t comm, onebitCompressor_t compressor,
                       const std::vector<float>& data, std::vector<float>& out) {
  const onebitResult_t reduced = onebitAllReduce(
      data.data(), out.data(), data.size(), onebitFloat32, onebitAvg, compressor, comm, nullptr);
  const std::string text = onebitGetLastError(comm);
  const onebitResult_t aborted = onebitCommAbort(comm);
  Say("worker " + std::to_string(getpid()) + " reduced " + std::to_string(reduced) + " aborted " +
      std::to_string(aborted) + " destroyed " + std::to_string(onebitCommDestroy(comm)) + " " +
      text);
  sleep(60);  // until it is killed
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: rank_loop CALLS COUNT dense|ef [--pause MS] [--abort-after MS]\n");
    return 2;
  }
  const long calls = std::atol(argv[1]);
  const auto count = static_cast<size_t>(std::atol(argv[2]));
  const bool is_compressed = std::strcmp(argv[3], "ef") == 0;
  long pause_ms = 0;
  long abort_after_ms = 0;
  long tries = 1;
  long forks = 0;
  long workers = 0;
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    (option == "--pause"     ? pause_ms
     : option == "--tries"   ? tries
     : option == "--fork"    ? forks
     : option == "--workers" ? workers
                             : abort_after_ms) = std::atol(argv[i + 1]);
  }

  onebitComm_t comm = nullptr;
  while (onebitCommInitEnv(&comm, nullptr) != onebitSuccess) {
    if (--tries == 0) return Fail("onebitCommInitEnv");
    Say("failed: " + std::string(onebitGetLastError(nullptr)));
  }
  const onebit::UniqueComm owner(comm);
  int rank = 0;
  onebitCommUserRank(comm, &rank);
  onebit::UniqueCompressor compressor;
  if (is_compressed &&
      onebit::MakeCompressor(compressor, comm, count, onebitFloat32) != onebitSuccess) {
    return Fail("onebitCompressorCreate");
  }
  std::vector<float> data(count, 1.0f + static_cast<float>(rank));
  std::vector<float> out(count);
  for (; workers > 0; --workers) {
    if (fork() == 0) Work(comm, compressor.get(), data, out);
  }
  Say("ready");
  for (; forks > 0; --forks) {
    const pid_t child = fork();
    if (child == 0) _exit(onebitCommDestroy(comm) == onebitSuccess ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) Say("child failed " + std::to_string(status));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));

  std::jthread watchdog;
  if (abort_after_ms > 0 && rank == 0) {
    watchdog = std::jthread([comm, abort_after_ms] {
      std::this_thread::sleep_for(std::chrono::milliseconds(abort_after_ms));
      const Clock::time_point begin = Clock::now();
      onebitCommAbort(comm);
      Say("aborted " + std::to_string(Seconds(Clock::now() - begin)));
    });
  }
  onebitResult_t result = onebitSuccess;
  if (abort_after_ms > 0 && rank != 0) {
    while (result == onebitSuccess) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      onebitCommGetAsyncError(comm, &result);
    }
  }
  for (long call = 0; (calls == 0 || call < calls) && result == onebitSuccess; ++call) {
    result = onebitAllReduce(data.data(), out.data(), count, onebitFloat32, onebitAvg,
                             compressor.get(), comm, nullptr);
  }
  const double now = Seconds(Clock::now().time_since_epoch());
  char line[64];
  std::snprintf(line, sizeof(line), "ended %d %.3f ", static_cast<int>(result), now);
  Say(line + std::string(result == onebitSuccess ? "ok" : onebitGetLastError(comm)));
  return 0;
}
