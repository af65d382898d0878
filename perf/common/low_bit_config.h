// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings that a sweep's compressors and their scalar models share.
#pragma once

#include <cstdint>

#include "perf/common/collective.h"
#include "perf/common/low_bit_model.h"
#include "perf/common/sparse_model.h"

namespace onebit::perf {

// Sets the ranks of a row's model, which are hosts if its calls have two levels.
template <class Config>
void SetRanks(const Case& row, Config* config) {
  config->hosts = model::HostLayout(row.hosts);
  config->ranks = row.hosts.empty() ? static_cast<size_t>(row.ranks) : config->hosts.hosts();
}

// The model of a row with a code for each element, for the tensor kModelTensorId.
model::LowBitConfig LowBitConfigOf(const Case& row, const CodecChoice& choice);
// The same with a sparse codec.
model::SparseConfig SparseConfigOf(const Case& row, const CodecChoice& choice);

}  // namespace onebit::perf
