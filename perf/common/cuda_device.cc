// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/cuda_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace onebit::perf {
namespace {

using cuda::AddressOf;

struct Loaded {
  cuda::Driver driver;
  std::string problem;  // empty: the driver can be used
};

// The driver is never unloaded: the library looks it up as well and keeps its functions.
Loaded Load() {
  Loaded loaded;
  // Streams of a device share its hardware queues, by default so few that a stream which waits for
  // another rank could block the stream that the other rank needs.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  void* const library = dlopen(cuda::kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    loaded.problem = fmt::format("no CUDA: its driver cannot be loaded: {}",
                                 reason == nullptr ? cuda::kDriverLibrary : reason);
    return loaded;
  }
  const cuda::Driver& driver = loaded.driver;
  if (const char* const missing = cuda::FindFunctions(library, &loaded.driver)) {
    loaded.problem = fmt::format("no CUDA: {} has no function {}", cuda::kDriverLibrary, missing);
    return loaded;
  }
  int count = 0;
  CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) {
    loaded.problem =
        fmt::format("no CUDA: its driver does not start: {}", cuda::ErrorText(driver, result));
  } else if (count == 0) {
    loaded.problem = "no CUDA: its driver finds no device";
  }
  return loaded;
}

// Returns the driver, which the first call loads and starts. Throws NoCudaError, the same each
// time.
const cuda::Driver& Driver() {
  static const Loaded loaded = Load();
  if (!loaded.problem.empty()) throw NoCudaError(loaded.problem);
  return loaded.driver;
}

// Throws ToolError with CUDA's name of the error; `done` says what failed.
void Check(CUresult result, const std::string& done) {
  if (result == CUDA_SUCCESS) return;
  throw ToolError(fmt::format("{}: {}", done, cuda::ErrorText(Driver(), result)));
}

CUcontext ContextOfThread() {
  const cuda::Driver& driver = Driver();
  CUcontext context = nullptr;
  Check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return context;
}

int HandleOf(int number) {
  const cuda::Driver& driver = Driver();
  int device = 0;
  Check(driver.cuDeviceGet(&device, number), fmt::format("CUDA device {}", number));
  return device;
}

}  // namespace

int CudaDeviceCount() {
  const cuda::Driver& driver = Driver();
  int count = 0;
  Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

CudaDeviceFacts FactsOfCudaDevice(int number) {
  const cuda::Driver& driver = Driver();
  const int device = HandleOf(number);
  CudaDeviceFacts facts;
  std::array<char, 128> name{};
  Check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device),
        "cuDeviceGetName");
  facts.name = name.data();
  Check(driver.cuDeviceGetAttribute(&facts.compute_major,
                                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        "cuDeviceGetAttribute");
  Check(driver.cuDeviceGetAttribute(&facts.compute_minor,
                                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
        "cuDeviceGetAttribute");
  size_t bytes = 0;
  Check(driver.cuDeviceTotalMem_v2(&bytes, device), "cuDeviceTotalMem");
  facts.memory_bytes = bytes;
  return facts;
}

void UseCudaDevice(int number) {
  const cuda::Driver& driver = Driver();
  CUcontext context = nullptr;
  Check(driver.cuDevicePrimaryCtxRetain(&context, HandleOf(number)),
        fmt::format("CUDA device {} cannot be used: cuDevicePrimaryCtxRetain", number));
  Check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

CudaBuffer::CudaBuffer(size_t bytes) : context_(ContextOfThread()) {
  const cuda::Driver& driver = Driver();
  // CUDA refuses to allocate 0 bytes.
  Check(driver.cuMemAlloc_v2(&address_, std::max<size_t>(bytes, 1)),
        fmt::format("allocating {} bytes of the CUDA device's memory", bytes));
}

CudaBuffer::~CudaBuffer() {
  if (address_ == 0) return;
  const cuda::CurrentContext scope(Driver(), context_);
  Driver().cuMemFree_v2(address_);
}

CudaStream::CudaStream() : context_(ContextOfThread()) {
  const cuda::Driver& driver = Driver();
  Check(driver.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
}

CudaStream::~CudaStream() {
  const cuda::CurrentContext scope(Driver(), context_);
  Driver().cuStreamDestroy_v2(stream_);
}

void CudaStream::Copy(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;
  const cuda::Driver& driver = Driver();
  Check(driver.cuMemcpyAsync(AddressOf(to), AddressOf(from), bytes, stream_), "cuMemcpyAsync");
}

void CudaStream::Fill(void* memory, uint8_t value, size_t bytes) const {
  if (bytes == 0) return;
  const cuda::Driver& driver = Driver();
  Check(driver.cuMemsetD8Async(AddressOf(memory), value, bytes, stream_), "cuMemsetD8Async");
}

bool CudaStream::IsDone() const {
  const cuda::Driver& driver = Driver();
  const CUresult result = driver.cuStreamQuery(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  Check(result, "work in a CUDA stream");
  return true;
}

void CudaStream::Synchronize() const {
  const cuda::Driver& driver = Driver();
  Check(driver.cuStreamSynchronize(stream_), "work in a CUDA stream");
}

CudaEvent::CudaEvent() : context_(ContextOfThread()) {
  const cuda::Driver& driver = Driver();
  // Such an event waits by polling, and keeps the time.
  Check(driver.cuEventCreate(&event_, CU_EVENT_DEFAULT), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  const cuda::CurrentContext scope(Driver(), context_);
  Driver().cuEventDestroy_v2(event_);
}

void CudaEvent::Record(const CudaStream& stream) const {
  const cuda::Driver& driver = Driver();
  Check(driver.cuEventRecord(event_, stream.get()), "cuEventRecord");
}

double CudaEvent::SecondsBetween(const CudaEvent& from, const CudaEvent& to) {
  const cuda::Driver& driver = Driver();
  float milliseconds = 0;
  Check(driver.cuEventElapsedTime(&milliseconds, from.event_, to.event_), "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace onebit::perf
