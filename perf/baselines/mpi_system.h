// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce of whatever MPI this is compiled for.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "perf/baselines/system.h"

namespace onebit::perf {

// Of Open MPI's launcher and MPICH's.
inline constexpr std::array<const char*, 2> kMpiRankVariables = {"OMPI_COMM_WORLD_RANK",
                                                                 "PMI_RANK"};

// One at a time: MPI starts once in a process. A call that fails ends the job, as is MPI's default.
// Whoever fails otherwise calls Abort, or the others wait for this rank.
class MpiSystem : public System {
 public:
  // Throws ToolError when the launcher was that of another MPI: every process would be rank 0 of 1.
  MpiSystem();
  ~MpiSystem() override;
  MpiSystem(const MpiSystem&) = delete;
  MpiSystem& operator=(const MpiSystem&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string version() const override;
  std::string_view transport() const override;
  size_t max_count() const override;

  void AllReduce(const float* send, float* recv, size_t count) override;
  void Finish(int status) override;
  void Abort(int status) override;
  void Barrier() override;
  void AllGather(const void* mine, void* all, size_t bytes) override;

  // Each rank sends `bytes` to each, by rank.
  void AllToAll(const void* send, void* recv, size_t bytes);

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace onebit::perf
