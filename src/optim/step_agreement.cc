// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/step_agreement.h"

#include <bit>
#include <span>
#include <string>

#include "base/digest.h"
#include "optim/gather_numbers.h"

namespace onebit::optim {
namespace {

// A number that ranks compare, bit by bit.
struct Compared {
  enum class Kind { kReal, kCount, kDigest };

  std::string name;
  uint64_t bits = 0;
  Kind kind = Kind::kReal;
  const char* remedy = "set it to the same value on all ranks";
};

std::string TextOf(uint64_t bits, Compared::Kind kind) {
  switch (kind) {
    case Compared::Kind::kReal:
      return Format("{}", std::bit_cast<double>(bits));
    case Compared::Kind::kCount:
      return Format("{}", bits);
    case Compared::Kind::kDigest:
      return Format("digest {:016x}", bits);
  }
  return "";
}

// The values that tell every rank whether there is a difference anywhere.
std::vector<Compared> Summary(const StepNumbers& numbers, const Options& options,
                              size_t segment_count, uint64_t digest_of_segments) {
  const auto real = [](const char* name, double value) {
    return Compared{name, std::bit_cast<uint64_t>(value)};
  };
  const auto flag = [](const char* name, bool value) {
    return Compared{name, value ? 1u : 0u, Compared::Kind::kCount};
  };
  return {
      real("learning_rate", numbers.learning_rate),
      real("grad_scale", numbers.grad_scale),
      real("max_grad_norm", numbers.max_grad_norm),
      real("beta1", options.beta1),
      real("beta2", options.beta2),
      real("eps", options.eps),
      real("varianceFloor", options.variance_floor),
      flag("biasCorrection", options.has_bias_correction),
      flag("clipNorm", options.clips_average),
      {"scales",
       static_cast<uint64_t>(options.has_fused_scales ? onebitScalesFused : onebitScalesSegment),
       Compared::Kind::kCount},
      real("minCoeff", options.lamb.min_coefficient),
      real("maxCoeff", options.lamb.max_coefficient),
      real("coeffBeta", options.lamb.beta),
      real("factorMin", options.lamb.min_factor),
      real("factorMax", options.lamb.max_factor),
      real("factorThreshold", options.lamb.threshold),
      {"segmentCount", segment_count, Compared::Kind::kCount},
      {"the table of segments, or their parameters,", digest_of_segments, Compared::Kind::kDigest},
  };
}

// The values of all segments, which ranks that differ in them compare to name the first difference.
std::vector<Compared> Details(const SegmentTable& table, const std::vector<uint64_t>& digests) {
  std::vector<Compared> details;
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const Segment& segment = table.segments()[i];
    const std::string name = Format("segments[{}].", i);
    details.push_back({name + "count", segment.count, Compared::Kind::kCount});
    details.push_back({name + "lrScale", std::bit_cast<uint64_t>(segment.lr_scale)});
    details.push_back({name + "weightDecay", std::bit_cast<uint64_t>(segment.weight_decay)});
    const uint64_t flags = (segment.is_dense ? uint64_t{onebitSegmentDense} : 0) |
                           (segment.has_trust_ratio ? 0 : uint64_t{onebitSegmentNoTrustRatio}) |
                           (segment.has_rare_rows ? uint64_t{onebitSegmentRareRows} : 0);
    details.push_back({name + "flags", flags, Compared::Kind::kCount});
    if (digests.empty()) continue;
    details.push_back({"what the parameters of " + Format("segments[{}]", i) + " are", digests[i],
                       Compared::Kind::kDigest,
                       "broadcast those of one rank to all (onebitBroadcast)"});
  }
  return details;
}

std::vector<uint64_t> BitsOf(const std::vector<Compared>& values) {
  std::vector<uint64_t> bits;
  for (const Compared& value : values) bits.push_back(value.bits);
  return bits;
}

// Returns an error for the first difference between rank 0 and another rank, in `values` from
// `first` to before `last`.
Status FindDifference(const RankNumbers& all, const std::vector<Compared>& values, int rank,
                      size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    for (size_t other = 1; other < all.ranks(); ++other) {
      if (all.At(other, i) == all.At(0, i)) continue;
      return Error(Code::kMismatch,
                   "rank {}: {} differs between ranks: rank 0 has {}, rank {} {}; {}", rank,
                   values[i].name, TextOf(all.At(0, i), values[i].kind), other,
                   TextOf(all.At(other, i), values[i].kind), values[i].remedy);
    }
  }
  return OkStatus();
}

}  // namespace

Status CompareStep(onebitComm_t comm, int rank, const StepNumbers& numbers, const Options& options,
                   const SegmentTable& table, const std::vector<uint64_t>& parameter_digests) {
  const std::vector<Compared> details = Details(table, parameter_digests);
  const std::vector<uint64_t> detail_bits = BitsOf(details);
  const uint64_t digest = DigestOf(std::as_bytes(std::span(detail_bits)), 0);
  const std::vector<Compared> summary = Summary(numbers, options, table.segments().size(), digest);
  ONEBIT_ASSIGN_OR_RETURN(const RankNumbers all, GatherNumbers(comm, rank, BitsOf(summary)));
  const size_t digest_at = summary.size() - 1;
  ONEBIT_TRY(FindDifference(all, summary, rank, 0, digest_at));
  const Status status = FindDifference(all, summary, rank, digest_at, summary.size());
  if (status.ok() || details.empty()) return status;
  // All ranks have as many segments, and know of the difference.
  ONEBIT_ASSIGN_OR_RETURN(const RankNumbers named, GatherNumbers(comm, rank, detail_bits));
  ONEBIT_TRY(FindDifference(named, details, rank, 0, details.size()));
  return status;
}

}  // namespace onebit::optim
