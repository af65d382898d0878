// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A group of ranks in this process with options and a transport that the test chooses, accessible
// through handles of the C API. Tests that need only the defaults use run_ranks.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "onebit/onebit.h"
#include "onebit/onebit.hpp"

namespace onebit::testing {

// Options for calls that should succeed: two exchanges, and long time-outs because the machine may
// be busy.
inline const CommOptions kPatient{.timeout_ms = 20'000, .one_exchange_elements = 0};
// The same with one exchange for every compressed tensor.
inline const CommOptions kPatientOneExchange{.timeout_ms = 20'000,
                                             .one_exchange_elements = SIZE_MAX};
// The result of a call on one rank.
struct Outcome {
  onebitResult_t result = onebitSuccess;
  std::string text;  // onebitGetLastError of the thread that made the call; "" after success
};
// True if a deadline ended the call, here or on the rank that failed first.
bool HasRunIntoDeadline(const Outcome& outcome);

class CommGroup {
 public:
  // A null `transport` is `local` as the library starts it. The transport must outlive the group.
  explicit CommGroup(int ranks, const CommOptions& options = kPatient,
                     const Transport* transport = nullptr);
  // Lets ranks disagree about their options, which the library would refuse.
  explicit CommGroup(std::span<const CommOptions> options_by_rank);
  ~CommGroup();
  CommGroup(const CommGroup&) = delete;
  CommGroup& operator=(const CommGroup&) = delete;

  int ranks() const { return static_cast<int>(comms_.size()); }
  onebitComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)].get(); }
  // Returns the result of onebitCommDestroy; after success comm(rank) is null.
  onebitResult_t Destroy(int rank);

  // Calls `body(rank)` for every rank, each on its own thread, and joins them. A body that fails an
  // ASSERT or throws aborts its communicator, so that the others return.
  void Run(const std::function<void(int rank)>& body);
  // Makes one call per rank, each on its own thread.
  std::vector<Outcome> Call(const std::function<onebitResult_t(int rank)>& call);

 private:
  void Adopt(std::vector<std::unique_ptr<Comm>> group);

  std::vector<UniqueComm> comms_;
};

// Options of ranks on these hosts, one letter for each rank: "aab".
std::vector<CommOptions> OnHosts(std::string_view letters, const CommOptions& options);
HostMap MapOfHosts(std::string_view letters);

// Makes `call` on this thread.
Outcome CallHere(const std::function<onebitResult_t()>& call);

// Creates a compressor for `comm`; throws on an error.
UniqueCompressor NewCompressor(onebitComm_t comm, size_t count, onebitDataType_t type,
                               const onebitCompressorConfig_t& config);

onebitCommStats_t StatsOf(onebitComm_t comm);
onebitCompressorStats_t StatsOf(onebitCompressor_t compressor);

// The number of hosts, the number that a rank's own host has among them, and how many ranks share
// that host.
using HostPlace = std::array<uint64_t, 3>;
HostPlace PlaceOf(onebitComm_t comm);

}  // namespace onebit::testing
