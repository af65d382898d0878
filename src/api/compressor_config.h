// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks the C configuration of a compressor and fills in its undefined members.
#pragma once

#include "compressor/compressor.h"
#include "onebit/onebit.h"

namespace onebit {

// A null `given` means all defaults. The tensor id defaults to `default_tensor_id`, the hops to
// what suits `ranks`.
Result<Compressor::Config> ParseCompressorConfig(const onebitCompressorConfig_t* given,
                                                 size_t count, onebitDataType_t type,
                                                 uint32_t default_tensor_id, uint32_t ranks);

}  // namespace onebit
