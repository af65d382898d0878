// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/examples/example_ranks.h"

#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace onebit::examples {
namespace {

constexpr int kBlock = 4096;

// Rand-k's numbers are those of Philox under the key (5, 0): the library flips the upper half.
constexpr uint64_t kSeed = 0xffff'ffff'0000'0005u;

}  // namespace

void Check(onebitResult_t result) {
  if (result != onebitSuccess) throw std::runtime_error(onebitGetLastError(nullptr));
}

void RunRanks(int ranks, const std::function<void(onebitComm_t comm, int rank)>& body) {
  std::vector<UniqueComm> comms(static_cast<size_t>(ranks));
  Check(MakeComms(comms));
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      onebitComm_t const comm = comms[static_cast<size_t>(rank)].get();
      try {
        body(comm, rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
        onebitCommAbort(comm);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

// k is that of a whole block, of which a shorter one sends its share, rounded up.
UniqueCompressor SparseCompressor(onebitComm_t comm, onebitCodec_t codec, onebitMode_t mode,
                                  size_t count, size_t kept, int64_t tensor_id, int hops) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = codec;
  config.mode = mode;
  config.block = kBlock;
  config.k = static_cast<int32_t>(kept * kBlock / count);
  config.values = onebitValuesFloat32;
  config.hops = hops;
  config.tensorId = tensor_id;
  config.seed = codec == onebitCodecRandk ? kSeed : 0;
  UniqueCompressor compressor;
  Check(MakeCompressor(compressor, comm, count, onebitFloat32, &config));
  return compressor;
}

}  // namespace onebit::examples
