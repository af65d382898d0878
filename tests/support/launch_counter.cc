// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program (LD_PRELOAD), counts what onebitAllReduce enqueues on CUDA streams. All
// of a call is enqueued before it returns, by the thread that makes it, so the count of a call is
// that of its thread meanwhile. The library looks the driver's functions up with dlsym, which this
// file replaces. NCCL finds its own in another way: its kernels are not counted.
//
// At its end the process writes a line of JSON for each kind and size of calls to the file that
// LAUNCH_COUNTER_OUTPUT names: kernels and other operations of the last call, and the most kernels
// of any; the shortest time that a call took to return.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "onebit/onebit.h"

namespace {

using Dlsym = void*(void*, const char*);
using AllReduce = decltype(onebitAllReduce);

struct Counts {
  uint64_t kernels = 0;
  uint64_t others = 0;  // copies, fills, and waits and writes of the stream
};
thread_local Counts counts;

struct Calls {
  uint64_t number = 0;
  Counts last;
  uint64_t most_kernels = 0;
  double least_us = 0;
};

// Written by the destructor.
struct Report {
  std::mutex mutex;
  std::map<std::pair<bool, size_t>, Calls> calls;  // by compression and bytes

  ~Report() {
    const char* const path = std::getenv("LAUNCH_COUNTER_OUTPUT");
    std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    for (const auto& [kind, of_kind] : calls) {
      std::fprintf(file,
                   "{\"mode\": \"%s\", \"bytes\": %zu, \"calls\": %llu, \"kernels\": %llu, "
                   "\"most_kernels\": %llu, \"other_operations\": %llu, \"host_us\": %.1f}\n",
                   kind.first ? "compressed" : "dense", kind.second,
                   static_cast<unsigned long long>(of_kind.number),
                   static_cast<unsigned long long>(of_kind.last.kernels),
                   static_cast<unsigned long long>(of_kind.most_kernels),
                   static_cast<unsigned long long>(of_kind.last.others), of_kind.least_us);
    }
    std::fclose(file);
  }
};

Report& TheReport() {
  static Report report;
  return report;
}

Dlsym* RealDlsym() {
  static Dlsym* const real = [] {
    void* found = nullptr;
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
      if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", version);
    }
    if (found == nullptr) std::abort();
    return reinterpret_cast<Dlsym*>(found);
  }();
  return real;
}

// A function of the driver that counts its calls.
template <int kNumber, class Function>
struct Counting;
template <int kNumber, class... Arguments>
struct Counting<kNumber, CUresult(Arguments...)> {
  static inline std::atomic<CUresult (*)(Arguments...)> real = nullptr;
  static inline uint64_t Counts::*count = nullptr;

  static CUresult Call(Arguments... arguments) {
    ++(counts.*count);
    return real.load(std::memory_order_relaxed)(arguments...);
  }
  static void* Replace(void* found, uint64_t Counts::*which) {
    count = which;
    real = reinterpret_cast<CUresult (*)(Arguments...)>(found);
    return reinterpret_cast<void*>(&Call);
  }
};

constexpr size_t ElementBytes(onebitDataType_t type) { return type == onebitFloat32 ? 4 : 2; }

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* dlsym(void* library, const char* name) noexcept {
  void* const found = RealDlsym()(library, name);
  if (found == nullptr) return found;
#define REPLACE(function, which)                                                                   \
  if (std::strcmp(name, #function) == 0) {                                                         \
    return Counting<__LINE__, std::remove_pointer_t<decltype(&function)>>::Replace(found, &which); \
  }
  REPLACE(cuLaunchKernel, Counts::kernels)
  REPLACE(cuMemcpyAsync, Counts::others)
  REPLACE(cuMemsetD8Async, Counts::others)
  REPLACE(cuStreamWaitValue32_v2, Counts::others)
  REPLACE(cuStreamWriteValue32_v2, Counts::others)
#undef REPLACE
  return found;
}

[[gnu::visibility("default")]] onebitResult_t onebitAllReduce(
    const void* sendbuff, void* recvbuff, size_t count, onebitDataType_t datatype, onebitRedOp_t op,
    onebitCompressor_t compressor, onebitComm_t comm, onebitStream_t stream) {
  using Clock = std::chrono::steady_clock;
  static AllReduce* const real =
      reinterpret_cast<AllReduce*>(RealDlsym()(RTLD_NEXT, "onebitAllReduce"));
  const Counts before = counts;
  const Clock::time_point begin = Clock::now();
  const onebitResult_t result =
      real(sendbuff, recvbuff, count, datatype, op, compressor, comm, stream);
  const std::chrono::duration<double, std::micro> us = Clock::now() - begin;
  Report& report = TheReport();
  const std::lock_guard lock(report.mutex);
  Calls& calls = report.calls[{compressor != nullptr, count * ElementBytes(datatype)}];
  calls.last = {.kernels = counts.kernels - before.kernels,
                .others = counts.others - before.others};
  calls.most_kernels = std::max(calls.most_kernels, calls.last.kernels);
  calls.least_us = calls.number == 0 ? us.count() : std::min(calls.least_us, us.count());
  ++calls.number;
  return result;
}

}  // extern "C"
