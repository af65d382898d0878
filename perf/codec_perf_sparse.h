// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of codec_perf for the sparse codecs.
#pragma once

namespace onebit::perf {

void RegisterSparseBenchmarks();

}  // namespace onebit::perf
