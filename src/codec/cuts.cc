// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/cuts.h"

#include <algorithm>

#include "base/bits.h"
#include "codec/message_header.h"

namespace onebit {

Result<std::shared_ptr<const Cuts>> Cuts::Create(std::span<const size_t> offsets, size_t count) {
  if (offsets.empty()) return std::shared_ptr<const Cuts>();
  auto cuts = std::make_shared<Cuts>();
  size_t begin = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] <= begin || offsets[i] >= count) {
      return Error(Code::kInvalidArgument,
                   "compressor config: cuts[{}] is {}, but must be above {}, {}, and below the "
                   "count, {}",
                   i, offsets[i], begin, i == 0 ? "the first element" : "the cut before it", count);
    }
    begin = offsets[i];
  }
  cuts->ends_.assign(offsets.begin(), offsets.end());
  cuts->digest_ = ContentDigest(std::as_bytes(offsets));
  cuts->ends_.push_back(count);
  for (size_t run = 0; run < cuts->ends_.size(); ++run) {
    cuts->first_bytes_.push_back(cuts->mask_bytes_);
    cuts->mask_bytes_ += kernels::BitBytes(cuts->ends_[run] - cuts->BeginOf(run));
  }
  return std::shared_ptr<const Cuts>(std::move(cuts));
}

size_t Cuts::RunOf(size_t element) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end() - 1, element);
  return static_cast<size_t>(end - ends_.begin());
}

size_t Cuts::AtOrBefore(size_t element) const { return BeginOf(RunOf(element)); }

size_t Cuts::After(size_t element) const { return ends_[RunOf(element)]; }

size_t Cuts::MaskByte(size_t element) const {
  const size_t run = RunOf(element);
  return first_bytes_[run] + (element - BeginOf(run)) / 8;
}

std::vector<uint8_t> Cuts::Spread(std::span<const uint8_t> mask) const {
  std::vector<uint8_t> spread(mask_bytes_);
  for (size_t run = 0; run < ends_.size(); ++run) {
    CopyBits(mask, BeginOf(run), ends_[run] - BeginOf(run), spread.data() + first_bytes_[run]);
  }
  return spread;
}

}  // namespace onebit
