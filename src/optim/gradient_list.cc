// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gradient_list.h"

#include <utility>

#include "optim/gradient_elements.h"

namespace onebit::optim {

Status GradientList::Add(size_t segment, void* data, kernels::DataType type) {
  Entry& entry = entries_[segment];
  if (entry.is_given) {
    return Error(Code::kInvalidUsage,
                 "segment {} already has a gradient for the next step: make the step, or discard "
                 "all gradients added so far (ONEBIT_ALL_SEGMENTS)",
                 segment);
  }
  entry.is_given = true;
  by_segment_[segment] = {data, type};
  ++given_count_;
  return OkStatus();
}

Status GradientList::SetBuffer(void* buffer, kernels::DataType type) {
  if (given_count_ != 0) {
    return Error(Code::kInvalidUsage,
                 "gradients is not NULL, but {} of {} segments have a gradient from "
                 "onebitOptimizerAddGradient: use one of the two",
                 given_count_, entries_.size());
  }
  for (size_t i = 0; i < by_segment_.size(); ++i) {
    by_segment_[i] = {ElementAt(buffer, type, table_.segments()[i].offset), type};
  }
  buffer_ = buffer;
  return OkStatus();
}

Status GradientList::CheckComplete() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_given || table_.segments()[i].count == 0) continue;
    return Error(
        Code::kInvalidUsage,
        "gradients is NULL, and {} of {} segments have a gradient from onebitOptimizerAddGradient, "
        "but segment {} has none: add NULL if its parameters took no part",
        given_count_, entries_.size(), i);
  }
  return OkStatus();
}

void GradientList::Forget() {
  for (Entry& entry : entries_) entry.is_given = false;
  given_count_ = 0;
  buffer_ = nullptr;
}

Status GradientList::FillZeros(Arithmetic* arithmetic) {
  if (buffer_ != nullptr) return OkStatus();
  for (size_t i = 0; i < entries_.size(); ++i) {
    Gradient& gradient = by_segment_[i];
    const size_t bytes = table_.segments()[i].count * kernels::BytesOf(gradient.type);
    if (!entries_[i].is_given || gradient.data != nullptr || bytes == 0) continue;
    Memory& zeros = entries_[i].zeros;
    if (zeros.size() == 0) {  // large enough for every type, so that it is never replaced
      ONEBIT_ASSIGN_OR_RETURN(
          zeros,
          arithmetic->Allocate(table_.segments()[i].count * sizeof(float), "a gradient of zeros"));
    }
    gradient.data = zeros.data();
    arithmetic->Clear(zeros.data(), bytes);
  }
  return OkStatus();
}

size_t GradientList::bytes() const {
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.zeros.size();
  return bytes;
}

}  // namespace onebit::optim
