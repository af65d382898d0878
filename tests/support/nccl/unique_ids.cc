// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nccl/unique_ids.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace onebit::testing::nccl {
namespace {

constexpr char kMagic[] = "onebit stand-in";
constexpr size_t kNumberAt = sizeof kMagic;
constexpr size_t kHubAt = kNumberAt + sizeof(uint64_t);

std::mutex mutex;  // guards everything below
uint64_t next_number = 1;
// Never destroyed, because threads may outlive main.
auto& cliques = *new std::map<uint64_t, std::weak_ptr<Clique>>;

}  // namespace

ncclUniqueId MakeId(const IdContent& content) {
  ncclUniqueId id{};
  std::memcpy(id.internal, kMagic, sizeof kMagic);
  std::memcpy(id.internal + kNumberAt, &content.number, sizeof content.number);
  content.hub.copy(id.internal + kHubAt, sizeof id.internal - kHubAt - 1);
  return id;
}

uint64_t NewIdNumber() {
  const std::lock_guard lock(mutex);
  return next_number++;
}

bool ReadId(const ncclUniqueId& id, IdContent* content) {
  if (std::memcmp(id.internal, kMagic, sizeof kMagic) != 0) return false;
  std::memcpy(&content->number, id.internal + kNumberAt, sizeof content->number);
  const char* const hub = id.internal + kHubAt;
  content->hub.assign(hub, strnlen(hub, sizeof id.internal - kHubAt));
  return true;
}

uint64_t ChildNumber(uint64_t parent, uint64_t child, uint64_t group) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const uint64_t value : {parent, child, group}) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  }
  return hash | uint64_t{1} << 63;  // NewIdNumber returns smaller ones
}

std::shared_ptr<Clique> CliqueOf(uint64_t number, int ranks) {
  const std::lock_guard lock(mutex);
  std::shared_ptr<Clique> clique = cliques[number].lock();
  if (clique == nullptr) cliques[number] = clique = std::make_shared<Clique>(ranks);
  return clique->ranks == ranks ? clique : nullptr;
}

void GiveUpIncompleteCliques() {
  const std::lock_guard lock(mutex);
  for (const auto& [number, weak] : cliques) {
    const std::shared_ptr<Clique> clique = weak.lock();
    if (clique == nullptr) continue;
    const std::lock_guard clique_lock(clique->mutex);
    if (clique->IsComplete()) continue;
    clique->is_given_up = true;
    clique->changed.notify_all();
  }
}

}  // namespace onebit::testing::nccl
