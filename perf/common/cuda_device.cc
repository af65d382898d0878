// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/cuda_device.h"

#include <algorithm>
#include <array>

namespace onebit::perf {
namespace {

// Values of CUdevice_attribute and of flags.
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr unsigned kNonBlocking = 1;
constexpr unsigned kDefaultEvent = 0;  // it waits by polling, and keeps the time

CudaAddress AddressOf(const void* memory) { return reinterpret_cast<CudaAddress>(memory); }

CudaContext CurrentContext() {
  const CudaDriver& driver = CudaDriver::Get();
  CudaContext context = nullptr;
  driver.Check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  return context;
}

int HandleOf(int number) {
  const CudaDriver& driver = CudaDriver::Get();
  int device = 0;
  driver.Check(driver.cuDeviceGet(&device, number), fmt::format("CUDA device {}", number));
  return device;
}

// Makes the context of an object current while it is freed: the thread that frees it may use
// another context, or none. Errors no longer matter then.
class InContext {
 public:
  explicit InContext(CudaContext context)
      : has_pushed_(CudaDriver::Get().cuCtxPushCurrent_v2(context) == kCudaSuccess) {}
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    CudaContext popped = nullptr;
    if (has_pushed_) CudaDriver::Get().cuCtxPopCurrent_v2(&popped);
  }

 private:
  const bool has_pushed_;
};

}  // namespace

int CudaDeviceCount() {
  const CudaDriver& driver = CudaDriver::Get();
  int count = 0;
  driver.Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

CudaDeviceFacts FactsOfCudaDevice(int number) {
  const CudaDriver& driver = CudaDriver::Get();
  const int device = HandleOf(number);
  CudaDeviceFacts facts;
  std::array<char, 128> name{};
  driver.Check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device),
               "cuDeviceGetName");
  facts.name = name.data();
  driver.Check(driver.cuDeviceGetAttribute(&facts.compute_major, kComputeMajor, device),
               "cuDeviceGetAttribute");
  driver.Check(driver.cuDeviceGetAttribute(&facts.compute_minor, kComputeMinor, device),
               "cuDeviceGetAttribute");
  size_t bytes = 0;
  driver.Check(driver.cuDeviceTotalMem_v2(&bytes, device), "cuDeviceTotalMem");
  facts.memory_bytes = bytes;
  return facts;
}

void UseCudaDevice(int number) {
  const CudaDriver& driver = CudaDriver::Get();
  CudaContext context = nullptr;
  driver.Check(driver.cuDevicePrimaryCtxRetain(&context, HandleOf(number)),
               fmt::format("CUDA device {} cannot be used: cuDevicePrimaryCtxRetain", number));
  driver.Check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

CudaBuffer::CudaBuffer(size_t bytes) : context_(CurrentContext()) {
  const CudaDriver& driver = CudaDriver::Get();
  // CUDA refuses to allocate 0 bytes.
  driver.Check(driver.cuMemAlloc_v2(&address_, std::max<size_t>(bytes, 1)),
               fmt::format("allocating {} bytes of the CUDA device's memory", bytes));
}

CudaBuffer::~CudaBuffer() {
  if (address_ == 0) return;
  const InContext scope(context_);
  CudaDriver::Get().cuMemFree_v2(address_);
}

CudaStream::CudaStream() : context_(CurrentContext()) {
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
}

CudaStream::~CudaStream() {
  const InContext scope(context_);
  CudaDriver::Get().cuStreamDestroy_v2(stream_);
}

void CudaStream::Copy(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuMemcpyAsync(AddressOf(to), AddressOf(from), bytes, stream_),
               "cuMemcpyAsync");
}

void CudaStream::Fill(void* memory, uint8_t value, size_t bytes) const {
  if (bytes == 0) return;
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuMemsetD8Async(AddressOf(memory), value, bytes, stream_), "cuMemsetD8Async");
}

bool CudaStream::IsDone() const {
  const CudaDriver& driver = CudaDriver::Get();
  const int result = driver.cuStreamQuery(stream_);
  if (result == kCudaNotReady) return false;
  driver.Check(result, "work in a CUDA stream");
  return true;
}

void CudaStream::Synchronize() const {
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuStreamSynchronize(stream_), "work in a CUDA stream");
}

CudaEvent::CudaEvent() : context_(CurrentContext()) {
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuEventCreate(&event_, kDefaultEvent), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  const InContext scope(context_);
  CudaDriver::Get().cuEventDestroy_v2(event_);
}

void CudaEvent::Record(const CudaStream& stream) const {
  const CudaDriver& driver = CudaDriver::Get();
  driver.Check(driver.cuEventRecord(event_, stream.get()), "cuEventRecord");
}

double CudaEvent::SecondsBetween(const CudaEvent& from, const CudaEvent& to) {
  const CudaDriver& driver = CudaDriver::Get();
  float milliseconds = 0;
  driver.Check(driver.cuEventElapsedTime(&milliseconds, from.event_, to.event_),
               "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace onebit::perf
