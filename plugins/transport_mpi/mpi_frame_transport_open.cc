// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses and makes a communicator of them.
#include <algorithm>
#include <new>
#include <string>

#include "plugins/transport_mpi/launcher.h"
#include "plugins/transport_mpi/mpi_create_comm.h"
#include "plugins/transport_mpi/mpi_frame_transport.h"
#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {
namespace {

// Tags of MPI_Comm_create_group, so that two threads may create two communicators at a time.
// Smaller than MPI_TAG_UB of any MPI.
constexpr uint64_t kTagMask = 0x7fff;

}  // namespace

onebitResult_t MpiFrameTransport::GetAddress(void* address, size_t* bytes) {
  const MpiProcess& process = MpiProcess::Get();
  const Address mine{.head = HeadWith(context_->options(), context_->machine()),
                     .job = IdentityOfThisJob(),
                     .library = process.library(),
                     .world_rank = static_cast<uint32_t>(process.world_rank()),
                     .world_size = static_cast<uint32_t>(process.world_size()),
                     .has_group = group_ == nullptr ? 0u : 1u,
                     .unused = 0};
  WriteAddress(mine, address);
  *bytes = sizeof mine;
  return onebitSuccess;
}

onebitResult_t MpiFrameTransport::Connect(const void* const* addresses, const size_t* address_bytes,
                                          uint64_t timeout_ms) {
  MpiProcess& process = MpiProcess::Get();
  process.PollParked();
  std::vector<Address> all;
  onebitResult_t result = ReadAddresses(addresses, address_bytes, &all);
  if (result == onebitSuccess) result = CheckRanks(all);
  MPI_Comm comm = MPI_COMM_NULL;
  if (result == onebitSuccess) result = MakeComm(all, timeout_ms, &comm);
  if (result != onebitSuccess) return result;
  try {
    channel_ = std::make_unique<Channel>(comm, Channel::ShapeOf(nranks_, context_->options()));
  } catch (const std::bad_alloc&) {
    process.SetBroken();
    throw;
  }
  process.AddChannel();
  // Started before anything else: a channel that listens can be ended, whatever fails later.
  if (const int code = channel_->Start(); code != MPI_SUCCESS) {
    context_->Warn("rank %d: MPI_Irecv failed: %s", rank_, ErrorText(code).c_str());
    return onebitSystemError;
  }
  for (int rank = 0; rank < nranks_; ++rank) {
    const Address& address = all[static_cast<size_t>(rank)];
    plugin::Link& link = *channel_->link(rank);
    link.isHere = address.head.machine == context_->machine() ? 1 : 0;
    link.isPaced = link.isHere == 0 ? 1 : 0;
    link.SetHost(address.head.host_name);
    link.SetRoute(kMpiName);
  }
  if (context_->options().native_dense != 0) channel_->native().Reserve();
  return onebitSuccess;
}

onebitResult_t MpiFrameTransport::ReadAddresses(const void* const* addresses,
                                                const size_t* address_bytes,
                                                std::vector<Address>* all) const {
  const plugin::AddressHead own = HeadWith(context_->options(), context_->machine());
  for (int rank = 0; rank < nranks_; ++rank) {
    Address address;
    const char* problem = ReadAddress(addresses[rank], address_bytes[rank], &address);
    const onebitResult_t result = plugin::CheckAddress(
        *context_, own,
        {.rank = rank, .bytes = address_bytes[rank], .problem = problem, .head = address.head});
    if (result != onebitSuccess) return result;
    all->push_back(address);
  }
  return onebitSuccess;
}

// Checks that these are different processes that one MPI can join.
onebitResult_t MpiFrameTransport::CheckRanks(const std::vector<Address>& all) const {
  const Address& mine = all[static_cast<size_t>(rank_)];
  std::vector<int> rank_of(mine.world_size, -1);
  for (const Address& other : all) {
    const int rank = static_cast<int>(other.head.rank);
    if ((other.has_group != 0) != (mine.has_group != 0)) {
      context_->Warn("rank %d and rank %d come from different calls: one has an MPI_Comm", rank,
                     rank_);
      return onebitInvalidUsage;
    }
    if (mine.has_group != 0) continue;  // MPI has already joined them
    if (other.library != mine.library) {
      context_->Warn("rank %d on %s uses a different MPI from rank %d, which has %s", rank,
                     other.head.host_name, rank_, kMpiName);
      return onebitInvalidUsage;
    }
    if (other.job != mine.job || other.world_size != mine.world_size ||
        other.world_rank >= mine.world_size) {
      context_->Warn("rank %d on %s and rank %d belong to different MPI jobs", rank,
                     other.head.host_name, rank_);
      return onebitInvalidUsage;
    }
    if (const int before = std::exchange(rank_of[other.world_rank], rank); before >= 0) {
      context_->Warn("rank %d and rank %d are the same process, rank %u of MPI_COMM_WORLD", before,
                     rank, other.world_rank);
      return onebitInvalidUsage;
    }
  }
  return onebitSuccess;
}

onebitResult_t MpiFrameTransport::MakeComm(const std::vector<Address>& all, uint64_t timeout_ms,
                                           MPI_Comm* comm) {
  if (group_ == nullptr) {
    std::vector<int> world_ranks;
    for (const Address& address : all) world_ranks.push_back(static_cast<int>(address.world_rank));
    return CreateComm(
        *context_, std::move(world_ranks), static_cast<int>(comm_id_ & kTagMask), timeout_ms,
        [this] { return is_aborted(); }, comm);
  }
  if (group_->comm == MPI_COMM_NULL || group_->ranks != nranks_ || group_->rank != rank_) {
    context_->Warn("rank %d of %d: the group has rank %d of %d, or was used already", rank_,
                   nranks_, group_->rank, group_->ranks);
    return onebitInvalidUsage;
  }
  *comm = std::exchange(group_->comm, MPI_COMM_NULL);
  return onebitSuccess;
}

}  // namespace onebit::mpi
