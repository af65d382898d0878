// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Marks small functions of the scalar arithmetic that CUDA kernels call as well.
#pragma once

#if defined(__CUDACC__)
#define ONEBIT_HOST_DEVICE __host__ __device__
#else
#define ONEBIT_HOST_DEVICE
#endif
