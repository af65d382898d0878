// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.h"

#include <algorithm>

namespace onebit {
namespace {

// "nothing" stands for a value that a rank of another library version does not have.
std::string ValueOf(const AgreedValues& values, const std::string& name) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& value) { return value.first == name; });
  return found == values.end() ? "nothing" : found->second;
}

}  // namespace

Status CompareAgreed(std::span<const AgreedValues> values_by_rank) {
  for (size_t rank = 1; rank < values_by_rank.size(); ++rank) {
    const AgreedValues& first = values_by_rank[0];
    const AgreedValues& other = values_by_rank[rank];
    if (first == other) continue;
    for (const AgreedValues* values : {&first, &other}) {
      for (const auto& [name, value] : *values) {
        if (ValueOf(first, name) == ValueOf(other, name)) continue;
        return Error(Code::kMismatch,
                     "{} differs between ranks: rank 0 has {}, rank {} has {}; set it to the same "
                     "value on all ranks",
                     name, ValueOf(first, name), rank, ValueOf(other, name));
      }
    }
  }
  return OkStatus();
}

void Append(const AgreedValues& values, ByteWriter* writer) {
  writer->Integer(static_cast<uint32_t>(values.size()));
  for (const auto& [name, value] : values) writer->Text(name).Text(value);
}

AgreedValues ReadAgreed(ByteReader* reader) {
  AgreedValues values;
  const uint32_t count = reader->Integer<uint32_t>();
  for (uint32_t i = 0; i < count && !reader->is_short(); ++i) {
    std::string name = reader->Text();
    values.emplace_back(std::move(name), reader->Text());
  }
  return values;
}

}  // namespace onebit
