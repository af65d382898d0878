// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Named values on which ranks must agree before they exchange messages.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/byte_stream.h"

namespace onebit {

// Names and values of one rank, in the same order on all.
using AgreedValues = std::vector<std::pair<std::string, std::string>>;

// kMismatch if ranks differ; the text names the value, two ranks and what they have.
Status CompareAgreed(std::span<const AgreedValues> values_by_rank);

void Append(const AgreedValues& values, ByteWriter* writer);
AgreedValues ReadAgreed(ByteReader* reader);

}  // namespace onebit
