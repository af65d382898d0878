// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of the stand-in for CUDA that the one for NCCL needs. Like NCCL it does not link
// the driver: a process without one can load it.
#pragma once

#include <memory>

struct CUstream_st;
struct CUctx_st;

namespace onebit::testing::nccl {

// Device and context that are current in this thread. False: there is no driver, or none is.
bool GetCurrentDevice(int* device, CUctx_st** context);

// Makes `context` current in this thread until its end.
class WithContext {
 public:
  explicit WithContext(CUctx_st* context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
};

// Result of CUDA.
int Enqueue(CUstream_st* stream, void (*function)(void* data), void* data);
// False, too, if CUDA cannot tell.
bool IsCapturing(CUstream_st* stream);

}  // namespace onebit::testing::nccl
