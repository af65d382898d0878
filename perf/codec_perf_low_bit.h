// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of codec_perf for the low-bit codecs.
#pragma once

#include "kernels/low_bit.h"

namespace onebit::perf {

// The default blocks, also in the rows of a device.
inline constexpr kernels::LowBitFormat kFp4 = {kernels::LowBitCodec::kFp4, 128};
inline constexpr kernels::LowBitFormat kInt8 = {kernels::LowBitCodec::kInt8, 256};
inline constexpr kernels::LowBitFormat kInt2 = {kernels::LowBitCodec::kInt2, 4096};

void RegisterLowBitBenchmarks();

}  // namespace onebit::perf
