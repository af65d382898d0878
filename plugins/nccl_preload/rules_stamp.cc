// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/rules_stamp.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace onebit::preload {
namespace {

constexpr char kMagic[8] = {'o', 'n', 'e', 'b', 'i', 't', 'N', 'R'};

// The last bytes of an id.
struct Mark {
  char magic[sizeof kMagic];
  uint64_t digest;
};

char* EndOf(UniqueId* id) { return std::end(id->bytes) - sizeof(Mark); }

}  // namespace

uint64_t DigestOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

void StampId(std::string_view rules, UniqueId* id) {
  char* const end = EndOf(id);
  if (std::any_of(end, std::end(id->bytes), [](char byte) { return byte != 0; })) return;
  Mark mark{.magic = {}, .digest = DigestOf(rules)};
  std::memcpy(mark.magic, kMagic, sizeof kMagic);
  std::memcpy(end, &mark, sizeof mark);
}

Stamp TakeStamp(std::string_view rules, UniqueId* id) {
  Mark mark;
  std::memcpy(&mark, EndOf(id), sizeof mark);
  if (std::memcmp(mark.magic, kMagic, sizeof kMagic) != 0) return Stamp::kNone;
  std::memset(EndOf(id), 0, sizeof mark);
  return mark.digest == DigestOf(rules) ? Stamp::kEqual : Stamp::kOther;
}

}  // namespace onebit::preload
