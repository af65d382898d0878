// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of codec_perf for the codec lossless.
#pragma once

namespace onebit::perf {

void RegisterLosslessBenchmarks();

}  // namespace onebit::perf
