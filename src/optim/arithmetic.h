// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of an optimizer, on the host's kernels or on those of a device. Both give the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/optimizer_kernels.h"
#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit::optim {

using Kernel = kernels::OptimizerKernel;

// Every access to elements goes through this class, between Begin and End. Pointers refer to memory
// at location(), except results and the arguments that Copy allows elsewhere.
//
// On the host each function has done its work when it returns. On a device it enqueues the work on
// the stream of Begin: outputs are ready after Await, which also reports the first work that could
// not be enqueued. Results are written to memory from AllocateResults.
//
// One thread at a time.
class Arithmetic {
 public:
  // Supports runs of up to `count` elements. A location on a device requires `devices`.
  static Result<std::unique_ptr<Arithmetic>> Create(const MemoryLocation& location,
                                                    const Devices* devices, size_t count);
  virtual ~Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

  const MemoryLocation& location() const { return location_; }
  // True if outputs are ready only after Await.
  bool is_deferred() const { return location_.is_device(); }
  Result<Memory> Allocate(size_t bytes, const char* purpose) const {
    return Memory::Create(location_, devices_, bytes, purpose);
  }
  // Allocates host memory.
  virtual Result<Memory> AllocateResults(size_t bytes) const = 0;

  // Enqueues the following work on `stream`, after all earlier work. Until End, the device is the
  // thread's current one.
  virtual Status Begin(onebitStream_t stream) = 0;
  // Like Begin, but on a private stream, for work that is awaited before the call returns.
  virtual Status BeginAlone() = 0;
  virtual void End() = 0;
  virtual onebitStream_t stream() const = 0;

  // Waits for all enqueued work. If `comm` is not null, waits only while the communicator is
  // healthy, and returns its error otherwise. `comm` may be null if no result of a collective is
  // involved.
  virtual Status Await(onebitComm_t comm) = 0;
  // Reports work that could not be enqueued since Begin, without waiting.
  virtual Status Check() const = 0;
  // Called before memory is freed: waits until nothing uses it, for a bounded time.
  virtual void Drain() = 0;

  // Either argument may be host memory.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  // v[i] = 0 where the bit of `mask` is clear.
  virtual void ClearOutside(const uint8_t* mask, size_t count, float* v) = 0;
  // out[i] = values[i], rounded to a 16-bit `type`. Waits and allocates, so it is for rare events.
  virtual Status Round(const float* values, size_t count, kernels::DataType type, void* out) = 0;

  // Runs a kernel: the CPU's on the host, the device's own on a device. Results are written to the
  // addresses in `params`. Scratch memory that only a device needs (partial sums) may be null: Run
  // fills it in.
  template <Kernel kKernel>
  void Run(const kernels::OptimizerParamsOf<kKernel>& params) {
    RunKernel(kKernel, &params);
  }

 protected:
  Arithmetic(const MemoryLocation& location, const Devices* devices)
      : location_(location), devices_(devices) {}

 private:
  // `params` must have the type from the kernel's row in optimizer_kernels.h.
  virtual void RunKernel(Kernel kernel, const void* params) = 0;

  const MemoryLocation location_;
  const Devices* const devices_;
};

// Calls End for the Begin of a scope.
class ArithmeticScope {
 public:
  explicit ArithmeticScope(Arithmetic& arithmetic) : arithmetic_(arithmetic) {}
  ~ArithmeticScope() { arithmetic_.End(); }
  ArithmeticScope(const ArithmeticScope&) = delete;
  ArithmeticScope& operator=(const ArithmeticScope&) = delete;

 private:
  Arithmetic& arithmetic_;
};

}  // namespace onebit::optim
