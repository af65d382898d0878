// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_optimizer.h"

#include <cstring>
#include <string_view>

#include "base/state_differences.h"

namespace onebit::optim {
namespace {

// A row of the segment table.
struct SavedSegment {
  uint64_t count = 0;
  uint32_t is_dense = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(SavedSegment) == 16);

const char* NameOfAlgorithm(uint32_t algorithm) {
  switch (algorithm) {
    case onebitAlgorithmOneBitAdam:
    case onebitAlgorithmOneBitLamb:
    case onebitAlgorithmZeroOneAdam:
      return NameOf(static_cast<onebitAlgorithm_t>(algorithm));
  }
  return "an unknown one";
}

const char* NameOfVariant(uint32_t variant) {
  return variant == static_cast<uint32_t>(Variant::kPaper) ? "paper" : "deepspeed";
}

// Uses the constants' names.
std::string NameOfFreeze(int64_t step) {
  if (step == ONEBIT_FREEZE_AUTOMATIC) return "automatic";
  if (step == ONEBIT_FREEZE_SETTLED) return "settled";
  if (step == ONEBIT_FREEZE_NEVER) return "never";
  return Format("{}", step);
}

}  // namespace

Status Damaged(std::string_view what) {
  return Error(Code::kCorrupt, "the state is damaged: {}", what);
}

SavedHead HeadOf(const Options& options, const SegmentTable& table, size_t count) {
  const PolicyOptions& policy = options.policy;
  SavedHead head = {.count = count,
                    .segments = table.segments().size(),
                    .algorithm = static_cast<uint32_t>(policy.algorithm),
                    .variant = static_cast<uint32_t>(policy.variant),
                    .beta2 = options.beta2};
  if (policy.algorithm != onebitAlgorithmZeroOneAdam) {
    head.freeze_step = policy.freeze_step;
    head.lr_warmup_steps = policy.lr_warmup_steps;
    return head;
  }
  const ZeroOnePolicy& steps = policy.zero_one;
  head.var_freeze_step = steps.var_freeze_step;
  head.var_update_scaler = steps.var_update_scaler;
  head.local_step_scaler = steps.local_step_scaler;
  head.local_step_clipper = steps.local_step_clipper;
  head.local_step_start = steps.local_step_start;
  head.rate_tied = steps.is_rate_tied ? 1 : 0;
  head.dense_step_feeds_momentum = steps.dense_step_feeds_momentum ? 1 : 0;
  return head;
}

size_t OptimizerSectionBytes(const SegmentTable& table) {
  return sizeof(SavedHead) + table.segments().size() * sizeof(SavedSegment);
}

void WriteOptimizerSection(const SavedHead& head, const SegmentTable& table, std::byte* section) {
  std::memcpy(section, &head, sizeof(head));
  section += sizeof(head);
  for (const Segment& segment : table.segments()) {
    const SavedSegment row = {.count = segment.count, .is_dense = segment.is_dense ? 1u : 0u};
    std::memcpy(section, &row, sizeof(row));
    section += sizeof(row);
  }
}

Result<SavedOptimizer> SavedOptimizer::Read(std::span<const std::byte> blob) {
  ONEBIT_ASSIGN_OR_RETURN(const StateReader reader, StateReader::Open(blob));
  SavedOptimizer saved;
  saved.is_global = reader.kind() == StateKind::kOptimizerGlobal;
  if (!saved.is_global && reader.kind() != StateKind::kOptimizerRank) {
    return WrongKind(reader.kind());
  }
  const auto section = reader.section(SectionTag::kOptimizer);
  const auto values = reader.section(SectionTag::kValues);
  const auto elements = reader.section(SectionTag::kElements);
  saved.compressor = reader.section(SectionTag::kCompressor);
  const size_t section_count = saved.compressor.has_value() ? 4 : 3;
  if (!section || section->size() < sizeof(SavedHead)) {
    return Damaged("the section of its settings is missing or cut off");
  }
  if (!values || !elements) return Damaged("the section of its values or elements is missing");
  if (reader.section_count() != section_count) {
    return Damaged("it has sections that no optimizer has");
  }
  std::memcpy(&saved.head, section->data(), sizeof(SavedHead));
  saved.segments = section->subspan(sizeof(SavedHead));
  if (saved.head.segments != saved.segments.size() / sizeof(SavedSegment) ||
      saved.segments.size() % sizeof(SavedSegment) != 0) {
    return Damaged("its table of segments has the wrong length");
  }
  saved.values = *values;
  saved.elements = *elements;
  return saved;
}

std::string SavedOptimizer::DescribeDifference(const SavedHead& here,
                                               const SegmentTable& table) const {
  Differences differences;
  differences
      .Compare<std::string_view>("algorithm", NameOfAlgorithm(head.algorithm),
                                 NameOfAlgorithm(here.algorithm))
      .Compare<std::string_view>("variant", NameOfVariant(head.variant),
                                 NameOfVariant(here.variant))
      .Compare("count", head.count, here.count)
      .Compare("segmentCount", head.segments, here.segments)
      .Compare("beta2", head.beta2, here.beta2);
  // Policies of different algorithms cannot be compared.
  if (head.algorithm == here.algorithm) {
    differences
        .Compare("freezeStep", NameOfFreeze(head.freeze_step), NameOfFreeze(here.freeze_step))
        .Compare("lrWarmupSteps", head.lr_warmup_steps, here.lr_warmup_steps)
        .Compare("varFreezeStep", head.var_freeze_step, here.var_freeze_step)
        .Compare("varUpdateScaler", head.var_update_scaler, here.var_update_scaler)
        .Compare("localStepScaler", head.local_step_scaler, here.local_step_scaler)
        .Compare("localStepClipper", head.local_step_clipper, here.local_step_clipper)
        .Compare("localStepStart", head.local_step_start, here.local_step_start)
        .Compare("rateTied", head.rate_tied, here.rate_tied)
        .Compare("denseStepFeedsMomentum", head.dense_step_feeds_momentum,
                 here.dense_step_feeds_momentum);
  }
  if (!is_global) {
    differences.Compare("ranks", head.ranks, here.ranks).Compare("rank", head.rank, here.rank);
  }
  if (head.segments != here.segments) return differences.Take();
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const Segment& segment = table.segments()[i];
    SavedSegment row;
    std::memcpy(&row, segments.data() + i * sizeof(row), sizeof(row));
    const std::string name = Format("segments[{}].", i);
    differences.Compare(name + "count", row.count, uint64_t{segment.count})
        .Compare(name + "flags & onebitSegmentDense", row.is_dense, segment.is_dense ? 1u : 0u);
  }
  return differences.Take();
}

}  // namespace onebit::optim
