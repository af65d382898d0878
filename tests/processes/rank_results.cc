// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Prints a hash of the results for each kind of collective after several calls with error feedback:
// rank_results [RANKS]. With RANKS the ranks are threads over transport local, otherwise this
// process is one rank of a job. Only rank 0 prints: for an allreduce after all ranks were found to
// have equal results, for other collectives a hash over the results of all ranks.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "onebit/onebit.hpp"
#include "tests/support/sanitizers.h"

namespace {

constexpr int kCalls = 3;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, onebitGetLastError(nullptr));
  std::_Exit(1);
}

void Check(onebitResult_t result, const char* what) {
  if (result != onebitSuccess) Die(what);
}

uint64_t HashOf(const std::vector<uint8_t>& bytes, uint64_t hash) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return hash * 0x100000001b3u ^ std::hash<std::string_view>{}(text);
}

struct Kind {
  const char* name;
  onebitDataType_t type;
  size_t element_bytes;
  int mode;  // -1: dense
  onebitRedOp_t op = onebitAvg;
};

constexpr Kind kKinds[] = {{"dense float", onebitFloat32, 4, -1},
                           {"dense bfloat16", onebitBfloat16, 2, -1},
                           {"dense int64", onebitInt64, 8, -1},
                           {"dense uint8 max", onebitUint8, 1, -1, onebitMax},
                           {"dense float64 min", onebitFloat64, 8, -1, onebitMin},
                           {"ef float", onebitFloat32, 4, onebitModeEf},
                           {"ef half", onebitFloat16, 2, onebitModeEf},
                           {"sign float", onebitFloat32, 4, onebitModePlain}};
// A sanitizer's unoptimised build takes minutes for 700001, and a tenth has many chunks as well.
constexpr size_t kCounts[] = {0, 1, 1000, 8193, ONEBIT_HAS_SANITIZER ? 70'001 : 700'001};

// Any values of integers and fp64, of which only the largest or smallest is asked for. Finite
// values of the other types: exponents from the middle of fp16's, random signs and fractions.
void Fill(std::vector<uint8_t>* bytes, const Kind& kind, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t at = 0; at < bytes->size(); at += kind.element_bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<uint32_t>(state >> 32);
    if (kind.element_bytes == 1 || kind.element_bytes == 8) {
      std::memcpy(bytes->data() + at, &state, kind.element_bytes);
      continue;
    }
    if (kind.type == onebitFloat16) {
      const auto value = static_cast<uint16_t>((random & 0x83ff) | (12 + random % 5) << 10);
      std::memcpy(bytes->data() + at, &value, 2);
      continue;
    }
    const float value =
        (static_cast<float>(random >> 8) / (1 << 23) - 1) * static_cast<float>(1 + random % 7);
    if (kind.type == onebitFloat32) {
      std::memcpy(bytes->data() + at, &value, 4);
    } else {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      const auto high = static_cast<uint16_t>(bits >> 16);
      std::memcpy(bytes->data() + at, &high, 2);
    }
  }
}

uint64_t RunKind(onebitComm_t comm, int rank, const Kind& kind, size_t count) {
  std::vector<uint8_t> in(count * kind.element_bytes);
  std::vector<uint8_t> out(in.size());
  onebit::UniqueCompressor compressor;
  if (kind.mode >= 0) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = kind.mode;
    Check(onebit::MakeCompressor(compressor, comm, count, kind.type, &config), "create");
  }
  uint64_t hash = 0xcbf29ce484222325u;
  for (int call = 0; call < kCalls; ++call) {
    Fill(&in, kind, static_cast<uint64_t>(1000 * call + rank + 1));
    Check(onebitAllReduce(in.data(), out.data(), count, kind.type, kind.op, compressor.get(), comm,
                          nullptr),
          "allreduce");
    hash = HashOf(out, hash);
  }
  return hash;
}

constexpr size_t kPartCounts[] = {1, 1001, ONEBIT_HAS_SANITIZER ? 7'001 : 70'001};

struct PartsKind {
  const char* name;
  onebitCollective_t collective;
  bool sends_all, receives_all;  // the collective has a part for every rank
};
constexpr PartsKind kParts[] = {
    {"reduce-scatter", onebitCollectiveReduceScatter, true, false},
    {"all-gather", onebitCollectiveAllGather, false, true},
    {"all-to-all", onebitCollectiveAllToAll, true, true},
};

uint64_t RunParts(onebitComm_t comm, int rank, const PartsKind& parts, const Kind& kind,
                  size_t count) {
  int ranks = 0;
  onebitCommCount(comm, &ranks);
  const size_t all = static_cast<size_t>(ranks) * count * kind.element_bytes;
  std::vector<uint8_t> in(parts.sends_all ? all : count * kind.element_bytes);
  std::vector<uint8_t> out(parts.receives_all ? all : count * kind.element_bytes);
  onebit::UniqueCompressor compressor;
  if (kind.mode >= 0) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = kind.mode;
    config.collective = parts.collective;
    Check(onebit::MakeCompressor(compressor, comm, count, kind.type, &config), "create");
  }
  uint64_t hash = 0xcbf29ce484222325u;
  for (int call = 0; call < kCalls; ++call) {
    Fill(&in, kind, static_cast<uint64_t>(1000 * call + rank + 1));
    const auto c = compressor.get();
    switch (parts.collective) {
      case onebitCollectiveReduceScatter:
        Check(
            onebitReduceScatter(in.data(), out.data(), count, kind.type, kind.op, c, comm, nullptr),
            parts.name);
        break;
      case onebitCollectiveAllGather:
        Check(onebitAllGather(in.data(), out.data(), count, kind.type, c, comm, nullptr),
              parts.name);
        break;
      default:
        Check(onebitAllToAll(in.data(), out.data(), count, kind.type, c, comm, nullptr),
              parts.name);
    }
    hash = HashOf(out, hash);
  }
  std::vector<uint8_t> hashes(static_cast<size_t>(ranks) * sizeof(hash));
  Check(onebitAllGather(&hash, hashes.data(), sizeof(hash), onebitUint8, nullptr, comm, nullptr),
        "all-gather of hashes");
  return HashOf(hashes, 0xcbf29ce484222325u);
}

// Compares rank 0's hash with the own one on every rank.
void ExpectEqual(onebitComm_t comm, uint64_t hash) {
  uint64_t first = hash;
  Check(onebitBroadcast(&first, &first, 1, onebitInt64, 0, comm, nullptr), "broadcast");
  if (first != hash) Die("ranks differ");
}

// Makes calls of all kinds and sizes but the largest, one by one or as a group.
uint64_t RunAll(onebitComm_t comm, int rank, bool is_group) {
  struct Tensor {
    Kind kind;
    std::vector<uint8_t> in, out;
    onebit::UniqueCompressor compressor;
  };
  std::vector<Tensor> tensors;
  for (const Kind& kind : kKinds) {
    for (const size_t count : std::span(kCounts).first(4)) {
      Tensor& tensor = tensors.emplace_back();
      tensor.kind = kind;
      tensor.in.resize(count * kind.element_bytes);
      tensor.out.resize(tensor.in.size());
      if (kind.mode < 0) continue;
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.mode = kind.mode;
      Check(onebit::MakeCompressor(tensor.compressor, comm, count, kind.type, &config), "create");
    }
  }
  uint64_t hash = 0xcbf29ce484222325u;
  for (int call = 0; call < kCalls; ++call) {
    if (is_group) Check(onebitGroupStart(), "group start");
    uint64_t seed = static_cast<uint64_t>(1000 * call + rank + 1);
    for (Tensor& tensor : tensors) {
      Fill(&tensor.in, tensor.kind, seed += 100'000);
      Check(onebitAllReduce(tensor.in.data(), tensor.out.data(),
                            tensor.in.size() / tensor.kind.element_bytes, tensor.kind.type,
                            tensor.kind.op, tensor.compressor.get(), comm, nullptr),
            "allreduce");
    }
    if (is_group) Check(onebitGroupEnd(), "group end");
    for (const Tensor& tensor : tensors) hash = HashOf(tensor.out, hash);
  }
  return hash;
}

void RunRank(onebitComm_t comm) {
  int rank = 0;
  onebitCommUserRank(comm, &rank);
  for (const Kind& kind : kKinds) {
    for (const size_t count : kCounts) {
      const uint64_t hash = RunKind(comm, rank, kind, count);
      ExpectEqual(comm, hash);
      if (rank == 0) {
        std::printf("%s %zu: %016llx\n", kind.name, count, static_cast<unsigned long long>(hash));
      }
    }
  }
  const uint64_t hash = RunAll(comm, rank, true);
  ExpectEqual(comm, hash);
  if (hash != RunAll(comm, rank, false)) Die("a group's results are not those of its calls");
  if (rank == 0) std::printf("group: %016llx\n", static_cast<unsigned long long>(hash));
  for (const PartsKind& parts : kParts) {
    for (const Kind& kind : kKinds) {
      for (const size_t count : kPartCounts) {
        const uint64_t hash = RunParts(comm, rank, parts, kind, count);
        if (rank != 0) continue;
        std::printf("%s %s %zu: %016llx\n", parts.name, kind.name, count,
                    static_cast<unsigned long long>(hash));
      }
    }
  }
  Check(onebitCommFinalize(comm), "finalize");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    std::vector<onebit::UniqueComm> comms(static_cast<size_t>(std::atoi(argv[1])));
    Check(onebit::MakeComms(comms), "onebitCommInitAll");
    std::vector<std::jthread> threads;
    for (auto& comm : comms) threads.emplace_back([&comm] { RunRank(comm.get()); });
    return 0;
  }
  onebitComm_t comm = nullptr;
  Check(onebitCommInitEnv(&comm, nullptr), "onebitCommInitEnv");
  const onebit::UniqueComm owner(comm);
  RunRank(comm);
  return 0;
}
