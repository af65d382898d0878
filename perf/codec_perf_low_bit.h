// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of codec_perf for the low-bit codecs.
#pragma once

namespace onebit::perf {

void RegisterLowBitBenchmarks();

}  // namespace onebit::perf
