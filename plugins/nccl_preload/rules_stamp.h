// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Marks unique ids of NCCL with the rules of the process that makes them, so that every rank of a
// communicator knows before it exists if the others have the same rules.
#pragma once

#include <cstdint>
#include <string_view>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// A number that stands for a text when ranks compare theirs.
uint64_t DigestOf(std::string_view text);

// NCCL uses the beginning of its 128 bytes and leaves the rest zero. An id whose end is not zero is
// left alone.
void StampId(std::string_view rules, UniqueId* id);

// A stamp tells one of these.
enum class Stamp {
  kNone,   // its process has no rules, or not this library
  kEqual,  // it has these
  kOther,  // it has others
};

// Reads the stamp of an id and removes it: NCCL gets what it made.
Stamp TakeStamp(std::string_view rules, UniqueId* id);

}  // namespace onebit::preload
