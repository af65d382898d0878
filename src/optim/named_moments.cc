// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Moments of an optimizer by their names, one segment at a time: for checkpoints of other formats.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "optim/gradient_elements.h"
#include "optim/optimizer_base.h"

namespace onebit::optim {

std::vector<Moment> Optimizer::Moments() const {
  return {{"m", {Floats(m_), count_}}, {"v", {Floats(v_), count_}, false}};
}

Result<Moment> Optimizer::FindMoment(std::string_view name, size_t segment) {
  const std::vector<Moment> moments = Moments();
  const auto found = std::ranges::find(moments, name, &Moment::name);
  if (found == moments.end()) {
    std::string names;
    for (const Moment& moment : moments) AppendFormat(&names, " \"{}\"", moment.name);
    return Error(Code::kInvalidArgument, "name is \"{}\", but the moments of this {} are{}", name,
                 NameOf(options_.policy.algorithm), names);
  }
  Moment moment = *found;
  if (segment != ONEBIT_ALL_SEGMENTS) {
    const Segment& part = table_.segments()[segment];
    moment.elements = moment.elements.subspan(part.offset, part.count);
  }
  return moment;
}

Status Optimizer::ReadMoment(const Moment& moment, float* values) {
  arithmetic_->Copy(values, moment.elements.data(), moment.elements.size_bytes());
  return arithmetic_->Await(nullptr);
}

Status Optimizer::WriteMoment(const Moment& moment, const float* values) {
  ONEBIT_TRY(CheckWhole());
  std::vector<float> checked(moment.elements.size());
  arithmetic_->Copy(checked.data(), values, moment.elements.size_bytes());
  ONEBIT_TRY(arithmetic_->Await(nullptr));
  for (size_t i = 0; i < checked.size(); ++i) {
    if (std::isfinite(checked[i]) && (moment.may_be_negative || checked[i] >= 0)) continue;
    return Error(Code::kInvalidArgument, "element {} of moment \"{}\" is {}, but must be finite{}",
                 i, moment.name, checked[i], moment.may_be_negative ? "" : " and not negative");
  }
  arithmetic_->Copy(moment.elements.data(), checked.data(), moment.elements.size_bytes());
  if (Status status = arithmetic_->Await(nullptr); !status.ok()) return Torn(std::move(status));
  ForgetDerivedState();
  return OkStatus();
}

}  // namespace onebit::optim
