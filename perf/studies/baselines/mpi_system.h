// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce of the MPI that this is compiled for.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "perf/studies/baselines/system.h"

namespace onebit::perf {

// Variables of the launchers of Open MPI and MPICH.
inline constexpr std::array<const char*, 2> kMpiRankVariables = {"OMPI_COMM_WORLD_RANK",
                                                                 "PMI_RANK"};

// At most one per process, as MPI starts once. A call that fails ends the job, as is MPI's default.
// After any other failure call Abort, or the other ranks wait forever.
class MpiSystem : public System {
 public:
  // Throws ToolError if the launcher was that of another MPI: every process would be rank 0 of 1.
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
  void End(int status) override;
  void Abort(int status) override;
  void Barrier() override;
  void Broadcast(std::span<std::byte> bytes, int root) override;

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace onebit::perf
