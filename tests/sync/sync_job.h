// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator with one tensor and its sync.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {

using Blob = std::vector<std::byte>;

constexpr uint32_t kSyncSeed = 7601;
constexpr size_t kCount = 500;

inline onebitSyncSchedule_t Every(int64_t interval) {
  onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
  schedule.baseInterval = interval;
  schedule.maxInterval = interval;
  return schedule;
}

// A rank's state after a step.
struct StepResult {
  Outcome outcome;
  int did_sync = -1;
  float weight_sum = -1;
  std::vector<float> out = std::vector<float>(kCount, 77.0f);
};

inline onebitCompressorConfig_t SyncConfig() {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.block = 64;
  return config;
}

class SyncJob {
 public:
  explicit SyncJob(int ranks, const onebitSyncSchedule_t& schedule, int first_step = 0,
                   const Transport* transport = nullptr, bool is_one_exchange = false,
                   const onebitCompressorConfig_t& config = SyncConfig())
      : step_(first_step) {
    if (transport == nullptr) transport = Transport::Get("local").value();
    auto group = Comm::CreateLocalGroup(
        *transport, ranks,
        {.timeout_ms = 20'000, .one_exchange_elements = is_one_exchange ? SIZE_MAX : size_t{0}});
    for (auto& comm : group.value()) comms_.emplace_back(new onebitComm_s(std::move(comm)));
    for (const UniqueComm& comm : comms_) {
      compressors_.push_back(NewCompressor(comm.get(), kCount, onebitFloat32, config));
      onebitSync_t sync = nullptr;
      EXPECT_EQ(onebitSyncCreate(&sync, compressors_.back().get(), &schedule), onebitSuccess);
      syncs_.emplace_back(sync);
    }
  }

  int ranks() const { return static_cast<int>(syncs_.size()); }
  onebitSync_t sync(int rank) const { return syncs_[static_cast<size_t>(rank)].get(); }
  onebitComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)].get(); }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }

  static std::vector<float> InputOf(int step, int rank) {
    std::mt19937 random(kSyncSeed + static_cast<uint32_t>(100 * step + rank));
    std::normal_distribution<float> normal;
    std::vector<float> values(kCount);
    for (float& value : values) value = normal(random);
    return values;
  }

  // Makes the next step on every rank, with weights and inputs as `change` sets them.
  using Change = std::function<void(int rank, std::vector<float>& x, float& weight)>;
  std::vector<StepResult> Step(const Change& change = {}) {
    std::vector<StepResult> results(syncs_.size());
    const int number = step_++;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        StepResult& mine = results[static_cast<size_t>(rank)];
        std::vector<float> x = InputOf(number, rank);
        float weight = 0.125f * static_cast<float>(1 + number % 3);
        if (change) change(rank, x, weight);
        mine.outcome = CallHere([&] {
          return onebitSyncStep(sync(rank), x.data(), weight, mine.out.data(), &mine.did_sync,
                                &mine.weight_sum, nullptr);
        });
      });
    }
    threads.clear();
    return results;
  }
  // Expects success and equal results on every rank.
  StepResult StepSucceeds(const Change& change = {}) {
    auto results = Step(change);
    for (const StepResult& result : results) {
      EXPECT_EQ(result.outcome.result, onebitSuccess) << result.outcome.text;
      EXPECT_EQ(result.did_sync, results[0].did_sync);
      EXPECT_EQ(result.weight_sum, results[0].weight_sum);
      EXPECT_EQ(std::memcmp(result.out.data(), results[0].out.data(), kCount * sizeof(float)), 0);
    }
    return results[0];
  }
  void RepeatsStep() { --step_; }

  std::vector<Blob> Export(onebitStateKind_t kind = onebitStateRank) const {
    std::vector<Blob> states(syncs_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        Blob& state = states[static_cast<size_t>(rank)];
        size_t bytes = 0;
        EXPECT_EQ(onebitSyncExport(sync(rank), kind, nullptr, &bytes), onebitSuccess);
        state.resize(bytes);
        EXPECT_EQ(onebitSyncExport(sync(rank), kind, state.data(), &bytes), onebitSuccess)
            << onebitGetLastError(nullptr);
      });
    }
    threads.clear();
    return states;
  }
  // Frees the compressors for other calls.
  void DestroySyncs() {
    for (UniqueSync& sync : syncs_) sync.reset();
  }
  // The debt of the results so far: residuals, without accumulated values.
  std::vector<double> Pending() const {
    std::vector<double> pending(kCount);
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto worker = WorkerResidualOf(compressor(rank));
      const auto server = ServerResidualOf(compressor(rank));
      const size_t begin = compressor(rank)->planned.plan->served.begin;
      for (size_t i = 0; i < kCount; ++i) pending[i] += double{worker[i]} / ranks();
      for (size_t i = 0; i < server.size(); ++i) pending[begin + i] += server[i];
    }
    return pending;
  }
  Outcome Import(int rank, const Blob& state) const {
    return CallHere([&] { return onebitSyncImport(sync(rank), state.data(), state.size()); });
  }

  // Migrates all ranks to a communicator of the same ranks.
  void Rebind() {
    std::vector<UniqueComm> made(comms_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        onebitComm_t handle = nullptr;
        ASSERT_EQ(onebitCommShrink(comm(rank), nullptr, 0, &handle, nullptr, ONEBIT_SHRINK_DEFAULT),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        made[static_cast<size_t>(rank)].reset(handle);
        int source = -1;
        ASSERT_EQ(onebitCompressorRebind(compressor(rank), handle, &source), onebitSuccess)
            << onebitGetLastError(nullptr);
      });
    }
    threads.clear();
    comms_ = std::move(made);
  }

 private:
  std::vector<UniqueCompressor> compressors_;  // outlive the syncs
  std::vector<UniqueComm> comms_;
  std::vector<UniqueSync> syncs_;
  int step_;
};

}  // namespace onebit::testing
