// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks: each kind, their precedence, and errors in bad ones.
#include "comm/launch_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/launch_environment.h"

namespace onebit {
namespace {

using testing::HasSubstr;
using Kind = Rendezvous::Kind;
using Variables = std::vector<const char*>;

constexpr LaunchProcess kProcess = {.parent_pid = 4321, .user_id = 1000};

const Variables kTorch = {"RANK=1", "WORLD_SIZE=4"};
const Variables kOpenMpi = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"};
const Variables kPmi = {"PMI_RANK=1", "PMI_SIZE=4"};
const Variables kSlurm = {"SLURM_PROCID=1", "SLURM_NTASKS=4"};

struct Case {
  Variables launcher;
  Variables more;
};

Result<LaunchEnvironment> Read(const Case& c) {
  Variables all = c.launcher;
  all.insert(all.end(), c.more.begin(), c.more.end());
  return ReadLaunchEnvironment(all, kProcess);
}

// Returns "host port source", "path source", "none", or the error.
std::string RendezvousOf(const Case& c) {
  const auto launch = Read(c);
  if (!launch.ok()) return launch.status().text();
  const Rendezvous& found = launch.value().rendezvous;
  switch (found.kind) {
    case Kind::kNone:
      return "none";
    case Kind::kAddress:
      return found.host + " " + std::to_string(found.port) + " " + found.source;
    case Kind::kFile:
      return found.path + " " + found.source;
  }
  return "";
}

std::string Explicit(const char* variable) { return RendezvousOf({kTorch, {variable}}); }

TEST(RendezvousTest, OneRankMeetsNobody) {
  EXPECT_EQ(RendezvousOf({{"RANK=0", "WORLD_SIZE=1"}, {}}), "none");
  EXPECT_EQ(RendezvousOf({{"RANK=0", "WORLD_SIZE=1"}, {"MASTER_ADDR=a"}}), "none");
}

TEST(RendezvousTest, ReadsOurOwnVariable) {
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=host0:29500"), "host0 29500 ONEBIT_RENDEZVOUS");
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=10.0.0.1:1"), "10.0.0.1 1 ONEBIT_RENDEZVOUS");
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=[::1]:65535"), "::1 65535 ONEBIT_RENDEZVOUS");
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=[fe80::1%eth0]:7"), "fe80::1%eth0 7 ONEBIT_RENDEZVOUS");
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=/shared/job:7/meet"),
            "/shared/job:7/meet ONEBIT_RENDEZVOUS");
  EXPECT_EQ(Explicit("ONEBIT_RENDEZVOUS=./meet"), "./meet ONEBIT_RENDEZVOUS");
}

TEST(RendezvousTest, RefusesWhatIsNeitherAddressNorPath) {
  for (const char* value : {"", "host", "host:", ":7", "host:0", "host:65536", "host:-1", "host:7x",
                            "::1:7", "[::1]", "[]:7", "ho st:7", "[::1:7", "host: 7"}) {
    const std::string error = Explicit((std::string("ONEBIT_RENDEZVOUS=") + value).c_str());
    EXPECT_THAT(error, HasSubstr("ONEBIT_RENDEZVOUS: \"" + std::string(value) + "\" has")) << value;
    EXPECT_THAT(error, HasSubstr("write host:port, [IPv6 address]:port, or the path")) << value;
  }
}

TEST(RendezvousTest, TakesThePortAfterTorchrunsStore) {
  const char* const kSource = "MASTER_ADDR and MASTER_PORT";
  EXPECT_EQ(RendezvousOf({kTorch, {"MASTER_ADDR=h", "MASTER_PORT=29500"}}),
            std::string("h 29501 ") + kSource);
  EXPECT_EQ(RendezvousOf({kTorch, {"MASTER_ADDR=::1", "MASTER_PORT=65534"}}),
            std::string("::1 65535 ") + kSource);
  EXPECT_EQ(RendezvousOf({kTorch, {"MASTER_ADDR=[::1]", "MASTER_PORT=1"}}),
            std::string("::1 2 ") + kSource);
}

TEST(RendezvousTest, RefusesHalfAMaster) {
  EXPECT_THAT(RendezvousOf({kTorch, {"MASTER_ADDR=h"}}),
              HasSubstr("MASTER_ADDR is set, but MASTER_PORT is not"));
  EXPECT_THAT(RendezvousOf({kTorch, {"MASTER_PORT=1"}}),
              HasSubstr("MASTER_PORT is set, but MASTER_ADDR is not"));
  EXPECT_THAT(RendezvousOf({kTorch, {"MASTER_ADDR=", "MASTER_PORT=1"}}),
              HasSubstr("MASTER_ADDR is empty"));
  for (const char* port : {"MASTER_PORT=65535", "MASTER_PORT=0", "MASTER_PORT=x", "MASTER_PORT="}) {
    const std::string error = RendezvousOf({kTorch, {"MASTER_ADDR=h", port}});
    EXPECT_THAT(error, HasSubstr("MASTER_PORT: \"")) << port;
    EXPECT_THAT(error, HasSubstr("from 1 to 65534")) << port;
    EXPECT_THAT(error, HasSubstr("the port after it")) << port;
  }
}

TEST(RendezvousTest, MeetsOnSlurmsFirstHost) {
  EXPECT_EQ(RendezvousOf({kSlurm, {"SLURM_JOB_NODELIST=n[03-04,9]", "SLURM_JOB_ID=17"}}),
            "n03 20629 SLURM_JOB_NODELIST, SLURM_JOB_ID and SLURM_STEP_ID");
  EXPECT_EQ(RendezvousOf({kSlurm,
                          {"SLURM_JOB_NODELIST=n[03-04]", "SLURM_STEP_NODELIST=n04",
                           "SLURM_JOBID=17", "SLURM_STEPID=2"}}),
            "n04 20631 SLURM_STEP_NODELIST, SLURM_JOB_ID and SLURM_STEP_ID");
}

TEST(RendezvousTest, SlurmsPortsAreInTheirRangeAndApart) {
  EXPECT_EQ(SlurmPort(0, 0), 20000);
  EXPECT_EQ(SlurmPort(1, 0), 20037);
  EXPECT_EQ(SlurmPort(10000, 3), 20003);
  for (const uint64_t id : {uint64_t{1}, uint64_t{9999}, uint64_t{4294967291}, UINT64_MAX}) {
    EXPECT_GE(SlurmPort(id, id), 20000);
    EXPECT_LT(SlurmPort(id, id), 30000);
    EXPECT_NE(SlurmPort(id, 0), SlurmPort(id - 1, 0));
    EXPECT_NE(SlurmPort(7, id), SlurmPort(7, id - 1));
  }
}

TEST(RendezvousTest, RefusesBadVariablesOfSlurm) {
  EXPECT_THAT(RendezvousOf({kSlurm, {"SLURM_JOB_NODELIST=n1"}}), HasSubstr("SLURM_JOB_ID is not"));
  const std::string list = RendezvousOf({kSlurm, {"SLURM_JOB_NODELIST=n[1", "SLURM_JOB_ID=1"}});
  EXPECT_THAT(list, HasSubstr("SLURM_JOB_NODELIST: \"n[1\" is not a list of hosts"));
  EXPECT_THAT(list, HasSubstr("ONEBIT_RENDEZVOUS=host:port"));
  EXPECT_THAT(RendezvousOf({kSlurm, {"SLURM_JOB_NODELIST=n1", "SLURM_JOB_ID=x"}}),
              HasSubstr("SLURM_JOB_ID: \"x\""));
}

TEST(RendezvousTest, SlurmsHostsAreForItsOwnRanksOnly) {
  EXPECT_THAT(
      RendezvousOf({kOpenMpi, {"SLURM_JOB_NODELIST=n1", "SLURM_JOB_ID=1", "SLURM_NNODES=1"}}),
      HasSubstr("have no place to meet"));
}

struct FileCase {
  Case c;
  const char* expected;
};

TEST(RendezvousTest, RanksOfOneHostMeetAtAFileOfTheJob) {
  const FileCase kCases[] = {
      {{kTorch, {"LOCAL_WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=ab-1"}},
       "/tmp/onebit-1000/torchrun-ab-1-0 TORCHELASTIC_RUN_ID"},
      {{kTorch, {"LOCAL_WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=ab", "TORCHELASTIC_RESTART_COUNT=2"}},
       "/tmp/onebit-1000/torchrun-ab-2 TORCHELASTIC_RUN_ID"},
      {{kOpenMpi, {"OMPI_COMM_WORLD_LOCAL_SIZE=4", "OMPI_MCA_ess_base_jobid=77"}},
       "/tmp/onebit-1000/mpirun-77 OMPI_MCA_ess_base_jobid"},
      {{kOpenMpi,
        {"OMPI_COMM_WORLD_LOCAL_SIZE=4", "OMPI_MCA_ess_base_jobid=77", "PMIX_NAMESPACE=88"}},
       "/tmp/onebit-1000/mpirun-88 PMIX_NAMESPACE"},
      {{kPmi, {"MPI_LOCALNRANKS=4"}},
       "/tmp/onebit-1000/mpiexec-4321 MPI_LOCALNRANKS and the parent process"},
      {{kSlurm, {"SLURM_NNODES=1", "SLURM_JOB_ID=17", "SLURM_STEP_ID=3"}},
       "/tmp/onebit-1000/slurm-17-3 SLURM_JOB_ID and SLURM_STEP_ID"},
      {{kPmi, {"MPI_LOCALNRANKS=4", "XDG_RUNTIME_DIR=/run/user/1000"}},
       "/run/user/1000/onebit/mpiexec-4321 MPI_LOCALNRANKS and the parent process"},
      {{kPmi, {"MPI_LOCALNRANKS=4", "XDG_RUNTIME_DIR=relative"}},
       "/tmp/onebit-1000/mpiexec-4321 MPI_LOCALNRANKS and the parent process"},
  };
  for (const FileCase& c : kCases) EXPECT_EQ(RendezvousOf(c.c), c.expected);
}

TEST(RendezvousTest, ASecureExecutionOpensNoFileOfItsCaller) {
  const LaunchProcess secure = {.parent_pid = 4321, .user_id = 0, .is_secure_execution = true};
  const auto read = [&](Variables all) { return ReadLaunchEnvironment(all, secure); };
  const auto file = read({"RANK=1", "WORLD_SIZE=4", "ONEBIT_RENDEZVOUS=/tmp/meet"});
  EXPECT_EQ(file.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(file.status().text(), HasSubstr("\"/tmp/meet\" is a file, but this program has more "
                                              "rights than its caller"));
  const auto address = read({"RANK=1", "WORLD_SIZE=4", "ONEBIT_RENDEZVOUS=a:17"});
  ASSERT_TRUE(address.ok()) << address.status().text();
  EXPECT_EQ(address.value().rendezvous.host, "a");
  const auto job =
      read({"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=4", "XDG_RUNTIME_DIR=/run/a"});
  ASSERT_TRUE(job.ok()) << job.status().text();
  EXPECT_EQ(job.value().rendezvous.path, "/tmp/onebit-0/mpiexec-4321");
}

TEST(RendezvousTest, AJobsNameCannotLeaveTheFolder) {
  const auto path_of = [](const char* id) {
    const auto launch = Read({kTorch, {"LOCAL_WORLD_SIZE=4", id}});
    EXPECT_TRUE(launch.ok());
    return launch.ok() ? launch.value().rendezvous.path : "";
  };
  const std::string folder = "/tmp/onebit-1000/";
  for (const char* id : {"TORCHELASTIC_RUN_ID=../../etc/passwd", "TORCHELASTIC_RUN_ID=..",
                         "TORCHELASTIC_RUN_ID=/", "TORCHELASTIC_RUN_ID=a\nb"}) {
    const std::string path = path_of(id);
    ASSERT_TRUE(path.starts_with(folder + "torchrun-")) << path;
    EXPECT_EQ(path.find_first_of("/\n", folder.size()), std::string::npos) << path;
  }
  // Names that differ only in replaced characters stay different, and long ones become short.
  EXPECT_NE(path_of("TORCHELASTIC_RUN_ID=a@1"), path_of("TORCHELASTIC_RUN_ID=a#1"));
  const std::string long_id = "TORCHELASTIC_RUN_ID=" + std::string(5000, 'x');
  EXPECT_LT(path_of(long_id.c_str()).size(), 120u);
  EXPECT_NE(path_of(long_id.c_str()), path_of((long_id + "x").c_str()));
}

TEST(RendezvousTest, SeveralHostsNeedAPlaceToBeNamed) {
  const Case kCases[] = {
      {kTorch, {}},
      {kTorch, {"LOCAL_WORLD_SIZE=4"}},  // one host, but the job has no name
      {kTorch, {"LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a"}},
      {kOpenMpi, {"OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1"}},
      {kPmi, {"MPI_LOCALNRANKS=1"}},
      {kSlurm, {"SLURM_NNODES=2", "SLURM_JOB_ID=1"}},
  };
  for (const Case& c : kCases) {
    const std::string error = RendezvousOf(c);
    EXPECT_THAT(error, HasSubstr("4 ranks have no place to meet: set ONEBIT_RENDEZVOUS"));
    EXPECT_THAT(error, HasSubstr("host:port"));
    EXPECT_THAT(error, HasSubstr("MASTER_ADDR and MASTER_PORT"));
  }
}

TEST(RendezvousTest, RefusesABadNumberOfLocalRanks) {
  EXPECT_THAT(RendezvousOf({kTorch, {"LOCAL_WORLD_SIZE=5", "TORCHELASTIC_RUN_ID=a"}}),
              HasSubstr("LOCAL_WORLD_SIZE: \"5\" is not a whole number from 1 to 4"));
}

TEST(RendezvousTest, TheMoreExplicitPlaceWins) {
  const Variables all = {"ONEBIT_RENDEZVOUS=own:1", "MASTER_ADDR=m",  "MASTER_PORT=2",
                         "SLURM_JOB_NODELIST=s",    "SLURM_JOB_ID=3", "SLURM_NNODES=1"};
  EXPECT_EQ(RendezvousOf({kSlurm, all}), "own 1 ONEBIT_RENDEZVOUS");
  EXPECT_EQ(RendezvousOf({kSlurm, {all.begin() + 1, all.end()}}),
            "m 3 MASTER_ADDR and MASTER_PORT");
  EXPECT_THAT(RendezvousOf({kSlurm, {all.begin() + 3, all.end()}}), HasSubstr("s 20111 SLURM_JOB"));
  EXPECT_THAT(RendezvousOf({kSlurm, {all.begin() + 4, all.end()}}), HasSubstr("/slurm-3-0 "));
}

}  // namespace
}  // namespace onebit
