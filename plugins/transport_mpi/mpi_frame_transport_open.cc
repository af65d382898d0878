// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses and makes a communicator of them.
#include <unistd.h>

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
  Address mine{.comm_id = comm_id_,
               .machine = context_->machine(),
               .job = IdentityOfThisJob(),
               .library = process.library(),
               .rank = static_cast<uint32_t>(rank_),
               .nranks = static_cast<uint32_t>(nranks_),
               .world_rank = static_cast<uint32_t>(process.world_rank()),
               .world_size = static_cast<uint32_t>(process.world_size()),
               .eager_bytes = static_cast<uint32_t>(context_->options().eager_bytes),
               .early_bytes = static_cast<uint32_t>(context_->options().early_bytes),
               .has_group = group_ == nullptr ? 0u : 1u};
  gethostname(mine.host_name, sizeof mine.host_name - 1);
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
    link.isHere = address.machine == context_->machine() ? 1 : 0;
    link.isPaced = link.isHere == 0 ? 1 : 0;
    link.SetHost(address.host_name);
    link.SetRoute(kMpiName);
  }
  if (context_->options().native_dense != 0) channel_->native().Reserve();
  return onebitSuccess;
}

onebitResult_t MpiFrameTransport::ReadAddresses(const void* const* addresses,
                                                const size_t* address_bytes,
                                                std::vector<Address>* all) const {
  const Options& options = context_->options();
  for (int rank = 0; rank < nranks_; ++rank) {
    Address address;
    if (const char* problem = ReadAddress(addresses[rank], address_bytes[rank], &address);
        problem != nullptr) {
      context_->Warn("rank %d: the address of rank %d (%zu bytes) is unusable: %s", rank_, rank,
                     address_bytes[rank], problem);
      return onebitInvalidArgument;
    }
    if (address.comm_id != comm_id_ || address.rank != static_cast<uint32_t>(rank) ||
        address.nranks != static_cast<uint32_t>(nranks_)) {
      context_->Warn(
          "rank %d: the address of rank %d belongs to rank %u of %u in communicator %llx", rank_,
          rank, address.rank, address.nranks, static_cast<unsigned long long>(address.comm_id));
      return onebitInvalidArgument;
    }
    if (address.eager_bytes != options.eager_bytes || address.early_bytes != options.early_bytes) {
      context_->Warn(
          "rank %d has ONEBIT_MPI_EAGER_BYTES=%zu and ONEBIT_MPI_EARLY_BYTES=%zu, "
          "rank %d on %s has %u and %u: they must be equal",
          rank_, options.eager_bytes, options.early_bytes, rank, address.host_name,
          address.eager_bytes, address.early_bytes);
      return onebitInvalidUsage;
    }
    all->push_back(address);
  }
  return onebitSuccess;
}

// Checks that these are different processes that one MPI can join.
onebitResult_t MpiFrameTransport::CheckRanks(const std::vector<Address>& all) const {
  const Address& mine = all[static_cast<size_t>(rank_)];
  std::vector<int> rank_of(mine.world_size, -1);
  for (const Address& other : all) {
    const int rank = static_cast<int>(other.rank);
    if ((other.has_group != 0) != (mine.has_group != 0)) {
      context_->Warn("rank %d and rank %d come from different calls: one has an MPI_Comm", rank,
                     rank_);
      return onebitInvalidUsage;
    }
    if (mine.has_group != 0) continue;  // MPI has already joined them
    if (other.library != mine.library) {
      context_->Warn("rank %d on %s runs another MPI than rank %d, which has %s", rank,
                     other.host_name, rank_, kMpiName);
      return onebitInvalidUsage;
    }
    if (other.job != mine.job || other.world_size != mine.world_size ||
        other.world_rank >= mine.world_size) {
      context_->Warn("rank %d on %s and rank %d were started by different jobs of MPI", rank,
                     other.host_name, rank_);
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
