// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/state/state_job.h"

#include <cmath>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "api/handles.h"

namespace onebit::testing {
namespace {

constexpr uint32_t kSeed = 7501;

std::vector<float> InputOf(size_t count, int call, size_t rank) {
  std::mt19937 random(kSeed + 100 * static_cast<uint32_t>(call) + static_cast<uint32_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const StateSubject& subject) {
  return out << subject.name;
}

StateJob::StateJob(int ranks, const StateSubject& subject, int first_call,
                   const Transport* transport, uint64_t timeout_ms)
    : subject_(subject), calls_(first_call) {
  if (transport == nullptr) transport = Transport::Get("local").value();
  auto group = Comm::CreateLocalGroup(
      *transport, ranks,
      {.timeout_ms = timeout_ms,
       .one_exchange_elements = subject.is_one_exchange ? SIZE_MAX : size_t{0},
       .regroup_timeout_ms = subject.regroup_timeout_ms});
  for (auto& comm : group.value()) comms_.emplace_back(new onebitComm_s(std::move(comm)));
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = subject.mode;
  config.block = subject.block;
  config.codec = subject.codec;
  config.hops = subject.hops;
  config.residualType = subject.residual_type;
  config.transactional = subject.is_transactional ? 1 : 0;
  config.serverResidual = subject.has_server_residual ? 1 : 0;
  config.chunkAlignment = subject.chunk_alignment;
  for (const UniqueComm& comm : comms_) {
    compressors_.push_back(NewCompressor(comm.get(), subject.count, onebitFloat32, config));
  }
}

std::vector<Pending> StateJob::pending() const {
  std::vector<Pending> all(subject_.count);
  const auto ranks = static_cast<double>(compressors_.size());
  const double unit = subject_.op == onebitSum ? ranks : 1;
  const auto add = [&](size_t i, double value) {
    all[i].sum += unit * value;
    all[i].magnitude += unit * std::abs(value);
  };
  for (const UniqueCompressor& compressor : compressors_) {
    const auto worker = WorkerResidualOf(compressor.get());
    for (size_t i = 0; i < worker.size(); ++i) add(i, double{worker[i]} / ranks);
    const bool is_replica = compressor->planned.plan->key.is_one_exchange;
    if (is_replica && compressor != compressors_[0]) continue;
    const size_t begin = compressor->planned.plan->served.begin;
    const auto server = ServerResidualOf(compressor.get());
    // Servers of low-bit codes and sparse packets keep units of the result, others those of the
    // mean.
    const double server_unit = subject_.codec == onebitCodecSign ? 1 : 1 / unit;
    for (size_t i = 0; i < server.size(); ++i) add(begin + i, server_unit * server[i]);
  }
  return all;
}

std::vector<Outcome> StateJob::Each(const std::function<onebitResult_t(int rank)>& call) const {
  std::vector<Outcome> outcomes(compressors_.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { outcomes[rank] = CallHere([&] { return call(static_cast<int>(rank)); }); });
  }
  threads.clear();
  return outcomes;
}

std::vector<Outcome> StateJob::Call() {
  outputs_.assign(compressors_.size(), std::vector<float>(subject_.count));
  const int number = calls_++;
  return Each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const std::vector<float> input = InputOf(subject_.count, number, r);
    return onebitAllReduce(input.data(), outputs_[r].data(), subject_.count, onebitFloat32,
                           subject_.op, compressor(rank), comms_[r].get(), nullptr);
  });
}

void StateJob::CallsSucceed(int calls) {
  for (int call = 0; call < calls; ++call) {
    for (const Outcome& outcome : Call()) ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
    for (const auto& output : outputs_) ASSERT_EQ(output, outputs_[0]);
  }
}

std::vector<Outcome> StateJob::ExportInto(onebitStateKind_t kind, std::vector<Blob>* states) const {
  states->assign(compressors_.size(), {});
  return Each([&](int rank) {
    size_t bytes = 0;
    onebitResult_t result = onebitCompressorExport(compressor(rank), kind, nullptr, &bytes);
    if (result != onebitSuccess) return result;
    Blob& state = (*states)[static_cast<size_t>(rank)];
    state.assign(bytes, std::byte{0xee});
    result = onebitCompressorExport(compressor(rank), kind, state.data(), &bytes);
    EXPECT_EQ(bytes, state.size());
    return result;
  });
}

std::vector<Outcome> StateJob::TryExport(onebitStateKind_t kind) const {
  std::vector<Blob> states;
  return ExportInto(kind, &states);
}

std::vector<Blob> StateJob::Export(onebitStateKind_t kind) const {
  std::vector<Blob> states;
  for (const Outcome& outcome : ExportInto(kind, &states)) {
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  return states;
}

void StateJob::Import(const std::vector<Blob>& states) const {
  ASSERT_EQ(states.size(), compressors_.size());
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const Outcome outcome = ImportHere(compressors_[rank].get(), states[rank]);
    ASSERT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
}

Outcome ImportHere(onebitCompressor_t compressor, const Blob& state) {
  return CallHere([&] { return onebitCompressorImport(compressor, state.data(), state.size()); });
}

}  // namespace onebit::testing
