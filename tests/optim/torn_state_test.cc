// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer that a failed rebind left half migrated: it must not be used or saved until a
// checkpoint is loaded.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"
#include "tests/support/deadlines.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 3;
constexpr uint64_t kSavedAt = 7, kLastCall = 11;

OptimizerSubject Subject() { return SubjectOf("adam", onebitAlgorithmOneBitAdam); }

// One step of a training that a lost message interrupts, followed by a rebind that fails as well.
class TornTraining {
 public:
  explicit TornTraining(const Fault& fault_of_rebind)
      : group_(kRanks, {.timeout_ms = ShortTimeoutMs(), .one_exchange_elements = 0},
               &transport_.transport()) {
    group_.Run([&](int rank) {
      ranks_[rank] = std::make_unique<OptimizerRank>(Subject(), group_.comm(rank), rank);
      ranks_[rank]->StepUntil(1, kSavedAt);
      states_[rank] = ranks_[rank]->Export();
      ranks_[rank]->StepUntil(kSavedAt + 1, kSavedAt + 1);
    });
    // A step has two calls, for the dense segment and for the others, with 4 messages of a rank
    // each.
    Arm({.kind = Fault::Kind::kDrop, .rank = 1, .message = 7});
    group_.Call([&](int rank) { return ranks_[rank]->TryStep(kSavedAt + 2, 0.05, nullptr); });
    Arm({});
    Shrink([&](int rank) { return group_.comm(rank); }, &first_);
    Arm(fault_of_rebind);
    Rebind(first_);
    Arm({});
  }

  // Ranks that have neither their own state nor that of another rank.
  std::vector<int> TornRanks() const {
    std::vector<int> torn;
    for (int rank = 0; rank < kRanks; ++rank) {
      size_t bytes = 1 << 16;
      Blob room(bytes);
      const auto result =
          onebitOptimizerExport(ranks_[rank]->get(), onebitStateRank, room.data(), &bytes);
      if (result == onebitInvalidUsage) torn.push_back(rank);
    }
    return torn;
  }

  // Trains from the checkpoint to the end; returns rank 0's state.
  Blob GoOnFromCheckpoint() {
    for (int rank = 0; rank < kRanks; ++rank) ranks_[rank]->Import(states_[rank]);
    EXPECT_TRUE(TornRanks().empty());
    Shrink([&](int rank) { return first_[static_cast<size_t>(rank)].get(); }, &second_);
    for (const Outcome& outcome : Rebind(second_)) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    group_.Run([&](int rank) { ranks_[rank]->StepUntil(kSavedAt + 1, kLastCall); });
    return ranks_[0]->Export();
  }

 private:
  using Comms = std::vector<UniqueComm>;

  void Arm(const Fault& fault) { transport_.Arm(fault); }
  template <typename CommOf>
  void Shrink(CommOf comm_of, Comms* made) {
    made->resize(kRanks);
    for (const Outcome& outcome : group_.Call([&](int rank) {
           onebitComm_t comm = nullptr;
           const onebitResult_t result =
               onebitCommShrink(comm_of(rank), nullptr, 0, &comm, nullptr, ONEBIT_SHRINK_DEFAULT);
           (*made)[static_cast<size_t>(rank)].reset(comm);
           return result;
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
  }
  std::vector<Outcome> Rebind(const Comms& comms) {
    return group_.Call([&](int rank) {
      int source = -1;
      return onebitOptimizerRebind(ranks_[rank]->get(), comms[static_cast<size_t>(rank)].get(),
                                   &source);
    });
  }

  FaultyTransport transport_;
  std::unique_ptr<OptimizerRank> ranks_[kRanks];
  Blob states_[kRanks];
  Comms first_, second_;
  CommGroup group_;
};

TEST(TornOptimizerTest, GoesOnFromACheckpoint) {
  Blob expected;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    OptimizerRank optimizer(Subject(), group.comm(rank), rank);
    optimizer.StepUntil(1, kLastCall);
    if (rank == 0) expected = optimizer.Export();
  });
  int torn_trainings = 0;
  // Ranks compare their steps first, with 4 messages each.
  for (uint64_t message = 4; message < 16 && torn_trainings < 2; ++message) {
    for (int sender = 0; sender < kRanks; ++sender) {
      SCOPED_TRACE(::testing::Message() << "message " << message << " of rank " << sender);
      TornTraining training(
          {.kind = Fault::Kind::kFlipHeader, .rank = sender, .message = message, .bit = 100});
      if (training.TornRanks().empty()) continue;
      ++torn_trainings;
      EXPECT_EQ(training.GoOnFromCheckpoint(), expected);
    }
  }
  EXPECT_GE(torn_trainings, 2);
}

}  // namespace
}  // namespace onebit::testing
