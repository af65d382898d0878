// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How much working memory calls need, found out beside an engine that is running others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/engine.h"

namespace onebit {

// Plans the calls that an engine will plan, without its plans, and remembers what came out.
class PacketNeeds {
 public:
  explicit PacketNeeds(const Comm& comm) : comm_(comm) {}

  // Packet space of these calls, made alone if there is one, else as a group.
  size_t PacketBytes(std::span<const Engine::Request> requests);

 private:
  struct Known {
    std::vector<PlanKey> keys;
    size_t bytes = 0;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMostKnown = 64;

  size_t Plan(std::span<const Engine::Request> requests) const;
  std::shared_ptr<const onebit::Plan> PlanOf(const Engine::Request& request) const;

  const Comm& comm_;
  std::vector<PlanKey> keys_;  // of the calls at hand
  std::vector<Known> known_;   // the least recently used one makes room
  uint64_t uses_ = 0;
};

}  // namespace onebit
