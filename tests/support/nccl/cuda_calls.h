// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA functions that the stand-in for NCCL needs. Like NCCL it does not link the driver, so a
// process without one can load it.
#pragma once

#include <memory>

struct CUstream_st;
struct CUctx_st;

namespace onebit::testing::nccl {

// Returns the current device and context of this thread; false if there is no driver or no current
// context.
bool GetCurrentDevice(int* device, CUctx_st** context);

// Makes `context` current in this thread until the end of the scope.
class WithContext {
 public:
  explicit WithContext(CUctx_st* context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
};

// Lets this thread read and write device memory until it ends.
void AllowDeviceMemory();
// Returns CUDA's result.
int Enqueue(CUstream_st* stream, void (*function)(void* data), void* data);
// Returns false if CUDA cannot tell, too.
bool IsCapturing(CUstream_st* stream);

}  // namespace onebit::testing::nccl
