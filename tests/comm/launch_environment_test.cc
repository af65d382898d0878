// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank and number of ranks from the variables of launchers.
#include "comm/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace onebit {
namespace {

using testing::HasSubstr;

constexpr LaunchProcess kProcess = {.parent_pid = 4321, .user_id = 1000};
// Gives every case a rendezvous, so that none fails for lack of one.
constexpr const char* kPlace = "ONEBIT_RENDEZVOUS=host0:1234";

Result<LaunchEnvironment> Read(std::vector<const char*> variables) {
  variables.push_back(kPlace);
  return ReadLaunchEnvironment(variables, kProcess);
}

std::string ErrorOf(std::vector<const char*> variables) {
  const auto launch = Read(std::move(variables));
  if (launch.ok()) return "";
  EXPECT_EQ(launch.status().code(), Code::kInvalidUsage);
  return launch.status().text();
}

struct GoodCase {
  std::vector<const char*> variables;
  int rank;
  int ranks;
  const char* source;
};

class GoodLaunchTest : public testing::TestWithParam<GoodCase> {};

TEST_P(GoodLaunchTest, SaysRankAndRanks) {
  const GoodCase& c = GetParam();
  const auto launch = Read(c.variables);
  ASSERT_TRUE(launch.ok()) << launch.status().text();
  EXPECT_EQ(launch.value().rank, c.rank);
  EXPECT_EQ(launch.value().ranks, c.ranks);
  EXPECT_EQ(launch.value().source, c.source);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, GoodLaunchTest,
    testing::Values(
        GoodCase{{"RANK=2", "WORLD_SIZE=4"}, 2, 4, "RANK and WORLD_SIZE"},
        GoodCase{{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=3"},
                 0,
                 3,
                 "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
        GoodCase{{"PMI_RANK=6", "PMI_SIZE=7"}, 6, 7, "PMI_RANK and PMI_SIZE"},
        GoodCase{{"SLURM_PROCID=1", "SLURM_NTASKS=2"}, 1, 2, "SLURM_PROCID and SLURM_NTASKS"},
        GoodCase{{"SLURM_PROCID=1", "SLURM_NPROCS=2"}, 1, 2, "SLURM_PROCID and SLURM_NPROCS"},
        // A step may be smaller than its allocation.
        GoodCase{{"SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2"},
                 1,
                 2,
                 "SLURM_PROCID and SLURM_STEP_NUM_TASKS"},
        GoodCase{{"RANK=0", "WORLD_SIZE=1"}, 0, 1, "RANK and WORLD_SIZE"},
        GoodCase{{"RANK=65535", "WORLD_SIZE=65536"}, 65535, 65536, "RANK and WORLD_SIZE"},
        // Two launchers that agree.
        GoodCase{{"RANK=1", "WORLD_SIZE=2", "PMI_RANK=1", "PMI_SIZE=2"},
                 1,
                 2,
                 "RANK and WORLD_SIZE, PMI_RANK and PMI_SIZE"},
        // torchrun and mpirun inherit the batch step's variables, complete or not.
        GoodCase{{"SLURM_PROCID=0", "SLURM_NTASKS=8", "RANK=5", "WORLD_SIZE=6"},
                 5,
                 6,
                 "RANK and WORLD_SIZE"},
        GoodCase{{"SLURM_NTASKS=nonsense", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
                 1,
                 2,
                 "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
        // As for getenv, the first one counts; other names that begin alike do not.
        GoodCase{{"RANKS=9", "RANK=1", "RANK=0", "WORLD_SIZE=2"}, 1, 2, "RANK and WORLD_SIZE"}));

struct BadCase {
  std::vector<const char*> variables;
  std::vector<const char*> texts;  // all in the error
};

class BadLaunchTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadLaunchTest, IsAnErrorThatNamesIt) {
  const std::string error = ErrorOf(GetParam().variables);
  for (const char* text : GetParam().texts) EXPECT_THAT(error, HasSubstr(text));
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, BadLaunchTest,
    testing::Values(
        BadCase{{},
                {"RANK and WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                 "PMI_RANK and PMI_SIZE", "SLURM_PROCID and SLURM_NTASKS", "onebit_run -n"}},
        BadCase{{"RANK=1"}, {"variable RANK is set, but WORLD_SIZE is not", "unset RANK"}},
        BadCase{{"WORLD_SIZE=2"}, {"variable WORLD_SIZE is set, but RANK is not"}},
        BadCase{{"OMPI_COMM_WORLD_RANK=1"}, {"but OMPI_COMM_WORLD_SIZE is not"}},
        BadCase{{"PMI_SIZE=2"}, {"PMI_SIZE is set, but PMI_RANK is not"}},
        BadCase{{"SLURM_NTASKS=2"}, {"SLURM_NTASKS is set, but SLURM_PROCID is not"}},
        BadCase{{"SLURM_PROCID=0"}, {"SLURM_PROCID is set, but SLURM_NTASKS is not"}},
        // An incomplete family is an error even if another launcher's is complete.
        BadCase{{"RANK=1", "PMI_RANK=1", "PMI_SIZE=2"}, {"but WORLD_SIZE is not"}},
        BadCase{{"RANK=1", "WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=2"},
                {"contradict", "RANK=1 and WORLD_SIZE=2", "PMI_RANK=0 and PMI_SIZE=2"}},
        BadCase{{"RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3"},
                {"contradict", "WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=3"}},
        BadCase{{"RANK=2", "WORLD_SIZE=2"},
                {"RANK: \"2\" is not a whole number from 0 to 1", "WORLD_SIZE is 2"}},
        BadCase{{"RANK=-1", "WORLD_SIZE=2"}, {"RANK: \"-1\" is not", "from 0 to 1"}},
        BadCase{{"RANK=", "WORLD_SIZE=2"}, {"RANK: \"\" is not"}},
        BadCase{{"RANK= 1", "WORLD_SIZE=2"}, {"RANK: \" 1\" is not"}},
        BadCase{{"RANK=1x", "WORLD_SIZE=2"}, {"RANK: \"1x\" is not"}},
        BadCase{{"RANK=0", "WORLD_SIZE=0"}, {"WORLD_SIZE: \"0\"", "from 1 to 65536"}},
        BadCase{{"RANK=0", "WORLD_SIZE=65537"}, {"WORLD_SIZE: \"65537\"", "from 1 to 65536"}},
        BadCase{{"RANK=0", "WORLD_SIZE=99999999999999999999"}, {"WORLD_SIZE: \"99999"}},
        // Slurm's compressed form is not a number of tasks.
        BadCase{{"SLURM_PROCID=0", "SLURM_NTASKS=4(x2)"}, {"SLURM_NTASKS: \"4(x2)\""}}));

std::string JobOf(std::vector<const char*> variables) {
  const auto launch = Read(std::move(variables));
  return launch.ok() ? launch.value().job : launch.status().text();
}

TEST(JobWordTest, TheUsersOwnComesFirst) {
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=run", "ONEBIT_JOB=mine"}),
            "ONEBIT_JOB=mine");
  EXPECT_THAT(JobOf({"RANK=1", "WORLD_SIZE=4", "ONEBIT_JOB="}), HasSubstr("ONEBIT_JOB is empty"));
}

TEST(JobWordTest, AnyTextIsOneShortWord) {
  const std::string odd = JobOf({"RANK=1", "WORLD_SIZE=4", "ONEBIT_JOB=a b"});
  EXPECT_THAT(odd, testing::MatchesRegex("ONEBIT_JOB=a_b-[0-9a-f]{16}"));
  EXPECT_NE(odd, JobOf({"RANK=1", "WORLD_SIZE=4", "ONEBIT_JOB=a\tb"}));
  const std::string text(10'000, 'x');
  EXPECT_LE(JobOf({"RANK=1", "WORLD_SIZE=4", ("ONEBIT_JOB=" + text).c_str()}).size(), 128u);
}

TEST(JobWordTest, TorchrunsIsItsRunIdWhateverAgentsHaveCounted) {
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=run",
                   "TORCHELASTIC_RESTART_COUNT=3", "SLURM_JOB_ID=7"}),
            "TORCHELASTIC_RUN_ID=run");
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=none"}), "");
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID="}), "");
  EXPECT_EQ(JobOf({"PMI_RANK=1", "PMI_SIZE=4", "TORCHELASTIC_RUN_ID=run"}), "")
      << "that of a torchrun around mpiexec";
}

TEST(JobWordTest, MpisIsItsJob) {
  const std::vector<const char*> open_mpi = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
                                             "SLURM_JOB_ID=7"};
  auto with = [&](const char* variable) {
    auto all = open_mpi;
    all.push_back(variable);
    return JobOf(all);
  };
  EXPECT_EQ(with("PMIX_NAMESPACE=123"), "PMIX_NAMESPACE=123");
  EXPECT_EQ(with("OMPI_MCA_ess_base_jobid=9"), "OMPI_MCA_ess_base_jobid=9");
  EXPECT_EQ(JobOf({"PMI_RANK=1", "PMI_SIZE=4", "PMI_JOBID=7.1"}), "PMI_JOBID=7.1");
  EXPECT_EQ(JobOf({"PMI_RANK=1", "PMI_SIZE=4"}), "");
}

TEST(JobWordTest, SlurmsIsJobAndStep) {
  EXPECT_EQ(JobOf({"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=4", "SLURM_JOB_ID=7",
                   "SLURM_STEP_ID=2"}),
            "SLURM_JOB_ID=7.2");
  // A wrapper that sets RANK from SLURM_PROCID.
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "SLURM_STEP_NUM_TASKS=4", "SLURM_JOB_ID=7",
                   "SLURM_STEP_ID=2"}),
            "SLURM_JOB_ID=7.2");
}

TEST(JobWordTest, StepsThatEachStartATorchrunAreOneJob) {
  EXPECT_EQ(JobOf({"RANK=1", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=none", "SLURM_STEP_NUM_TASKS=1",
                   "SLURM_JOB_ID=7", "SLURM_STEP_ID=2"}),
            "SLURM_JOB_ID=7");
}

TEST(JobWordTest, OneRankNeedsNone) {
  EXPECT_EQ(JobOf({"RANK=0", "WORLD_SIZE=1", "ONEBIT_JOB=mine"}), "");
}

}  // namespace
}  // namespace onebit
