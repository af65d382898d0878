// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/preload/trainer_comm.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace onebit::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kWatchPeriod{20};
constexpr std::chrono::seconds kWatchdogTimeout{10};
constexpr std::chrono::seconds kIdTimeout{60};

void CheckDriver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(what) + ": " + (name == nullptr ? "unknown error" : name));
}

CUcontext UseDevice(int device) {
  CheckDriver(cuInit(0), "cuInit");
  CUdevice handle = 0;
  CheckDriver(cuDeviceGet(&handle, device), "cuDeviceGet");
  CUcontext context = nullptr;
  CheckDriver(cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  CheckDriver(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return context;
}

void WriteId(const std::string& file, const ncclUniqueId& id) {
  const std::string unfinished = file + ".part";
  std::FILE* const out = std::fopen(unfinished.c_str(), "wb");
  if (out == nullptr) throw std::runtime_error("cannot write " + unfinished);
  std::fwrite(&id, sizeof id, 1, out);
  std::fclose(out);
  std::rename(unfinished.c_str(), file.c_str());
}

ncclUniqueId AwaitId(const std::string& file) {
  const Clock::time_point deadline = Clock::now() + kIdTimeout;
  ncclUniqueId id;
  for (;;) {
    if (std::FILE* const in = std::fopen(file.c_str(), "rb")) {
      const size_t read = std::fread(&id, sizeof id, 1, in);
      std::fclose(in);
      if (read == 1) return id;
    }
    if (Clock::now() > deadline) throw std::runtime_error("no unique id in " + file);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Trainer::Trainer(int rank, int ranks, const std::string& id_file)
    : rank_(rank), ranks_(ranks), context_(UseDevice(rank)) {
  CheckDriver(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  ncclUniqueId id;
  if (rank == 0) {
    Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    WriteId(id_file, id);
  } else {
    id = AwaitId(id_file);
  }
  Check(ncclCommInitRank(&world_, ranks, id, rank), "ncclCommInitRank");
  comms_.push_back(world_);
  watchdog_ = std::thread([this] { Watch(); });
}

Trainer::~Trainer() {
  is_ending_ = true;
  watchdog_.join();
  for (Buffer& buffer : buffers_) {
    cuMemFree(buffer.device);
    cuMemFreeHost(buffer.host);
  }
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) ncclCommDestroy(*comm);
  cuStreamDestroy(stream_);
}

ncclComm_t Trainer::Split(int color, int key, const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = name;
#else
  static_cast<void>(name);
#endif
  ncclComm_t made = nullptr;
  Check(ncclCommSplit(world_, color, key, &made, &config), "ncclCommSplit");
  const std::lock_guard lock(mutex_);
  comms_.push_back(made);
  return made;
}

void Trainer::Average(ncclComm_t comm, const std::vector<std::vector<float>*>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    ToDevice(*tensors[i], BufferOf(i, tensors[i]->size()));
  }
  if (has_groups_) Check(Locked(ncclGroupStart), "ncclGroupStart");
  for (size_t i = 0; i < tensors.size(); ++i) {
    void* const data = reinterpret_cast<void*>(buffers_[i].device);
    Check(Locked([&] {
            return ncclAllReduce(data, data, tensors[i]->size(), ncclFloat, ncclAvg, comm,
                                 reinterpret_cast<cudaStream_t>(stream_));
          }),
          "ncclAllReduce");
  }
  if (has_groups_) Check(Locked(ncclGroupEnd), "ncclGroupEnd");
  for (size_t i = 0; i < tensors.size(); ++i) FromDevice(buffers_[i], tensors[i]->size());
  if (before_result_ != nullptr) std::exchange(before_result_, nullptr)();
  AwaitStream();
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::memcpy(tensors[i]->data(), buffers_[i].host, tensors[i]->size() * sizeof(float));
  }
}

void Trainer::Sum(ncclComm_t comm, std::vector<float>* tensor) {
  const Buffer& buffer = BufferOf(0, tensor->size());
  ToDevice(*tensor, buffer);
  void* const data = reinterpret_cast<void*>(buffer.device);
  Check(Locked([&] {
          return ncclAllReduce(data, data, tensor->size(), ncclFloat, ncclSum, comm,
                               reinterpret_cast<cudaStream_t>(stream_));
        }),
        "ncclAllReduce");
  FromDevice(buffer, tensor->size());
  AwaitStream();
  std::memcpy(tensor->data(), buffer.host, tensor->size() * sizeof(float));
}

void Trainer::Broadcast(ncclComm_t comm, std::vector<float>* tensor) {
  const Buffer& buffer = BufferOf(0, tensor->size());
  ToDevice(*tensor, buffer);
  void* const data = reinterpret_cast<void*>(buffer.device);
  Check(Locked([&] {
          return ncclBroadcast(data, data, tensor->size(), ncclFloat, 0, comm,
                               reinterpret_cast<cudaStream_t>(stream_));
        }),
        "ncclBroadcast");
  FromDevice(buffer, tensor->size());
  AwaitStream();
  std::memcpy(tensor->data(), buffer.host, tensor->size() * sizeof(float));
}

Trainer::Buffer& Trainer::BufferOf(size_t index, size_t count) {
  if (index >= buffers_.size()) buffers_.resize(index + 1);
  Buffer& buffer = buffers_[index];
  if (buffer.count >= count) return buffer;
  if (buffer.count > 0) {
    CheckDriver(cuMemFree(buffer.device), "cuMemFree");
    CheckDriver(cuMemFreeHost(buffer.host), "cuMemFreeHost");
  }
  buffer.count = count;
  CheckDriver(cuMemAlloc(&buffer.device, count * sizeof(float)), "cuMemAlloc");
  void* host = nullptr;
  CheckDriver(cuMemHostAlloc(&host, count * sizeof(float), 0), "cuMemHostAlloc");
  buffer.host = static_cast<float*>(host);
  return buffer;
}

void Trainer::ToDevice(const std::vector<float>& tensor, const Buffer& buffer) {
  const size_t bytes = tensor.size() * sizeof(float);
  std::memcpy(buffer.host, tensor.data(), bytes);
  CheckDriver(cuMemcpyHtoDAsync(buffer.device, buffer.host, bytes, stream_), "cuMemcpyHtoDAsync");
}

void Trainer::FromDevice(const Buffer& buffer, size_t count) {
  CheckDriver(cuMemcpyDtoHAsync(buffer.host, buffer.device, count * sizeof(float), stream_),
              "cuMemcpyDtoHAsync");
}

void Trainer::AwaitStream() {
  CUresult state = CUDA_ERROR_NOT_READY;
  while (state == CUDA_ERROR_NOT_READY) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    state = cuStreamQuery(stream_);
  }
  CheckDriver(state, "cuStreamQuery");
  if (is_aborted_) throw Aborted("the stream has ended");
}

// A call may see an error before the watchdog does.
void Trainer::Check(ncclResult_t result, const char* what) const {
  const Clock::time_point deadline = Clock::now() + kWatchdogTimeout;
  while (result != ncclSuccess && !is_aborted_ && Clock::now() < deadline) {
    std::this_thread::sleep_for(kWatchPeriod);
  }
  if (is_aborted_) throw Aborted(what);
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
  }
}

// As PyTorch's watchdog, another thread looks for errors and ends what waits, and cannot while a
// call holds the mutex.
void Trainer::Watch() {
  cuCtxSetCurrent(context_);
  while (!is_ending_) {
    std::this_thread::sleep_for(kWatchPeriod);
    const std::lock_guard lock(mutex_);
    for (const ncclComm_t comm : comms_) {
      ncclResult_t error = ncclSuccess;
      ncclCommGetAsyncError(comm, &error);
      if (error == ncclSuccess) continue;
      std::printf("rank %d found: %s\n", rank_, ncclGetErrorString(error));
      std::fflush(stdout);
      is_aborted_ = true;
      const Clock::time_point begin = Clock::now();
      for (const ncclComm_t each : std::exchange(comms_, {})) ncclCommAbort(each);
      std::printf("rank %d aborted within %.3f s\n", rank_,
                  std::chrono::duration<double>(Clock::now() - begin).count());
      std::fflush(stdout);
      return;
    }
  }
}

}  // namespace onebit::testing
