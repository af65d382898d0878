// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// C++ companion of onebit.h: handles that free themselves. There is no second API to learn: pass
// handle.get() to the C functions.
//
//   std::array<onebit::UniqueComm, 4> comms;
//   onebitResult_t result = onebit::MakeComms(comms);
//   if (result != onebitSuccess) std::cerr << onebit::Explain(result);
//
// Needs C++20. Nothing throws, except that std::string may throw std::bad_alloc in Explain.
#ifndef ONEBIT_HPP_
#define ONEBIT_HPP_

#if __cplusplus < 202002L
#error "onebit.hpp needs C++20: compile with -std=c++20, or use the C functions of onebit.h"
#endif

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onebit/onebit.h"
#include "onebit/optim.h"

namespace onebit {

struct CommDeleter {
  void operator()(onebitComm_t comm) const noexcept { onebitCommDestroy(comm); }
};
/// Owns a communicator. No other thread may still be using it when it is destroyed.
using UniqueComm = std::unique_ptr<onebitComm_s, CommDeleter>;

struct CompressorDeleter {
  void operator()(onebitCompressor_t compressor) const noexcept {
    onebitCompressorDestroy(compressor);
  }
};
/// Owns a compressor. It may outlive its communicator.
using UniqueCompressor = std::unique_ptr<onebitCompressor_s, CompressorDeleter>;

struct StreamDeleter {
  void operator()(onebitStream_t stream) const noexcept { onebitStreamDestroy(stream); }
};
/// Owns a stream. Its destruction waits for pending calls.
using UniqueStream = std::unique_ptr<std::remove_pointer_t<onebitStream_t>, StreamDeleter>;

/// onebitStreamCreate; `stream` is written only on success.
[[nodiscard]] inline onebitResult_t MakeStream(UniqueStream& stream) noexcept {
  onebitStream_t handle = nullptr;
  const onebitResult_t result = onebitStreamCreate(&handle);
  if (result == onebitSuccess) stream.reset(handle);
  return result;
}

struct SyncDeleter {
  void operator()(onebitSync_t sync) const noexcept { onebitSyncDestroy(sync); }
};
/// Owns a 1-bit sync. Destroy it before its compressor.
using UniqueSync = std::unique_ptr<onebitSync_s, SyncDeleter>;

struct OptimizerDeleter {
  void operator()(onebitOptimizer_t optimizer) const noexcept { onebitOptimizerDestroy(optimizer); }
};
/// Owns an optimizer. It may outlive its communicator, but not its parameters.
using UniqueOptimizer = std::unique_ptr<onebitOptimizer_s, OptimizerDeleter>;

/// onebitCommInitAll with one rank per element of `comms`, which is written only on success.
[[nodiscard]] inline onebitResult_t MakeComms(std::span<UniqueComm> comms) noexcept {
  const std::unique_ptr<onebitComm_t[]> handles(new (std::nothrow) onebitComm_t[comms.size()]);
  if (!handles) return onebitOutOfMemory;
  const onebitResult_t result =
      onebitCommInitAll(handles.get(), static_cast<int>(comms.size()), nullptr);
  if (result != onebitSuccess) return result;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) comms[rank].reset(handles[rank]);
  return onebitSuccess;
}

/// onebitCommInitRankConfig; `comm` is written only on success.
[[nodiscard]] inline onebitResult_t JoinComm(UniqueComm& comm, int nranks, const onebitUniqueId& id,
                                             int rank,
                                             const onebitConfig_t* config = nullptr) noexcept {
  onebitComm_t handle = nullptr;
  const onebitResult_t result = onebitCommInitRankConfig(&handle, nranks, id, rank, config);
  if (result == onebitSuccess) comm.reset(handle);
  return result;
}

/// onebitCommInitEnv; `comm` is written only on success.
[[nodiscard]] inline onebitResult_t JoinComm(UniqueComm& comm,
                                             const onebitConfig_t* config = nullptr) noexcept {
  onebitComm_t handle = nullptr;
  const onebitResult_t result = onebitCommInitEnv(&handle, config);
  if (result == onebitSuccess) comm.reset(handle);
  return result;
}

/// onebitCommSplit; `newcomm` is written only on success, null for ONEBIT_SPLIT_NOCOLOR.
[[nodiscard]] inline onebitResult_t SplitComm(UniqueComm& newcomm, onebitComm_t comm, int color,
                                              int key,
                                              const onebitConfig_t* config = nullptr) noexcept {
  onebitComm_t handle = nullptr;
  const onebitResult_t result = onebitCommSplit(comm, color, key, &handle, config);
  if (result == onebitSuccess) newcomm.reset(handle);
  return result;
}

/// onebitCommShrink with ONEBIT_SHRINK_ABORT: the ranks of `comm` without `excluded` or, if that is
/// empty, those that come. `newcomm` is written only on success.
[[nodiscard]] inline onebitResult_t ShrinkComm(UniqueComm& newcomm, onebitComm_t comm,
                                               std::span<const int> excluded = {},
                                               const onebitConfig_t* config = nullptr) noexcept {
  onebitComm_t handle = nullptr;
  const onebitResult_t result =
      onebitCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &handle, config,
                       ONEBIT_SHRINK_ABORT);
  if (result == onebitSuccess) newcomm.reset(handle);
  return result;
}

/// onebitCompressorCreate; `compressor` is written only on success.
[[nodiscard]] inline onebitResult_t MakeCompressor(
    UniqueCompressor& compressor, onebitComm_t comm, std::size_t count, onebitDataType_t datatype,
    const onebitCompressorConfig_t* config = nullptr) noexcept {
  onebitCompressor_t handle = nullptr;
  const onebitResult_t result = onebitCompressorCreate(&handle, comm, count, datatype, config);
  if (result == onebitSuccess) compressor.reset(handle);
  return result;
}

/// onebitSyncCreate; `sync` is written only on success.
[[nodiscard]] inline onebitResult_t MakeSync(
    UniqueSync& sync, onebitCompressor_t compressor,
    const onebitSyncSchedule_t* schedule = nullptr) noexcept {
  onebitSync_t handle = nullptr;
  const onebitResult_t result = onebitSyncCreate(&handle, compressor, schedule);
  if (result == onebitSuccess) sync.reset(handle);
  return result;
}

/// onebitOptimizerCreate for `parameters`; `optimizer` is written only on success.
[[nodiscard]] inline onebitResult_t MakeOptimizer(
    UniqueOptimizer& optimizer, onebitComm_t comm, std::span<float> parameters,
    const onebitOptimizerConfig_t* config = nullptr) noexcept {
  onebitOptimizer_t handle = nullptr;
  const onebitResult_t result =
      onebitOptimizerCreate(&handle, comm, parameters.size(), parameters.data(), config);
  if (result == onebitSuccess) optimizer.reset(handle);
  return result;
}

namespace detail {

// Calls the Export function `write(buffer, bytes)` twice, for the length and for the state.
template <typename Write>
[[nodiscard]] onebitResult_t ExportInto(std::vector<std::byte>& state, Write write) noexcept {
  std::size_t bytes = 0;
  onebitResult_t result = write(nullptr, &bytes);
  if (result != onebitSuccess) return result;
  try {
    std::vector<std::byte> made(bytes);
    result = write(made.data(), &bytes);
    if (result == onebitSuccess) state = std::move(made);
    return result;
  } catch (const std::bad_alloc&) {
    return onebitOutOfMemory;
  }
}

}  // namespace detail

/// onebitCompressorExport into a vector of the state's length; `state` is written only on success.
[[nodiscard]] inline onebitResult_t ExportState(std::vector<std::byte>& state,
                                                onebitCompressor_t compressor,
                                                onebitStateKind_t kind) noexcept {
  return detail::ExportInto(state, [&](void* buffer, std::size_t* bytes) {
    return onebitCompressorExport(compressor, kind, buffer, bytes);
  });
}

/// onebitSyncExport; `state` is written only on success.
[[nodiscard]] inline onebitResult_t ExportState(std::vector<std::byte>& state, onebitSync_t sync,
                                                onebitStateKind_t kind) noexcept {
  return detail::ExportInto(state, [&](void* buffer, std::size_t* bytes) {
    return onebitSyncExport(sync, kind, buffer, bytes);
  });
}

/// onebitOptimizerExport; `state` is written only on success.
[[nodiscard]] inline onebitResult_t ExportState(std::vector<std::byte>& state,
                                                onebitOptimizer_t optimizer,
                                                onebitStateKind_t kind) noexcept {
  return detail::ExportInto(state, [&](void* buffer, std::size_t* bytes) {
    return onebitOptimizerExport(optimizer, kind, buffer, bytes);
  });
}

/// onebitCompressorImport.
[[nodiscard]] inline onebitResult_t ImportState(onebitCompressor_t compressor,
                                                std::span<const std::byte> state) noexcept {
  return onebitCompressorImport(compressor, state.data(), state.size());
}

/// onebitSyncImport.
[[nodiscard]] inline onebitResult_t ImportState(onebitSync_t sync,
                                                std::span<const std::byte> state) noexcept {
  return onebitSyncImport(sync, state.data(), state.size());
}

/// onebitOptimizerImport.
[[nodiscard]] inline onebitResult_t ImportState(onebitOptimizer_t optimizer,
                                                std::span<const std::byte> state) noexcept {
  return onebitOptimizerImport(optimizer, state.data(), state.size());
}

/// "name of the result: text of this thread's last error", for a log or your own exception.
[[nodiscard]] inline std::string Explain(onebitResult_t result) {
  std::string text = onebitGetErrorString(result);
  if (result == onebitSuccess) return text;
  return text.append(": ").append(onebitGetLastError(nullptr));
}

}  // namespace onebit

#endif  // ONEBIT_HPP_
