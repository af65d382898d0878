// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of a compressed allreduce in whole-tensor passes over Open MPI, as frameworks do it.
#include <memory>
#include <optional>
#include <string>

#include <mpi.h>

#include "perf/studies/baselines/baseline.h"
#include "perf/studies/baselines/mpi_system.h"
#include "perf/studies/baselines/multi_pass.h"
#include "perf/studies/baselines/multi_pass_model.h"

namespace onebit::perf {
namespace {

class MpiExchange : public Exchange {
 public:
  explicit MpiExchange(const MpiSystem& mpi) : mpi_(mpi) {}
  int rank() const override { return mpi_.rank(); }
  int ranks() const override { return mpi_.ranks(); }
  void AllToAll(const void* send, void* recv, size_t bytes) override {
    MPI_Alltoall(send, static_cast<int>(bytes), MPI_BYTE, recv, static_cast<int>(bytes), MPI_BYTE,
                 MPI_COMM_WORLD);
  }
  void AllGather(const void* mine, void* all, size_t bytes) override {
    MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE,
                  MPI_COMM_WORLD);
  }

 private:
  const MpiSystem& mpi_;
};

class MultiPassSystem : public MpiSystem {
 public:
  std::string version() const override {
    return "compressed allreduce in whole-tensor passes over " + MpiSystem::version();
  }
  std::string_view mode() const override { return "multipass"; }
  bool is_dense() const override { return false; }

  void Prepare(size_t count) override {
    allreduce_.reset();  // before the next one is allocated
    allreduce_.emplace(exchange_, count);
  }
  void Reset() override { allreduce_->Reset(); }
  void AllReduce(const float* send, float* recv, size_t /*count*/) override {
    allreduce_->Call(send, recv);
  }

  std::unique_ptr<Reference> MakeReference(const Case& row) const override {
    return std::make_unique<MultiPassModel>(row);
  }
  int checked_calls() const override { return 3; }  // residuals matter from the second on

 private:
  MpiExchange exchange_{*this};
  std::optional<MultiPassAllReduce> allreduce_;  // of the current row
};

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  return onebit::perf::RunBaseline(
      argc, argv,
      {.tool = ONEBIT_BASELINE_NAME,
       .description =
           "Time and check a compressed allreduce made of whole-tensor passes over Open MPI.",
       .check_help = "passes that check results against an element-wise model; 0: none",
       .rank_variables = onebit::perf::kMpiRankVariables,
       .add_flags = nullptr,
       .start = [] { return std::make_unique<onebit::perf::MultiPassSystem>(); }});
}
