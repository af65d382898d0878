// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rebinds compressors to a communicator of the remaining ranks: only residuals of lost ranks are
// lost, ranks that missed the last call catch up, and ranks that do not fit together report it.
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/handles.h"
#include "plan/algorithms.h"
#include "tests/collectives/fault_run.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/run_ranks.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSeed = 7301;

// The configuration of a tensor.
struct Subject {
  const char* name;
  size_t count = 1000;
  onebitMode_t mode = onebitModeEf;
  onebitRedOp_t op = onebitAvg;
  onebitDataType_t residual_type = onebitFloat32;
  bool is_transactional = true;
  std::optional<uint64_t> one_exchange_elements = 0;
  int block = 64;
  onebitCodec_t codec = onebitCodecSign;
  int hops = ONEBIT_UNDEF_INT;  // of sparse codecs
  uint64_t segment_elements = 262'144;
  uint64_t compute_threads = 0;
};

std::ostream& operator<<(std::ostream& out, const Subject& subject) { return out << subject.name; }

// The ranks of a communicator with one tensor.
class Job {
 public:
  Job(int ranks, const Subject& subject, const Transport* transport = nullptr,
      uint64_t timeout_ms = 20'000)
      : subject_(subject) {
    if (transport == nullptr) transport = Transport::Get("local").value();
    auto group = Comm::CreateLocalGroup(*transport, ranks,
                                        {.timeout_ms = timeout_ms,
                                         .one_exchange_elements = subject.one_exchange_elements,
                                         .segment_elements = subject.segment_elements,
                                         .compute_threads = subject.compute_threads});
    for (auto& comm : group.value()) comms_.emplace_back(new onebitComm_s(std::move(comm)));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = subject.mode;
    config.block = subject.block;
    config.codec = subject.codec;
    config.hops = subject.hops;
    config.residualType = subject.residual_type;
    config.transactional = subject.is_transactional ? 1 : 0;
    for (const UniqueComm& comm : comms_) {
      compressors_.push_back(NewCompressor(comm.get(), subject.count, onebitFloat32, config));
    }
  }

  int ranks() const { return static_cast<int>(comms_.size()); }
  onebitComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)].get(); }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }

  std::vector<Outcome> Each(const std::function<onebitResult_t(int rank)>& call) const {
    std::vector<Outcome> outcomes(comms_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        outcomes[static_cast<size_t>(rank)] = CallHere([&] { return call(rank); });
      });
    }
    threads.clear();
    return outcomes;
  }
  void EachSucceeds(const std::function<onebitResult_t(int rank)>& call) const {
    for (const Outcome& outcome : Each(call)) {
      ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
  }

  // Makes the next call with new inputs. Outputs must be equal on all ranks that succeed.
  std::vector<Outcome> Call() {
    ++calls_;
    inputs_.assign(comms_.size(), std::vector<float>(subject_.count));
    outputs_ = inputs_;
    for (size_t r = 0; r < inputs_.size(); ++r) {
      std::mt19937 random(kSeed + 100 * calls_ + static_cast<uint32_t>(r));
      std::normal_distribution<float> normal;
      for (float& value : inputs_[r]) value = normal(random);
    }
    return Each([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      return onebitAllReduce(inputs_[r].data(), outputs_[r].data(), subject_.count, onebitFloat32,
                             subject_.op, compressor(rank), comm(rank), nullptr);
    });
  }
  void CallsSucceed(int calls) {
    for (int call = 0; call < calls; ++call) {
      for (const Outcome& outcome : Call()) {
        ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
      }
      for (const auto& output : outputs_) ASSERT_EQ(output, outputs_[0]);
    }
  }

  // Excludes ranks and rebinds the compressors of the others. Destroys the former communicators
  // before or after that.
  void GoOnWithout(std::vector<int> excluded, bool destroys_first = false) {
    std::vector<UniqueComm> made;
    std::vector<UniqueCompressor> kept;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (std::ranges::count(excluded, rank) != 0) continue;
      made.emplace_back();
      kept.push_back(std::move(compressors_[static_cast<size_t>(rank)]));
    }
    size_t next = 0;
    std::vector<UniqueComm*> slot(comms_.size());
    for (int rank = 0; rank < ranks(); ++rank) {
      if (std::ranges::count(excluded, rank) == 0) slot[static_cast<size_t>(rank)] = &made[next++];
    }
    EachSucceeds([&](int rank) {
      UniqueComm* mine = slot[static_cast<size_t>(rank)];
      if (mine == nullptr) return onebitSuccess;
      onebitComm_t handle = nullptr;
      const onebitResult_t result =
          onebitCommShrink(comm(rank), excluded.data(), static_cast<int>(excluded.size()), &handle,
                           nullptr, ONEBIT_SHRINK_DEFAULT);
      mine->reset(handle);
      return result;
    });
    std::swap(comms_, made);  // `made` holds the former ones until the end
    compressors_ = std::move(kept);
    if (destroys_first) made.clear();
    sources_.assign(comms_.size(), -1);
    EachSucceeds([&](int rank) {
      return onebitCompressorRebind(compressor(rank), comm(rank),
                                    &sources_[static_cast<size_t>(rank)]);
    });
  }
  void DestroyComms() { comms_.clear(); }
  const std::vector<int>& sources() const { return sources_; }

  // The server residual of the whole tensor.
  std::vector<float> Server() const {
    std::vector<float> all;
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::vector<float> part = ServerResidualOf(compressor(rank));
      if (compressor(rank)->planned.plan->key.is_one_exchange) return part;
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  std::vector<std::vector<float>> Workers() const {
    std::vector<std::vector<float>> all;
    for (int rank = 0; rank < ranks(); ++rank) all.push_back(WorkerResidualOf(compressor(rank)));
    return all;
  }
  uint64_t Lost(int rank) const { return StatsOf(compressor(rank)).lost_elements; }

 private:
  const Subject subject_;
  std::vector<UniqueCompressor> compressors_;
  std::vector<UniqueComm> comms_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<int> sources_;
  uint32_t calls_ = 0;
};

const Subject kEf{.name = "Ef"};
const Subject kSum{.name = "Sum", .op = onebitSum};
const Subject kFp4{.name = "Fp4", .codec = onebitCodecFp4};
const Subject kInt8Sum{.name = "Int8Sum", .op = onebitSum, .codec = onebitCodecInt8};
const Subject kTopk{.name = "Topk", .block = 320, .codec = onebitCodecTopk, .hops = 2};
const Subject kRandkSum{
    .name = "RandkSum", .op = onebitSum, .block = 320, .codec = onebitCodecRandk, .hops = 2};
const Subject kTopkOneHop{.name = "TopkOneHop",
                          .one_exchange_elements = SIZE_MAX,
                          .block = 320,
                          .codec = onebitCodecTopk,
                          .hops = 1};
const Subject kBf16{.name = "Bf16", .residual_type = onebitBfloat16};
const Subject kTensorBlock{.name = "TensorBlock", .block = ONEBIT_BLOCK_TENSOR};
const Subject kSegments{.name = "Segments", .count = 3000, .segment_elements = 256};
const Subject kThreads{
    .name = "ComputeThreads", .count = 100'000, .segment_elements = 16'384, .compute_threads = 1};
const Subject kOneGeneration{.name = "OneGeneration", .is_transactional = false};
const Subject kSmall{.name = "FewerElementsThanRanks", .count = 3};
const Subject kEmpty{.name = "Empty", .count = 0};
const Subject kOneExchange{.name = "OneExchange", .one_exchange_elements = SIZE_MAX};
// Larger than one piece of the sum.
const Subject kLarge{.name = "Large", .count = (1 << 20) + 12'345};

class RebindTest : public ::testing::TestWithParam<Subject> {};

// The chunk of the server residual that a rank holds.
ElementRange ChunkOf(const Subject& subject, int ranks, int rank) {
  return Partition(subject.count, static_cast<size_t>(ranks), 64, 64, 0)
      .Chunk(static_cast<size_t>(rank));
}

TEST_P(RebindTest, OnlyThePartOfTheLostRankIsLost) {
  const Subject& subject = GetParam();
  const bool is_replicated = subject.one_exchange_elements != 0;
  for (const int lost : {0, 2}) {
    SCOPED_TRACE(::testing::Message() << "without rank " << lost);
    Job job(4, subject);
    job.CallsSucceed(3);
    auto workers = job.Workers();
    workers.erase(workers.begin() + lost);
    std::vector<float> server = job.Server();
    const ElementRange gone = ChunkOf(subject, 4, lost);
    for (size_t i = 0; i < server.size(); ++i) {
      if (!is_replicated && i >= gone.begin && i < gone.end()) server[i] = 0;
      // Servers of sums work on means where signs travel.
      if (subject.op == onebitSum && subject.codec == onebitCodecSign) server[i] *= 4.0f / 3.0f;
    }
    job.GoOnWithout({lost}, lost == 0);
    EXPECT_EQ(job.Workers(), workers);
    EXPECT_EQ(job.Server(), server);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(job.Lost(rank), is_replicated ? 0u : gone.count);
      EXPECT_EQ(StatsOf(job.compressor(rank)).epoch, 3u);
      EXPECT_EQ(StatsOf(job.compressor(rank)).is_detached, 0u);
    }
    EXPECT_EQ(job.sources(), (std::vector<int>{0, 0, 0}));
    job.CallsSucceed(2);
    job.GoOnWithout({1});
    job.CallsSucceed(1);
    EXPECT_EQ(StatsOf(job.compressor(0)).epoch, 6u);
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, RebindTest,
                         ::testing::Values(kEf, kSum, kBf16, kTensorBlock, kOneGeneration, kSmall,
                                           kEmpty, kOneExchange, kLarge, kFp4, kInt8Sum, kTopk,
                                           kRandkSum, kTopkOneHop),
                         [](const auto& info) { return info.param.name; });

// With as many ranks as before everything stays where it was, and results are those of a job that
// went on.
TEST(RebindSameRanksTest, ResultsAreThoseOfAJobThatWentOn) {
  for (const Subject& subject : {kEf, kSum, kOneExchange, kTopk, kTopkOneHop, kRandkSum}) {
    Job straight(3, subject);
    Job rebound(3, subject);
    straight.CallsSucceed(2);
    rebound.CallsSucceed(2);
    rebound.GoOnWithout({});
    straight.CallsSucceed(2);
    rebound.CallsSucceed(2);
    EXPECT_EQ(rebound.Workers(), straight.Workers());
    EXPECT_EQ(rebound.Server(), straight.Server());
  }
}

// With fewer ranks the selection may choose one exchange; then every rank has the whole server
// residual.
TEST(RebindSelectionTest, TwoExchangesCanBecomeOne) {
  Subject subject = kEf;
  subject.count = 6000;
  subject.one_exchange_elements = std::nullopt;
  Job job(5, subject);
  job.CallsSucceed(2);
  ASSERT_EQ(StatsOf(job.compressor(0)).exchanges, 2u);
  std::vector<float> server = job.Server();
  for (const int lost : {1, 3}) {
    const ElementRange gone = ChunkOf(subject, 5, lost);
    std::fill_n(server.begin() + static_cast<std::ptrdiff_t>(gone.begin), gone.count, 0.0f);
  }
  job.GoOnWithout({1, 3});
  ASSERT_EQ(StatsOf(job.compressor(0)).exchanges, 1u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ServerResidualOf(job.compressor(rank)), server);
  }
  job.CallsSucceed(2);
}

TEST(RebindSignTest, ModeWithoutResidualsGoesOver) {
  Subject subject = kEf;
  subject.mode = onebitModePlain;
  Job job(3, subject);
  job.CallsSucceed(1);
  job.GoOnWithout({0});
  job.CallsSucceed(1);
  EXPECT_EQ(StatsOf(job.compressor(0)).epoch, 2u);
}

TEST(RebindAloneTest, OneRankKeepsItsResiduals) {
  Job job(2, kEf);
  job.CallsSucceed(2);
  const auto workers = job.Workers();
  job.GoOnWithout({0});
  EXPECT_EQ(job.Workers()[0], workers[1]);
  job.CallsSucceed(1);  // one rank: copies
}

// After a call that only some ranks committed, all of them have its results.
TEST(RollForwardTest, RanksThatMissedTheLastCallCatchUp) {
  for (const Subject& subject : {kEf, kOneExchange, kTensorBlock, kSegments, kThreads}) {
    Job straight(3, subject);
    straight.CallsSucceed(2);
    const uint64_t messages = StatsOf(straight.comm(0)).messages_sent / 2;
    for (uint64_t message = 0; message < messages; message += 1 + messages / 16) {
      FaultyTransport transport;
      Job job(3, subject, &transport.transport());
      job.CallsSucceed(1);
      transport.Arm({.kind = Fault::Kind::kFlipHeader, .rank = 1, .message = message, .bit = 100});
      const std::vector<Outcome> outcomes = job.Call();
      transport.Arm({});
      int committed = 0;
      int newest = -1;
      for (int rank = 0; rank < 3; ++rank) {
        const bool has_committed = outcomes[static_cast<size_t>(rank)].result == onebitSuccess;
        committed += has_committed ? 1 : 0;
        if (has_committed && newest < 0) newest = rank;
      }
      job.GoOnWithout({});
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(StatsOf(job.compressor(rank)).epoch, committed == 0 ? 1u : 2u);
        EXPECT_EQ(job.sources()[static_cast<size_t>(rank)], committed == 0 ? 0 : newest);
        EXPECT_EQ(job.Lost(rank), 0u);
      }
      if (committed > 0) {
        EXPECT_EQ(job.Workers(), straight.Workers()) << subject << ", message " << message;
        EXPECT_EQ(job.Server(), straight.Server()) << subject << ", message " << message;
      }

      job.CallsSucceed(2);
    }
    // Loses the last message of a rank: all ranks but its receiver commit.
    FaultyTransport transport;
    Job job(3, subject, &transport.transport(), 400);
    job.CallsSucceed(1);
    transport.Arm({.kind = Fault::Kind::kDrop, .rank = 1, .message = messages - 1});
    job.Call();
    transport.Arm({});
    job.GoOnWithout({});
    EXPECT_EQ(job.Workers(), straight.Workers()) << subject;
    EXPECT_EQ(job.Server(), straight.Server()) << subject;
  }
}

// The commit of a rebind reached rank 0 and not rank 1. Then rank 2 died.
TEST(PreparedRebindTest, RankThatDidNotHearTheLastWordGoesOverNextTime) {
  for (const Subject& subject : {kEf, kSum}) {
    Job straight(3, subject);
    straight.CallsSucceed(2);
    Job job(3, subject);
    job.CallsSucceed(2);
    const PlannedCompressor& before = job.compressor(1)->planned;
    const uint32_t former_id = before.comm_id;
    const std::shared_ptr<const Plan> former_plan = before.plan;
    job.GoOnWithout({});
    // The state of a rank that missed the commit: everything prepared, nothing applied.
    PlannedCompressor& planned = job.compressor(1)->planned;
    PreparedRebind prepared{.comm_id = planned.comm_id, .plan = planned.plan};
    Compressor& state = planned.compressor;
    const auto server = ResidualsOf(job.compressor(1)).server;
    prepared.server = state.NewServerResidual(state.config().server_elements).value();
    std::memcpy(prepared.server.generations[0].data(), server.data(), server.size());
    prepared.epoch = state.epoch();
    prepared.commits_since_zero = state.commits_since_zero();
    prepared.op = state.op();
    state.ReplaceServer(state.NewServerResidual(state.config().server_elements).value());
    planned.prepared = std::move(prepared);
    planned.comm_id = former_id;
    planned.plan = former_plan;
    job.GoOnWithout({2});
    straight.GoOnWithout({2});
    EXPECT_EQ(job.Workers(), straight.Workers());
    EXPECT_EQ(job.Server(), straight.Server());
    job.CallsSucceed(2);
  }
}

// A rank that does not complete the rebind is no longer compatible with ranks that have.
TEST(PreparedRebindTest, EndsWithWhateverAnotherRebindCouldNotFollow) {
  Job job(2, kEf);
  job.CallsSucceed(1);
  const std::vector<std::byte> state = [&] {
    size_t bytes = 0;
    onebitCompressorExport(job.compressor(0), onebitStateRank, nullptr, &bytes);
    std::vector<std::byte> blob(bytes);
    EXPECT_EQ(onebitCompressorExport(job.compressor(0), onebitStateRank, blob.data(), &bytes),
              onebitSuccess);
    return blob;
  }();
  std::vector<std::vector<float>> values(2, std::vector<float>(kEf.count, 1.0f));
  const auto call = [&](int rank) {
    float* const mine = values[static_cast<size_t>(rank)].data();
    return onebitAllReduce(mine, mine, kEf.count, onebitFloat32, onebitAvg, job.compressor(rank),
                           job.comm(rank), nullptr);
  };
  const std::pair<const char*, std::function<onebitResult_t(int rank)>> ways[] = {
      {"a call", call},
      {"a call of a group",
       [&](int rank) {
         onebitGroupStart();
         call(rank);
         return onebitGroupEnd();
       }},
      {"a reset", [&](int rank) { return onebitCompressorReset(job.compressor(rank)); }},
      {"an import", [&](int rank) {
         return rank == 0 ? onebitCompressorImport(job.compressor(0), state.data(), state.size())
                          : onebitCompressorReset(job.compressor(1));
       }}};
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    for (int rank = 0; rank < 2; ++rank) job.compressor(rank)->planned.prepared.emplace();
    job.EachSucceeds(way);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_FALSE(job.compressor(rank)->planned.prepared.has_value()) << "rank " << rank;
    }
  }
}

// The ranks with the results of the last call are lost before they could pass them on.
TEST(RollForwardTest, ResultsThatAreLostAreNobodys) {
  FaultyTransport transport;
  Job job(3, kEf, &transport.transport(), 400);
  job.CallsSucceed(1);
  transport.Arm({.kind = Fault::Kind::kDrop, .rank = 1, .message = 3});
  job.Call();
  transport.Arm({});
  std::vector<int> newest;
  for (int rank = 0; rank < 3; ++rank) {
    if (StatsOf(job.compressor(rank)).epoch == 2) newest.push_back(rank);
  }
  ASSERT_EQ(newest.size(), 2u);
  job.GoOnWithout({});
  EXPECT_EQ(job.sources()[0], newest[0]);
  job.GoOnWithout({newest[0]});
  EXPECT_EQ(job.sources()[0], newest[1] - 1);
  job.GoOnWithout({newest[1] - 1});
  EXPECT_EQ(job.sources()[0], -1);
  EXPECT_EQ(StatsOf(job.compressor(0)).epoch, 2u);
}

TEST(RebindTwiceTest, RepeatedCallChangesNothing) {
  Job job(3, kEf);
  job.CallsSucceed(2);
  job.GoOnWithout({0});
  const auto workers = job.Workers();
  const auto server = job.Server();
  job.EachSucceeds([&](int rank) {
    int source = -1;
    const onebitResult_t result =
        onebitCompressorRebind(job.compressor(rank), job.comm(rank), &source);
    EXPECT_EQ(source, 0);
    return result;
  });
  EXPECT_EQ(job.Workers(), workers);
  EXPECT_EQ(job.Server(), server);
  job.CallsSucceed(1);
}

// Makes the compressors of two ranks differ by `spoil`; returns the outcome of a rebind on each.
std::vector<Outcome> RebindAfter(Job& job, const std::function<void(int rank)>& spoil) {
  std::vector<UniqueComm> made(static_cast<size_t>(job.ranks()));
  job.EachSucceeds([&](int rank) {
    onebitComm_t handle = nullptr;
    const onebitResult_t result = onebitCommSplit(job.comm(rank), 0, 0, &handle, nullptr);
    made[static_cast<size_t>(rank)].reset(handle);
    return result;
  });
  for (int rank = 0; rank < job.ranks(); ++rank) spoil(rank);
  auto outcomes = job.Each([&](int rank) {
    int source = -1;
    return onebitCompressorRebind(job.compressor(rank), made[static_cast<size_t>(rank)].get(),
                                  &source);
  });
  // The communicator is healthy, and so is the former one with its compressors.
  job.EachSucceeds(
      [&](int rank) { return onebitBarrier(made[static_cast<size_t>(rank)].get(), nullptr); });
  job.CallsSucceed(0);
  return outcomes;
}

TEST(RebindMismatchTest, OtherEpochsAreRefused) {
  Job job(3, kEf);
  job.CallsSucceed(2);
  const auto outcomes = RebindAfter(job, [&](int rank) {
    Compressor& state = job.compressor(rank)->planned.compressor;
    if (rank == 1) state.Resume(7, 7, state.op());
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 has committed 7 calls, rank 0 2"));
  }
}

// Only one call that some ranks have committed can be rolled forward. With two, one is lost.
TEST(RebindMismatchTest, TwoEpochsApartIsRefused) {
  for (const uint64_t ahead : {1, 2}) {
    Job job(3, kEf);
    job.CallsSucceed(2);
    const auto outcomes = RebindAfter(job, [&](int rank) {
      Compressor& state = job.compressor(rank)->planned.compressor;
      if (rank == 1) {
        state.Resume(2 + ahead, 3, state.op());
      } else {
        state.NoteFailed();  // they could roll forward by one
      }
    });
    for (const Outcome& outcome : outcomes) {
      if (ahead == 1) {
        EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
        continue;
      }
      EXPECT_EQ(outcome.result, onebitMismatch);
      EXPECT_THAT(outcome.text, HasSubstr("rank 1 has committed 4 calls, rank 0 2"));
    }
  }
}

TEST(RebindMismatchTest, ResetSinceTheFailedCallIsRefused) {
  FaultyTransport transport;
  Job job(3, kEf, &transport.transport(), 400);
  job.CallsSucceed(1);
  transport.Arm({.kind = Fault::Kind::kDrop, .rank = 1, .message = 3});
  job.Call();
  transport.Arm({});
  std::vector<UniqueComm> made(3);
  job.EachSucceeds([&](int rank) {
    onebitComm_t handle = nullptr;
    const onebitResult_t result =
        onebitCommShrink(job.comm(rank), nullptr, 0, &handle, nullptr, ONEBIT_SHRINK_DEFAULT);
    made[static_cast<size_t>(rank)].reset(handle);
    return result;
  });
  uint64_t epochs[3];
  for (int rank = 0; rank < 3; ++rank) epochs[rank] = StatsOf(job.compressor(rank)).epoch;
  const bool has_differed = epochs[0] != epochs[1] || epochs[1] != epochs[2];
  ASSERT_TRUE(has_differed);
  for (int rank = 0; rank < 3; ++rank) {
    if (epochs[rank] == 1) onebitCompressorReset(job.compressor(rank));
  }
  for (const Outcome& outcome : job.Each([&](int rank) {
         int source = -1;
         return onebitCompressorRebind(job.compressor(rank), made[static_cast<size_t>(rank)].get(),
                                       &source);
       })) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("residuals of different calls do not belong together"));
  }
}

TEST(RebindMismatchTest, ResetOfSomeIsRefused) {
  Job job(3, kEf);
  job.CallsSucceed(2);
  for (const Outcome& outcome : RebindAfter(job, [&](int rank) {
         if (rank == 1) onebitCompressorReset(job.compressor(1));
       })) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 was reset between different calls than rank 0"));
  }
}

TEST(RebindMismatchTest, OtherTensorIsRefused) {
  Job job(2, kEf);
  const auto outcomes = RebindAfter(job, [&](int rank) {
    const std::vector<uint8_t> mask(125, static_cast<uint8_t>(rank == 0 ? 0xff : 0x7f));
    onebitCompressorSetMask(job.compressor(rank), mask.data());
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("the mask of the compressor differs between ranks"));
  }
}

TEST(RebindMismatchTest, ResidualsOfAnotherCommunicatorAreRefused) {
  Job job(2, kEf);
  const auto outcomes = RebindAfter(job, [&](int rank) {
    if (rank == 1) job.compressor(1)->planned.comm_id ^= 1;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text, HasSubstr("not made for the same communicator"));
  }
}

TEST(RebindMismatchTest, ResidualsOfOneFormerRankAreNotForTwo) {
  Job job(2, kEf);
  const auto outcomes = RebindAfter(job, [&](int rank) {
    if (rank == 1) job.compressor(1)->planned.plan = job.compressor(0)->planned.plan;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_THAT(outcome.text,
                HasSubstr("ranks 0 and 1 both rebind the compressor of former rank 0"));
  }
}

TEST(RebindObstacleTest, TensorIdInUseIsToldOnAllRanks) {
  Job job(2, kEf);
  std::vector<UniqueComm> made(2);
  std::vector<UniqueCompressor> other(2);
  job.EachSucceeds([&](int rank) {
    onebitComm_t handle = nullptr;
    const onebitResult_t result = onebitCommSplit(job.comm(rank), 0, 0, &handle, nullptr);
    made[static_cast<size_t>(rank)].reset(handle);
    return result;
  });
  ASSERT_EQ(MakeCompressor(other[0], made[0].get(), 8, onebitFloat32), onebitSuccess);
  const auto outcomes = job.Each([&](int rank) {
    int source = -1;
    return onebitCompressorRebind(job.compressor(rank), made[static_cast<size_t>(rank)].get(),
                                  &source);
  });
  EXPECT_EQ(outcomes[0].result, onebitInvalidArgument);
  EXPECT_THAT(outcomes[0].text, HasSubstr("tensorId 0 is taken by another compressor"));
  EXPECT_EQ(outcomes[1].result, onebitRemoteError);
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 cannot rebind its compressor"));
  // Without the other compressor they can, and a new compressor gets another default id.
  other[0].reset();
  job.EachSucceeds([&](int rank) {
    int source = -1;
    return onebitCompressorRebind(job.compressor(rank), made[static_cast<size_t>(rank)].get(),
                                  &source);
  });
  ASSERT_EQ(MakeCompressor(other[0], made[0].get(), 8, onebitFloat32), onebitSuccess)
      << onebitGetLastError(nullptr);
}

TEST(RebindArgumentsTest, AreChecked) {
  Job job(1, kEf);
  int source = -1;
  EXPECT_EQ(onebitCompressorRebind(nullptr, job.comm(0), &source), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorRebind(job.compressor(0), nullptr, &source), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorRebind(job.compressor(0), job.comm(0), nullptr), onebitInvalidArgument);
  EXPECT_EQ(source, -1);
}

// Until it is rebound, a compressor without its communicator refuses calls and keeps its state.
TEST(DetachedTest, RefusesCallsAndKeepsItsResiduals) {
  Job job(2, kEf);
  job.CallsSucceed(1);
  const Residuals before = ResidualsOf(job.compressor(1));
  std::vector<UniqueComm> made(2);
  job.EachSucceeds([&](int rank) {
    onebitComm_t handle = nullptr;
    const onebitResult_t result = onebitCommSplit(job.comm(rank), 0, 0, &handle, nullptr);
    made[static_cast<size_t>(rank)].reset(handle);
    return result;
  });
  const auto call = [&] {
    std::vector<float> values(kEf.count);
    return onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                           job.compressor(1), made[1].get(), nullptr);
  };
  EXPECT_EQ(call(), onebitInvalidUsage);
  job.DestroyComms();
  EXPECT_EQ(call(), onebitDetached);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("onebitCompressorRebind"));
  EXPECT_EQ(StatsOf(job.compressor(1)).is_detached, 1u);
  EXPECT_EQ(ResidualsOf(job.compressor(1)), before);
}

}  // namespace
}  // namespace onebit::testing
