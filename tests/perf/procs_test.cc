// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Threads or processes: valid combinations of flags, and the transport that follows.
#include "perf/common/procs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace onebit::perf {
namespace {

using testing::HasSubstr;

RankSource Threads(int threads) { return {.threads = threads, .is_threads_given = true}; }
RankSource Procs(int procs) { return {.procs = procs}; }
RankSource Launched(int rank) { return {.launched_rank = rank}; }

RankSource With(RankSource source, std::string transport) {
  source.transport = std::move(transport);
  return source;
}

TEST(ProcsTest, ThreadsUseLocalAndProcessesSocket) {
  EXPECT_EQ(TransportOf({}, nullptr), "local");
  EXPECT_EQ(TransportOf(Threads(4), nullptr), "local");
  EXPECT_EQ(TransportOf(Threads(4), "ucx"), "local");  // the variable applies to processes
  EXPECT_EQ(TransportOf(Procs(4), nullptr), "socket");
  EXPECT_EQ(TransportOf(Launched(0), nullptr), "socket");
  EXPECT_EQ(TransportOf(Procs(4), "mpi"), "mpi");
  EXPECT_EQ(TransportOf(With(Launched(1), "mpi"), nullptr), "mpi");
}

TEST(ProcsTest, NcclConnectsThreadsAndProcessesWithCuda) {
  for (RankSource source : {Threads(4), Procs(4), Launched(1)}) {
    source.transport = "nccl";
    EXPECT_EQ(TransportOf(source, nullptr), "nccl");
    EXPECT_THAT(ProblemWith(source, nullptr), HasSubstr("add --device cuda"));
    source.has_cuda = true;
    EXPECT_EQ(ProblemWith(source, nullptr), "");
    EXPECT_THAT(ProblemWith(source, "ucx"), HasSubstr("ONEBIT_TRANSPORT is ucx"));
  }
  EXPECT_THAT(ProblemWith(Procs(4), "nccl"), HasSubstr("add --device cuda"));
  EXPECT_EQ(ProblemWith(Threads(4), "nccl"), "");  // the variable is for processes
  RankSource threads = Threads(4);
  threads.has_cuda = true;
  EXPECT_EQ(TransportOf(threads, nullptr), "local");
}

TEST(ProcsTest, OnlyRankZeroSpeaks) {
  EXPECT_TRUE(RankSource{}.is_speaker());
  EXPECT_TRUE(Launched(0).is_speaker());
  EXPECT_FALSE(Launched(1).is_speaker());
}

TEST(ProcsTest, AcceptsWhatGoesTogether) {
  RankSource one_thread = Threads(1);
  one_thread.procs = 4;
  for (const RankSource& source :
       {RankSource{}, Threads(4), With(Threads(4), "local"), Procs(4), With(Procs(4), "ucx"),
        Launched(2), With(Launched(2), "ucx"), one_thread}) {
    EXPECT_EQ(ProblemWith(source, nullptr), "");
  }
  EXPECT_EQ(ProblemWith(With(Procs(4), "ucx"), "ucx"), "");
}

TEST(ProcsTest, SaysWhatDoesNotGoTogether) {
  RankSource twice = Launched(3);
  twice.procs = 2;
  EXPECT_THAT(ProblemWith(twice, nullptr),
              HasSubstr("already started this process as rank 3: leave out --procs"));

  RankSource both = Threads(4);
  both.procs = 2;
  EXPECT_THAT(ProblemWith(both, nullptr),
              HasSubstr("-t 4 makes ranks of threads, but with --procs"));
  both = Threads(4);
  both.launched_rank = 0;
  EXPECT_THAT(ProblemWith(both, nullptr), HasSubstr("but with the launcher every process is one"));

  EXPECT_THAT(ProblemWith(With(Procs(2), "local"), nullptr),
              HasSubstr("--transport local connects"));
  EXPECT_THAT(ProblemWith(With(Threads(2), "ucx"), nullptr),
              HasSubstr("start some with --procs N"));
  EXPECT_THAT(ProblemWith(With(Procs(2), "ucx"), "mpi"), HasSubstr("ONEBIT_TRANSPORT is mpi"));
}

}  // namespace
}  // namespace onebit::perf
