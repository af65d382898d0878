// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_recovery.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/format.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

constexpr int kCallsAfter = 3;
constexpr int kFirstInputAfter = 50;  // input numbers that no earlier call has used
constexpr double kTelescopingTolerance = 1e-5;

void Append(Violations* all, Violations more) {
  all->insert(all->end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

std::vector<float> FloatsOf(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void AddTo(std::vector<double>* sum, const std::vector<float>& values, double factor) {
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += factor * static_cast<double>(values[i]);
}

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

Recovery::Recovery(FaultGroup* group, const Reference* reference, std::vector<int> members)
    : group_(*group), reference_(*reference), members_(std::move(members)) {
  for (size_t m = 0; m < members_.size() && group_.kind().mode; ++m) {
    epoch_ = std::max(epoch_, group_.epoch(members_[m]));
  }
}

Violations Recovery::OnAll(const char* what,
                           const std::function<onebitResult_t(size_t member)>& call) {
  std::vector<std::string> errors(members_.size());
  {
    std::vector<std::jthread> threads;
    for (size_t m = 0; m < members_.size(); ++m) {
      threads.emplace_back([&, m] {
        const onebitResult_t result = call(m);
        if (result == onebitSuccess) return;
        errors[m] = Format("{} failed with {}: {}", what, static_cast<int>(result),
                           onebitGetLastError(nullptr));
      });
    }
  }
  std::erase(errors, "");
  return errors;
}

Violations Recovery::Shrink(bool is_told) {
  std::vector<int> others;
  int ranks = 0;
  onebitCommCount(comm(0), &ranks);
  for (int rank = 0; rank < ranks && comms_.empty(); ++rank) {
    if (std::ranges::find(members_, rank) == members_.end()) others.push_back(rank);
  }
  std::vector<onebitComm_t> made(members_.size());
  const Violations violations = OnAll("onebitCommShrink", [&](size_t m) {
    return is_told
               ? onebitCommShrink(comm(m), others.data(), static_cast<int>(others.size()), &made[m],
                                  nullptr, ONEBIT_SHRINK_DEFAULT)
               : onebitCommShrink(comm(m), nullptr, 0, &made[m], nullptr, ONEBIT_SHRINK_DEFAULT);
  });
  older_comms_.push_back(std::move(comms_));
  comms_.clear();
  for (onebitComm_t comm : made) comms_.emplace_back(comm);
  if (!violations.empty()) return violations;
  for (size_t m = 0; m < members_.size(); ++m) {
    int rank = -1;
    onebitCommCount(comm(m), &ranks);
    onebitCommUserRank(comm(m), &rank);
    if (rank != static_cast<int>(m) || ranks != static_cast<int>(members_.size())) {
      return {Format("rank {} became rank {} of {}", members_[m], rank, ranks)};
    }
  }
  return {};
}

Violations Recovery::Rebind() {
  if (!group_.kind().mode) return {};
  std::vector<int> sources(members_.size(), -1);
  Violations violations = OnAll("onebitCompressorRebind", [&](size_t m) {
    return onebitCompressorRebind(compressor(m), comm(m), &sources[m]);
  });
  if (!violations.empty()) return violations;
  for (const int source : sources) {
    if (source != sources[0] || source < 0 || source >= static_cast<int>(members_.size())) {
      violations.push_back(Format("source is {} here, {} there", source, sources[0]));
    }
  }
  return violations;
}

std::vector<float> Recovery::ServerResidual() const {
  std::vector<float> all;
  for (size_t m = 0; m < members_.size(); ++m) {
    const std::vector<float> part = FloatsOf(ResidualsOf(compressor(m)).server);
    all.insert(all.end(), part.begin(), part.end());
    if (group_.kind().is_one_exchange) break;
  }
  return all;
}

std::vector<float> Recovery::ExpectedServerResidual() const {
  std::vector<float> all;
  for (int rank = 0; rank < kCaseRanks; ++rank) {
    std::vector<float> part =
        FloatsOf(reference_.residuals[epoch_][static_cast<size_t>(rank)].server);
    if (group_.kind().is_one_exchange) return part;
    if (std::ranges::find(members_, rank) == members_.end()) std::ranges::fill(part, 0.0f);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Violations Recovery::CheckState() const {
  if (!group_.kind().mode) return {};
  Violations violations;
  size_t lost = 0;
  for (int rank = 0; rank < kCaseRanks && !group_.kind().is_one_exchange; ++rank) {
    if (std::ranges::find(members_, rank) != members_.end()) continue;
    lost += reference_.residuals[epoch_][static_cast<size_t>(rank)].server.size() / sizeof(float);
  }
  for (size_t m = 0; m < members_.size(); ++m) {
    const onebitCompressorStats_t stats = StatsOf(compressor(m));
    if (stats.epoch != epoch_) {
      violations.push_back(Format("rank {} has epoch {}, not {}", m, stats.epoch, epoch_));
    }
    if (stats.lost_elements != lost || stats.residual_resets != 0) {
      violations.push_back(Format("rank {} says that {} elements are lost, not {}; {} resets", m,
                                  stats.lost_elements, lost, stats.residual_resets));
    }
    if (ResidualsOf(compressor(m)).worker !=
        reference_.residuals[epoch_][static_cast<size_t>(members_[m])].worker) {
      violations.push_back(Format("rank {}: another worker residual", m));
    }
  }
  if (has_server_residual() && ServerResidual() != ExpectedServerResidual()) {
    violations.emplace_back("another server residual");
  }
  return violations;
}

Violations Recovery::CallAndCheck() {
  std::vector<std::vector<std::vector<float>>> outputs(members_.size());
  Violations violations = OnAll("a call after the recovery", [&](size_t m) {
    for (int call = 0; call < kCallsAfter; ++call) {
      std::vector<float> values =
          FaultGroup::InputOf(members_[m], kFirstInputAfter + call, group_.count());
      const onebitResult_t result =
          onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                          compressor(m), comm(m), nullptr);
      if (result != onebitSuccess) return result;
      outputs[m].push_back(std::move(values));
    }
    return onebitSuccess;
  });
  if (!violations.empty()) return violations;
  for (size_t m = 0; m < members_.size(); ++m) {
    if (outputs[m] != outputs[0]) violations.push_back(Format("rank {} has another output", m));
    if (group_.kind().mode && group_.epoch(members_[m]) != epoch_ + kCallsAfter) {
      violations.push_back(Format("rank {} has epoch {}", m, group_.epoch(members_[m])));
    }
  }
  if (has_server_residual() && members_.size() == kCaseRanks) {
    Append(&violations, CheckIdentity(outputs[0]));
  }
  return violations;
}

// sum out + mean_r e_r + concat s = sum mean x, over all committed calls.
Violations Recovery::CheckIdentity(const std::vector<std::vector<float>>& outputs) const {
  std::vector<double> sent(group_.count(), 0.0);
  std::vector<double> given(group_.count(), 0.0);
  const auto add_inputs = [&](int call) {
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      AddTo(&given, FaultGroup::InputOf(rank, call, group_.count()), 1.0 / kCaseRanks);
    }
  };
  for (size_t call = 0; call < epoch_; ++call) {
    AddTo(&sent, reference_.outputs[call], 1);
    add_inputs(static_cast<int>(call));
  }
  for (size_t call = 0; call < outputs.size(); ++call) {
    AddTo(&sent, outputs[call], 1);
    add_inputs(kFirstInputAfter + static_cast<int>(call));
  }
  double scale = LargestOf(given);
  for (size_t m = 0; m < members_.size(); ++m) {
    const std::vector<float> residual = WorkerResidualOf(compressor(m));
    for (const float value : residual) {
      scale = std::max(scale, std::abs(static_cast<double>(value)));
    }
    AddTo(&sent, residual, 1.0 / kCaseRanks);
  }
  if (!sent.empty()) AddTo(&sent, ServerResidual(), 1);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] -= given[i];
  const double error = LargestOf(sent);
  if (error <= kTelescopingTolerance * scale) return {};
  return {Format("the telescoping identity is off by {:.3g} of {:.3g}", error, scale)};
}

}  // namespace onebit::testing
