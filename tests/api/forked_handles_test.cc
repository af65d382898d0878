// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A forked child has copies of its parent's handles: every call with one is refused, destroying one
// does nothing, and nothing that the child does reaches the parent.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fork.h"
#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "onebit/schedule.h"
#include "onebit/state.h"
#include "onebit/sync.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

// Runs the body in a forked child; returns what it said, and "ended" if it came to its end.
template <typename Body>
std::string RunInChild(Body body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs fails the test
    const std::string said = body() + "ended";
    _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(ends[0], bytes, sizeof bytes)) > 0;) {
    said.append(bytes, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

// One of each kind.
struct Handles {
  onebitComm_t comm = nullptr;
  onebitCompressor_t compressor = nullptr;
  onebitCompressor_t of_sync = nullptr;
  onebitSync_t sync = nullptr;
  onebitOptimizer_t optimizer = nullptr;
  onebitPolicy_t policy = nullptr;
  onebitStream_t stream = nullptr;
  std::vector<float> values = std::vector<float>(8, 1.0f);

  Handles() {
    EXPECT_EQ(onebitCommInitAll(&comm, 1, nullptr), onebitSuccess);
    for (onebitCompressor_t* each : {&compressor, &of_sync}) {
      EXPECT_EQ(onebitCompressorCreate(each, comm, 8, onebitFloat32, nullptr), onebitSuccess);
    }
    EXPECT_EQ(onebitSyncCreate(&sync, of_sync, nullptr), onebitSuccess);
    onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
    EXPECT_EQ(onebitOptimizerCreate(&optimizer, comm, 8, values.data(), &config), onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_EQ(onebitPolicyCreate(&policy, nullptr), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_EQ(onebitStreamCreate(&stream), onebitSuccess);
  }
  bool Destroy() {
    return onebitPolicyDestroy(policy) == onebitSuccess &&
           onebitOptimizerDestroy(optimizer) == onebitSuccess &&
           onebitSyncDestroy(sync) == onebitSuccess &&
           onebitCompressorDestroy(of_sync) == onebitSuccess &&
           onebitCompressorDestroy(compressor) == onebitSuccess &&
           onebitStreamDestroy(stream) == onebitSuccess && onebitCommDestroy(comm) == onebitSuccess;
  }
  onebitResult_t Reduce(onebitComm_t through, onebitCompressor_t with, onebitStream_t on) {
    return onebitAllReduce(values.data(), values.data(), 8, onebitFloat32, onebitAvg, with, through,
                           on);
  }
};

// The calls that were not refused as they must be, by name.
std::string Accepted(Handles& h) {
  std::string accepted;
  const auto expect = [&](const char* call, const char* handle, onebitResult_t result) {
    const std::string text = onebitGetLastError(nullptr);
    if (result == onebitInvalidUsage &&
        text.starts_with(std::string(handle) + " belongs to the parent of this forked process")) {
      return;
    }
    accepted += std::string(call) + ": " + std::to_string(result) + " " + text + "; ";
  };
  int number = 0;
  size_t bytes = 0;
  float weight = 0;
  float* const data = h.values.data();
  onebitComm_t made = nullptr;
  onebitResult_t error = onebitSuccess;
  onebitCommStats_t comm_stats{.size = sizeof comm_stats};
  expect("AllReduce", "comm", h.Reduce(h.comm, nullptr, nullptr));
  expect("Barrier", "comm", onebitBarrier(h.comm, nullptr));
  expect("Abort", "comm", onebitCommAbort(h.comm));
  expect("Finalize", "comm", onebitCommFinalize(h.comm));
  expect("Split", "comm", onebitCommSplit(h.comm, 0, 0, &made, nullptr));
  expect("Shrink", "comm", onebitCommShrink(h.comm, nullptr, 0, &made, nullptr, 0));
  expect("GetAsyncError", "comm", onebitCommGetAsyncError(h.comm, &error));
  expect("Count", "comm", onebitCommCount(h.comm, &number));
  expect("UserRank", "comm", onebitCommUserRank(h.comm, &number));
  expect("CommGetStats", "comm", onebitCommGetStats(h.comm, &comm_stats));
  onebitCompressor_t compressor = nullptr;
  expect("CompressorCreate", "comm",
         onebitCompressorCreate(&compressor, h.comm, 8, onebitFloat32, nullptr));
  onebitCompressorStats_t stats{.size = sizeof stats};
  double norm = 0;
  expect("Reset", "compressor", onebitCompressorReset(h.compressor));
  expect("Revert", "compressor", onebitCompressorRevert(h.compressor));
  expect("SetMask", "compressor", onebitCompressorSetMask(h.compressor, nullptr));
  expect("SetWeight", "compressor", onebitCompressorSetWeight(h.compressor, 1));
  expect("CompressorGetStats", "compressor", onebitCompressorGetStats(h.compressor, &stats));
  expect("ResidualNorm", "compressor", onebitCompressorGetResidualNorm(h.compressor, &norm));
  expect("Rebind", "compressor", onebitCompressorRebind(h.compressor, h.comm, &number));
  expect("Prime", "compressor",
         onebitCompressorPrime(h.compressor, data, data, onebitAvg, nullptr));
  expect("Export", "compressor",
         onebitCompressorExport(h.compressor, onebitStateRank, nullptr, &bytes));
  expect("Import", "compressor", onebitCompressorImport(h.compressor, data, 8));
  onebitSync_t sync = nullptr;
  expect("SyncCreate", "compressor", onebitSyncCreate(&sync, h.compressor, nullptr));
  expect("SyncStep", "sync", onebitSyncStep(h.sync, data, 1, data, &number, &weight, nullptr));
  char text[9];
  expect("SyncNext", "sync", onebitSyncNext(h.sync, 8, text));
  expect("SyncExport", "sync", onebitSyncExport(h.sync, onebitStateRank, nullptr, &bytes));
  expect("SyncImport", "sync", onebitSyncImport(h.sync, data, 8));
  expect("StreamSynchronize", "stream", onebitStreamSynchronize(h.stream));
  expect("StreamQuery", "stream", onebitStreamQuery(h.stream));
  expect("LaunchHostFunc", "stream",
         onebitStreamLaunchHostFunc(
             h.stream, [](void*) { return onebitSuccess; }, nullptr));
  onebitOptimizer_t optimizer = nullptr;
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  expect("OptimizerCreate", "comm", onebitOptimizerCreate(&optimizer, h.comm, 8, data, &config));
  onebitOptimizerStats_t optimizer_stats{.size = sizeof optimizer_stats};
  expect("AddGradient", "optimizer",
         onebitOptimizerAddGradient(h.optimizer, 0, data, onebitFloat32));
  expect("OptimizerStep", "optimizer",
         onebitOptimizerStep(h.optimizer, data, onebitFloat32, 1e-3, 1, 0, nullptr, nullptr));
  expect("OptimizerRebind", "optimizer", onebitOptimizerRebind(h.optimizer, h.comm, &number));
  expect("OptimizerGetStats", "optimizer", onebitOptimizerGetStats(h.optimizer, &optimizer_stats));
  expect("OptimizerSync", "optimizer", onebitOptimizerSync(h.optimizer));
  expect("GetMoment", "optimizer", onebitOptimizerGetMoment(h.optimizer, 0, "exp_avg", data));
  expect("SetMoment", "optimizer", onebitOptimizerSetMoment(h.optimizer, 0, "exp_avg", data));
  expect("SetRates", "optimizer", onebitOptimizerSetRates(h.optimizer, 0, 1, 0));
  expect("OptimizerExport", "optimizer",
         onebitOptimizerExport(h.optimizer, onebitStateRank, nullptr, &bytes));
  expect("OptimizerImport", "optimizer", onebitOptimizerImport(h.optimizer, data, 8));
  expect("Rewarm", "optimizer", onebitOptimizerRewarm(h.optimizer, 1));
  onebitStepPlan_t plan{.size = sizeof plan};
  expect("PolicyNext", "policy", onebitPolicyNext(h.policy, 1e-3, &plan));
  expect("PolicyCommit", "policy", onebitPolicyCommit(h.policy, 1e-3, 0));
  expect("PolicyEndInterval", "policy", onebitPolicyEndInterval(h.policy));
  // A handle of the child's own does not make the others its own.
  onebitComm_t own = nullptr;
  expect("the child's own communicator", "compressor",
         onebitCommInitAll(&own, 1, nullptr) == onebitSuccess &&
                 h.Reduce(own, nullptr, nullptr) == onebitSuccess
             ? h.Reduce(own, h.compressor, nullptr)
             : onebitInternalError);
  return accepted;
}

TEST(ForkedHandlesTest, EveryCallIsRefusedAndTheParentGoesOn) {
  Handles handles;
  EXPECT_EQ(handles.Reduce(handles.comm, handles.compressor, handles.stream), onebitSuccess);
  EXPECT_EQ(onebitStreamSynchronize(handles.stream), onebitSuccess);
  EXPECT_EQ(RunInChild([&] {
              std::string said = Accepted(handles);
              if (!handles.Destroy()) said += "Destroy failed; ";
              return said;
            }),
            "ended");
  EXPECT_EQ(handles.Reduce(handles.comm, handles.compressor, nullptr), onebitSuccess);
  EXPECT_EQ(onebitOptimizerStep(handles.optimizer, handles.values.data(), onebitFloat32, 1e-3, 1, 0,
                                nullptr, nullptr),
            onebitSuccess);
  EXPECT_TRUE(handles.Destroy());
}

// The other rank is inside a call, so the copy of its communicator looks busy in the child, and
// locks and waits may have been copied in any state.
TEST(ForkedHandlesTest, ChildDestroysWhatAnotherThreadUses) {
  CommGroup group(2);
  group.Run([&](int rank) {
    std::vector<float> values(1000, 1.0f);
    for (int call = 0; call < 200; ++call) {
      if (rank == 0 && call % 50 == 0) {
        EXPECT_EQ(RunInChild([&] {
                    const bool is_ok = onebitCommDestroy(group.comm(0)) == onebitSuccess &&
                                       onebitCommDestroy(group.comm(1)) == onebitSuccess;
                    return std::string(is_ok ? "" : onebitGetLastError(nullptr));
                  }),
                  "ended");
      }
      EXPECT_EQ(onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32,
                                onebitAvg, nullptr, group.comm(rank), nullptr),
                onebitSuccess);
    }
  });
}

TEST(ForkedHandlesTest, ChildEndsTheParentsGroup) {
  Handles handles;
  EXPECT_EQ(onebitGroupStart(), onebitSuccess);
  EXPECT_EQ(handles.Reduce(handles.comm, handles.compressor, nullptr), onebitSuccess);
  EXPECT_EQ(RunInChild([&] {
              const onebitResult_t result = onebitGroupEnd();
              return std::string(result == onebitInvalidUsage ? "" : onebitGetLastError(nullptr));
            }),
            "ended");
  EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
  EXPECT_TRUE(handles.Destroy());
}

TEST(ForkedDescriptorTest, IsClosedInTheChildAndNeverTwice) {
  const Descriptor descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int moved_to = fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 100);
  auto second = std::make_unique<Descriptor>(moved_to);
  EXPECT_EQ(RunInChild([&] {
              std::string said;
              if (fcntl(descriptor.get(), F_GETFD) != -1) said += "the first is open; ";
              // Another file gets the number.
              if (fcntl(STDERR_FILENO, F_DUPFD, moved_to) != moved_to) said += "second is open; ";
              second.reset();
              if (fcntl(moved_to, F_GETFD) == -1) said += "another file was closed; ";
              return said;
            }),
            "ended");
  EXPECT_NE(fcntl(descriptor.get(), F_GETFD), -1);
  EXPECT_NE(fcntl(moved_to, F_GETFD), -1);
  second.reset();
  EXPECT_EQ(fcntl(moved_to, F_GETFD), -1);
}

}  // namespace
}  // namespace onebit::testing
