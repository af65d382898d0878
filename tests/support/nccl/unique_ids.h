// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Unique ids, and the cliques of this process that they stand for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/nccl/clique.h"

namespace onebit::testing::nccl {

// The content of an ncclUniqueId.
struct IdContent {
  uint64_t number = 0;
  std::string hub;  // name of the process that has the clique: see clique_hub.h
};

ncclUniqueId MakeId(const IdContent& content);
// A number that no other id of this process has.
uint64_t NewIdNumber();
// Returns false if `id` was not made by MakeId.
bool ReadId(const ncclUniqueId& id, IdContent* content);
// The number of a communicator that is made from another one, by its `child`-th call of this kind.
// All ranks that give the same arguments get the same number.
uint64_t ChildNumber(uint64_t parent, uint64_t child, uint64_t group);

// The clique of a number, which is made by its first rank. Null if it has another number of ranks.
std::shared_ptr<Clique> CliqueOf(uint64_t number, int ranks);
// Gives up all cliques that lack ranks.
void GiveUpIncompleteCliques();

}  // namespace onebit::testing::nccl
