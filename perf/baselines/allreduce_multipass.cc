// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sweep of a compressed allreduce in whole-tensor passes over Open MPI, as frameworks do it.
#include <memory>
#include <optional>
#include <string>

#include "perf/baselines/mpi_system.h"
#include "perf/baselines/multi_pass.h"
#include "perf/baselines/multi_pass_model.h"
#include "perf/baselines/sweep.h"

namespace onebit::perf {
namespace {

class MpiExchange : public Exchange {
 public:
  explicit MpiExchange(MpiSystem& mpi) : mpi_(mpi) {}
  int rank() const override { return mpi_.rank(); }
  int ranks() const override { return mpi_.ranks(); }
  void AllToAll(const void* send, void* recv, size_t bytes) override {
    mpi_.AllToAll(send, recv, bytes);
  }
  void AllGather(const void* mine, void* all, size_t bytes) override {
    mpi_.AllGather(mine, all, bytes);
  }

 private:
  MpiSystem& mpi_;
};

class MultiPassSystem : public System {
 public:
  int rank() const override { return mpi_.rank(); }
  int ranks() const override { return mpi_.ranks(); }
  std::string version() const override {
    std::string text = "compressed allreduce in whole-tensor passes over ";
    text.append(mpi_.version());
    return text;
  }
  std::string_view transport() const override { return mpi_.transport(); }
  std::string_view mode() const override { return "multipass"; }
  bool is_dense() const override { return false; }
  size_t max_count() const override { return mpi_.max_count(); }

  void Prepare(size_t count) override {
    if (allreduce_ && count == prepared_count_) {
      allreduce_->Reset();
      return;
    }
    allreduce_.reset();  // its memory first
    allreduce_.emplace(exchange_, count);
    prepared_count_ = count;
  }
  void AllReduce(const float* send, float* recv, size_t /*count*/) override {
    allreduce_->Call(send, recv);
  }
  std::unique_ptr<Expectation> Expect(size_t count) const override {
    return std::make_unique<MultiPassModel>(count, ranks());
  }

  void Finish(int status) override { mpi_.Finish(status); }
  void Abort(int status) override { mpi_.Abort(status); }
  void Barrier() override { mpi_.Barrier(); }
  void AllGather(const void* mine, void* all, size_t bytes) override {
    mpi_.AllGather(mine, all, bytes);
  }

 private:
  MpiSystem mpi_;
  MpiExchange exchange_{mpi_};
  std::optional<MultiPassAllReduce> allreduce_;  // of the current row
  size_t prepared_count_ = 0;
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
