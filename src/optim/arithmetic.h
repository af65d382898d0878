// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where an optimizer computes: on the host, with its kernels, or on a device, with the same ones
// there. Both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/memory.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit::optim {

using kernels::cuda::Kernel;

// Everything that touches elements goes through here, between Begin and End. Pointers are memory of
// place(), but for results and where Copy is given others.
//
// On the host each function has done its work when it returns. On a device it has enqueued it on
// the stream of Begin: what comes out is there after Await, which also tells what could not be
// enqueued, once something could not. Results are written to memory that AllocateResults has made.
//
// One thread at a time.
class Arithmetic {
 public:
  // For runs of up to `count` elements. `devices` is needed for a place on a device.
  static Result<std::unique_ptr<Arithmetic>> Create(const MemoryLocation& location,
                                                    const Devices* devices, size_t count);
  virtual ~Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

  const MemoryLocation& location() const { return location_; }
  // Whether what functions write is there only after Await.
  bool is_deferred() const { return location_.is_device(); }
  Result<Memory> Allocate(size_t bytes, const char* purpose) const {
    return Memory::Create(location_, devices_, bytes, purpose);
  }
  // Memory of the host.
  virtual Result<Memory> AllocateResults(size_t bytes) const = 0;

  // What is enqueued from here on goes on `stream`, behind all that came before. The device is the
  // thread's current one until End.
  virtual Status Begin(onebitStream_t stream) = 0;
  // The same on a stream of its own, for work that is awaited before the call returns.
  virtual Status BeginAlone() = 0;
  virtual void End() = 0;
  virtual onebitStream_t stream() const = 0;

  // Waits for all of this, `comm` not null: for as long as the communicator is in order, whose
  // error it returns if it is not. Without results of collectives it is not asked.
  virtual Status Await(onebitComm_t comm) = 0;
  // Without waiting, what could not be enqueued since Begin.
  virtual Status Check() const = 0;
  // Before memory goes away: waits until nothing is using it, but not for ever.
  virtual void Settle() = 0;

  // One of both may be memory of the host.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  // v[i] = 0 where the bit of `mask` is clear.
  virtual void ClearOutside(const uint8_t* mask, size_t count, float* v) = 0;
  // out[i] = values[i], rounded to `type` of 16 bits. Waits, and takes memory: for rare events.
  virtual Status Round(const float* values, size_t count, kernels::DataType type, void* out) = 0;

  // Runs a kernel of optimizer.h, lamb.h or zero_one.h: on the host the CPU's, on a device its own.
  // Results are written to where `params` points. Scratch memory that only a device needs (partial
  // sums) stays null: Run fills it in.
  template <Kernel kKernel>
  void Run(const kernels::cuda::ParamsOf<kKernel>& params) {
    RunKernel(kKernel, &params);
  }

 protected:
  Arithmetic(const MemoryLocation& location, const Devices* devices)
      : location_(location), devices_(devices) {}

 private:
  // `params` has the type of the kernel's row in kernel_table.h.
  virtual void RunKernel(Kernel kernel, const void* params) = 0;

  const MemoryLocation location_;
  const Devices* const devices_;
};

// The end of a scope is the End of what it has begun.
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
