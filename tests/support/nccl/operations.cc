// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs operations, where peers meet.
#include "tests/support/nccl/operations.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tests/support/nccl/remote_clique.h"
#include "tests/support/nccl/run_operation.h"

namespace onebit::testing::nccl {
namespace {

using Lock = std::unique_lock<std::mutex>;

// Numbers of collectives by host threads, which come at other times than those of streams.
constexpr uint64_t kFirstByHost = uint64_t{1} << 63;

bool IsOver(Comm* comm) { return comm->member().is_ended; }

// Receives a peer's message if one has arrived.
bool TakeLetter(Comm* comm, const Message& message) {
  Clique& clique = *comm->clique;
  auto& mail = clique.Mail(message.peer, comm->rank);
  if (mail.empty()) return false;
  const std::shared_ptr<Letter> letter = mail.front();
  mail.pop_front();
  if (letter->bytes == message.bytes) {
    std::memcpy(message.buffer, letter->data, message.bytes);
    Member& member = comm->member();
    if (member.until_damage >= 0 && member.until_damage-- == 0) {
      static_cast<std::byte*>(message.buffer)[message.bytes - 1] ^= std::byte{1};
      member.is_damaged = true;
    }
  } else {
    SetLastError("rank " + std::to_string(comm->rank) + " expects " +
                 std::to_string(message.bytes) + " bytes of rank " + std::to_string(message.peer) +
                 ", which sends " + std::to_string(letter->bytes));
    clique.BreakAll(ncclInvalidUsage);
  }
  letter->is_taken = true;
  clique.changed.notify_all();
  return true;
}

// Only the receiver of a damaged message knows of it. The others see what it does next, which may
// be to abort.
void EndExchange(Comm* comm, Lock* lock) {
  Clique& clique = *comm->clique;
  const uint64_t ended = ++comm->member().exchanges;
  clique.changed.notify_all();
  if (!std::exchange(comm->member().is_damaged, false)) return;
  clique.changed.wait(*lock, [&] {
    return IsOver(comm) ||
           std::all_of(clique.members.begin(), clique.members.end(), [&](const Member& member) {
             return member.is_ended || member.exchanges >= ended;
           });
  });
}

void RunMessages(Operation* operation, Lock* lock) {
  Comm* comm = operation->comm.get();
  Clique& clique = *comm->clique;
  std::vector<std::pair<int, std::shared_ptr<Letter>>> letters;
  std::vector<Message> expected;
  for (const Message& message : operation->messages) {
    if (!message.is_send) {
      expected.push_back(message);
      continue;
    }
    letters.emplace_back(message.peer, std::make_shared<Letter>(
                                           Letter{.data = message.buffer, .bytes = message.bytes}));
    clique.Mail(comm->rank, message.peer).push_back(letters.back().second);
  }
  clique.changed.notify_all();
  while (!IsOver(comm)) {
    // Messages from one peer are received in order.
    std::vector<bool> is_blocked(static_cast<size_t>(clique.ranks));
    std::erase_if(expected, [&](const Message& message) {
      const auto peer = static_cast<size_t>(message.peer);
      if (is_blocked[peer]) return false;
      is_blocked[peer] = !TakeLetter(comm, message);
      return !is_blocked[peer];
    });
    const bool is_read = std::all_of(letters.begin(), letters.end(),
                                     [](const auto& sent) { return sent.second->is_taken; });
    if (expected.empty() && is_read) return EndExchange(comm, lock);
    clique.changed.wait(*lock);
  }
  for (const auto& [peer, letter] : letters) std::erase(clique.Mail(comm->rank, peer), letter);
}

void RunCollective(Operation* operation, Lock* lock) {
  Comm* comm = operation->comm.get();
  Clique& clique = *comm->clique;
  Member& member = comm->member();
  const uint64_t number =
      operation->is_by_host ? kFirstByHost + member.host_collectives++ : member.collectives++;
  std::shared_ptr<Collective>& entry = clique.collectives[number];
  if (entry == nullptr) {
    entry = std::make_shared<Collective>(*operation->collective);
    entry->inputs.assign(static_cast<size_t>(clique.ranks), nullptr);
  }
  const std::shared_ptr<Collective> all = entry;
  if (!all->IsLike(*operation->collective)) {
    SetLastError("ranks call different collectives");
    clique.BreakAll(ncclInvalidUsage);
    all->is_done = true;
  }
  all->inputs[static_cast<size_t>(comm->rank)] = operation->collective->inputs[0];
  if (++all->came == clique.ranks && !all->is_done) {
    all->Compute();
    all->is_done = true;
  }
  clique.changed.notify_all();
  clique.changed.wait(*lock, [&] { return all->is_done || IsOver(comm); });
  if (!all->is_done) {
    // Others may still come, when the input is no more.
    all->inputs[static_cast<size_t>(comm->rank)] = nullptr;
    --all->came;
    return;
  }
  const std::span<const std::byte> result = all->ResultOf(comm->rank);
  if (!result.empty()) std::memcpy(operation->output, result.data(), result.size());
  if (++all->left == clique.ranks) clique.collectives.erase(number);
}

// Bytes that a rank sends to others. Collectives are counted as rings.
uint64_t WireBytesOf(const Operation& operation) {
  const auto ranks = static_cast<uint64_t>(operation.comm->clique->ranks);
  const int rank = operation.comm->rank;
  if (const Collective* const collective = operation.collective.get()) {
    const uint64_t part = collective->count * BytesOf(collective->type);
    switch (collective->kind) {
      case Collective::Kind::kAllReduce:
        return 2 * (ranks - 1) * part / ranks;
      case Collective::Kind::kReduceScatter:
      case Collective::Kind::kAllGather:
        return (ranks - 1) * part;
      case Collective::Kind::kBroadcast:
        return rank == collective->root && ranks > 1 ? part : 0;
    }
  }
  uint64_t bytes = 0;
  for (const Message& message : operation.messages) {
    if (message.is_send && message.peer != rank) bytes += message.bytes;
  }
  return bytes;
}

// Returns false if the communicator has ended.
bool Run(Operation* operation, Lock* lock) {
  Comm* const comm = operation->comm.get();
  Member& member = comm->member();
  if (!member.is_ended) {
    ++member.running;
    if (comm->remote != nullptr) {
      comm->remote->Run(*operation, lock);
    } else if (operation->collective == nullptr) {
      RunMessages(operation, lock);
    } else {
      RunCollective(operation, lock);
    }
    --member.running;
  }
  comm->clique->changed.notify_all();
  return !member.is_ended;
}

}  // namespace

void RunOperation(void* data) {
  auto* operation = static_cast<Operation*>(data);
  const std::unique_ptr<Operation> ending(operation->is_once ? operation : nullptr);
  const std::shared_ptr<Comm> comm = operation->comm;
  Lock lock(comm->clique->mutex);
  if (operation->is_queued) --comm->member().queued;
  if (!comm->member().is_ended) counters.wire_bytes += WireBytesOf(*operation);
  Run(operation, &lock);
}

bool RunNow(Operation* operation) {
  const std::shared_ptr<Comm> comm = operation->comm;
  Lock lock(comm->clique->mutex);
  return Run(operation, &lock);
}

}  // namespace onebit::testing::nccl
