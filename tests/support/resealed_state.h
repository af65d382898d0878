// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Saved states with impossible contents and correct checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/state_blob.h"

namespace onebit::testing {

// Applies `change(std::vector<std::byte>*)` to the content of one section of `state`.
template <typename Change>
std::vector<std::byte> Resealed(const std::vector<std::byte>& state, SectionTag changed,
                                Change change) {
  const StateReader reader = StateReader::Open(state).value();
  std::vector<StateSection> sections;
  std::vector<std::vector<std::byte>> contents;
  for (auto tag = SectionTag::kIdentity; tag <= SectionTag::kElements;
       tag = static_cast<SectionTag>(static_cast<uint32_t>(tag) + 1)) {
    const auto content = reader.section(tag);
    if (!content) continue;
    contents.emplace_back(content->begin(), content->end());
    if (tag == changed) change(&contents.back());
    sections.push_back({tag, contents.back().size()});
  }
  std::vector<std::byte> blob(StateBytes(sections));
  StateWriter writer(reader.kind(), sections, blob.data());
  for (size_t i = 0; i < sections.size(); ++i) {
    if (contents[i].empty()) continue;
    std::memcpy(writer.section(sections[i].tag).data(), contents[i].data(), contents[i].size());
  }
  writer.Seal();
  return blob;
}

}  // namespace onebit::testing
