// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs bodies and calls on a thread per rank.
#include "tests/support/comm_group.h"

#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "transport/transport.h"

namespace onebit::testing {
namespace {

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().text());
  return std::move(result).value();
}

}  // namespace

CommGroup::CommGroup(int ranks, const CommOptions& options, const Transport* transport) {
  if (transport == nullptr) transport = ValueOrThrow(Transport::Get("local"));
  Adopt(ValueOrThrow(Comm::CreateLocalGroup(*transport, ranks, options)));
}

CommGroup::CommGroup(std::span<const CommOptions> options_by_rank) {
  const Transport* transport = ValueOrThrow(Transport::Get("local"));
  Adopt(ValueOrThrow(Comm::CreateLocalGroupUnchecked(*transport, options_by_rank)));
}

CommGroup::~CommGroup() = default;

void CommGroup::Adopt(std::vector<std::unique_ptr<Comm>> group) {
  for (auto& comm : group) comms_.emplace_back(new onebitComm_s(std::move(comm)));
}

onebitResult_t CommGroup::Destroy(int rank) {
  UniqueComm& comm = comms_[static_cast<size_t>(rank)];
  const onebitResult_t result = onebitCommDestroy(comm.get());
  if (result == onebitSuccess) static_cast<void>(comm.release());
  return result;
}

void CommGroup::Run(const std::function<void(int rank)>& body) {
  std::mutex mutex;
  std::exception_ptr first_exception;  // guarded by mutex
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
          if (!::testing::Test::HasFatalFailure()) return;
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first_exception) first_exception = std::current_exception();
        }
        onebitCommAbort(comm(rank));
      });
    }
  }
  if (first_exception) std::rethrow_exception(first_exception);
}

std::vector<Outcome> CommGroup::Call(const std::function<onebitResult_t(int rank)>& call) {
  std::vector<Outcome> outcomes(comms_.size());
  Run([&](int rank) {
    outcomes[static_cast<size_t>(rank)] = CallHere([&] { return call(rank); });
  });
  return outcomes;
}

std::vector<CommOptions> OnHosts(std::string_view letters, const CommOptions& options) {
  std::vector<CommOptions> by_rank(letters.size(), options);
  for (size_t rank = 0; rank < letters.size(); ++rank) by_rank[rank].host = letters[rank];
  return by_rank;
}

HostMap MapOfHosts(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) names.emplace_back(1, letter);
  return HostMap(names);
}

bool HasRunIntoDeadline(const Outcome& outcome) {
  return outcome.result == onebitTimeout ||
         outcome.text.find("no progress for") != std::string::npos;
}

Outcome CallHere(const std::function<onebitResult_t()>& call) {
  Outcome outcome{.result = call()};
  if (outcome.result != onebitSuccess) outcome.text = onebitGetLastError(nullptr);
  return outcome;
}

UniqueCompressor NewCompressor(onebitComm_t comm, size_t count, onebitDataType_t type,
                               const onebitCompressorConfig_t& config) {
  UniqueCompressor compressor;
  const onebitResult_t result = MakeCompressor(compressor, comm, count, type, &config);
  if (result != onebitSuccess) throw std::runtime_error(Explain(result));
  return compressor;
}

onebitCommStats_t StatsOf(onebitComm_t comm) {
  onebitCommStats_t stats = {.size = sizeof(stats)};
  EXPECT_EQ(onebitCommGetStats(comm, &stats), onebitSuccess);
  return stats;
}

onebitCompressorStats_t StatsOf(onebitCompressor_t compressor) {
  onebitCompressorStats_t stats = {.size = sizeof(stats)};
  EXPECT_EQ(onebitCompressorGetStats(compressor, &stats), onebitSuccess);
  return stats;
}

HostPlace PlaceOf(onebitComm_t comm) {
  const onebitCommStats_t stats = StatsOf(comm);
  return {stats.hosts, stats.host, stats.host_ranks};
}

}  // namespace onebit::testing
