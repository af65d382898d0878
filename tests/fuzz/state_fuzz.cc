// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A state of arbitrary bytes: it is refused and the compressor is unchanged, or it is accepted, its
// residuals are finite, and the state saved afterwards is accepted again. The same for a sync and
// for an optimizer, which then makes steps.
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/digest.h"
#include "kernels/reference/elements.h"
#include "onebit/onebit.hpp"
#include "plan/algorithms.h"
#include "state/compressor_state.h"
#include "sync/one_bit_sync.h"

namespace {

using namespace onebit;

using Blob = std::vector<std::byte>;

constexpr size_t kHeadBytes = 40;
constexpr size_t kRowBytes = 24;

// Rank 1 of 3 of a tensor, without a communicator.
PlannedCompressor NewCompressor(uint8_t options) {
  Compressor::Config config = {
      .codec = {.kind = (options & 1) != 0 ? CodecKind::kSign : CodecKind::kEf, .block = 64},
      .count = 20,
      .is_transactional = (options & 2) == 0,
      .chunk_alignment = 8,
      .has_server_residual = (options & 4) == 0};
  if ((options & 8) != 0) config.residual_type = kernels::DataType::kBf16;
  const bool is_one_exchange = (options & 16) != 0;
  const PlanKey key = {.collective = Collective::kAllReduce,
                       .codec = config.codec,
                       .is_one_exchange = is_one_exchange,
                       .chunk_alignment = config.chunk_alignment,
                       .count = config.count};
  config.server_elements = is_one_exchange ? config.count : ChunksOf(key, 3).Chunk(1).count;
  return {.compressor = Compressor::Create(config).value(),
          .plan = std::make_shared<const Plan>(SelectPlan(key, 1, HostMap(3), 0))};
}

template <typename T>
T Get(std::span<const std::byte> blob, size_t offset) {
  T value;
  std::memcpy(&value, blob.data() + offset, sizeof(value));
  return value;
}
void Put(std::span<std::byte> blob, size_t offset, uint64_t value) {
  std::memcpy(blob.data() + offset, &value, sizeof(value));
}

// Corrects every checksum, so that the code behind the checks is reached.
void FixChecks(std::span<std::byte> blob) {
  if (blob.size() < kHeadBytes) return;
  const size_t header_bytes = Get<uint32_t>(blob, 24);
  if (header_bytes < kHeadBytes || header_bytes > blob.size()) return;
  size_t begin = header_bytes;
  for (size_t row = kHeadBytes; row + kRowBytes <= header_bytes; row += kRowBytes) {
    const auto tag = Get<uint32_t>(blob, row);
    const auto bytes = Get<uint64_t>(blob, row + 8);
    if (bytes > blob.size() - begin) break;
    const size_t padded = (bytes + 7) / 8 * 8;
    if (padded > blob.size() - begin) break;
    // A state inside the state.
    if (tag == static_cast<uint32_t>(SectionTag::kCompressor)) {
      FixChecks(blob.subspan(begin, bytes));
    }
    Put(blob, row + 16, DigestOf(blob.subspan(begin, padded), tag));
    begin += padded;
  }
  const std::span<const std::byte> header = blob.first(header_bytes);
  Put(blob, 32, DigestOf(header.subspan(kHeadBytes), DigestOf(header.first(32), 0)));
}

void ExpectFinite(const std::byte* residual, size_t elements, kernels::DataType type) {
  for (size_t i = 0; i < elements; ++i) {
    if (!std::isfinite(kernels::reference::LoadElement(residual, type, i))) std::abort();
  }
}

// A compressor, with or without a sync.
struct CompressorSubject {
  explicit CompressorSubject(uint8_t options) : planned(NewCompressor(options)) {
    if ((options & 32) == 0) return;
    sync = OneBitSync::Create(planned.compressor.config(), {.warmup_steps = 3}).value();
  }
  Status Import(const Blob& blob) {
    return sync ? sync->Import(blob, &planned) : ImportState(blob, &planned);
  }
  Blob State() {
    Blob blob(sync ? sync->StateBytes(planned, StateKind::kRank)
                   : StateBytesOf(planned, StateKind::kRank));
    if (sync) {
      if (!sync->ExportRank(planned, blob.data()).ok()) std::abort();
    } else {
      ExportRankState(planned, blob.data());
    }
    return blob;
  }
  void ExpectSound() {
    const Compressor& state = planned.compressor;
    const kernels::DataType type = state.config().residual_type;
    ExpectFinite(state.worker_in(0), state.worker_elements(), type);
    ExpectFinite(state.server_in(0), state.server_elements(), type);
  }

  PlannedCompressor planned;
  std::optional<OneBitSync> sync;
};

onebitComm_t TheComm() {
  static const UniqueComm comm = [] {
    std::array<UniqueComm, 1> comms;
    if (MakeComms(comms) != onebitSuccess) std::abort();
    return std::move(comms[0]);
  }();
  return comm.get();
}

// The only rank of an optimizer of any algorithm.
struct OptimizerSubject {
  static constexpr size_t kCount = 5;

  explicit OptimizerSubject(uint8_t options) {
    onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
    config.algorithm = options % 4 % 3;
    config.variant = (options & 4) != 0 ? onebitVariantDeepSpeed : onebitVariantPaper;
    if (config.algorithm == onebitAlgorithmZeroOneAdam) {
      config.varFreezeStep = 3;
      config.localStepScaler = 2;
    } else if ((options & 4) != 0 || options % 4 != 3) {
      config.freezeStep = 3;
    }  // else automatic, comparing with 4 steps before
    config.beta2 = 0.75;
    std::array<onebitSegment_t, 3> segments = {
        {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT}};
    segments[0].count = segments[1].offset = segments[2].offset = 3;
    segments[2].count = 2;
    segments[2].flags = onebitSegmentDense;
    config.segments = segments.data();
    config.segmentCount = segments.size();
    if (MakeOptimizer(optimizer, TheComm(), parameters, &config) != onebitSuccess) std::abort();
  }
  Status Import(const Blob& blob) {
    const onebitResult_t result = ImportState(optimizer.get(), blob);
    if (result == onebitSuccess) return OkStatus();
    return {static_cast<Code>(result), onebitGetLastError(nullptr)};
  }
  Blob State() const {
    Blob blob;
    if (ExportState(blob, optimizer.get(), onebitStateRank) != onebitSuccess) std::abort();
    return blob;
  }
  // With any numbers steps and a second phase must be possible, unless the compressor is
  // one for sums, which no optimizer creates.
  void ExpectSound() {
    for (int step = 0; step < 6; ++step) {
      if (step == 4) {
        ExpectDone(onebitOptimizerSync(optimizer.get()));
        const onebitResult_t result =
            onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_AUTOMATIC);
        const bool is_refused = result == onebitInvalidUsage || result == onebitInvalidArgument;
        if (result != onebitSuccess && !is_refused) std::abort();
      }
      std::array<float, kCount> gradients = {1, -0.5, 0, 2, 0.25};
      const double learning_rate = 0.01 * (step + 1);
      ExpectDone(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32,
                                     learning_rate, 1, 0, nullptr, nullptr));
    }
  }
  static void ExpectDone(onebitResult_t result) {
    if (result == onebitSuccess) return;
    const std::string text = onebitGetLastError(nullptr);
    const bool is_of_sums =
        result == onebitInvalidUsage && text.find("used with another op") != std::string::npos;
    if (!is_of_sums) std::abort();
  }

  std::array<float, kCount> parameters = {1, 2, 3, 4, 5};
  UniqueOptimizer optimizer;
};

template <typename AnySubject>
void Load(uint8_t options, const Blob& blob) {
  AnySubject subject(options);
  const Blob before = subject.State();
  if (const Status status = subject.Import(blob); !status.ok()) {
    const bool is_foreseen = status.code() == Code::kCorrupt || status.code() == Code::kMismatch ||
                             status.code() == Code::kInvalidArgument;
    if (!is_foreseen || status.text().empty() || subject.State() != before) std::abort();
    return;
  }
  const Blob after = subject.State();
  AnySubject again(options);
  if (!again.Import(after).ok() || again.State() != after) std::abort();
  subject.ExpectSound();
}

}  // namespace

// Byte 0: the object that loads it, bit 6 an optimizer; 1: bit 0 corrects checksums; rest: the
// state.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data + 2, size - 2));
  Blob blob(bytes.begin(), bytes.end());
  if ((data[1] & 1) != 0) FixChecks(blob);
  (data[0] & 64) != 0 ? Load<OptimizerSubject>(data[0], blob)
                      : Load<CompressorSubject>(data[0], blob);
  return 0;
}
