// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Benchmarks of the kernels on a CUDA device. They have the names of the host's benchmarks.
#pragma once

namespace onebit::perf {

class CudaSession;

// Registers them with Google Benchmark. `session` must live until they have run.
void RegisterCudaBenchmarks(const CudaSession& session);

}  // namespace onebit::perf
