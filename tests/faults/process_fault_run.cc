// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/process_fault_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/format.h"
#include "tests/faults/fault_group.h"
#include "tests/faults/fault_recovery.h"

namespace onebit::testing {
namespace {

constexpr std::chrono::seconds kHang{60};

// Ends the program unless it is destroyed in time.
class Watchdog {
 public:
  explicit Watchdog(std::string what)
      : what_(std::move(what)), thread_([this](std::stop_token token) {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, token, kHang, [] { return false; })) return;
          if (token.stop_requested()) return;
          std::fprintf(stderr, "hangs: %s\n", what_.c_str());
          std::abort();
        }) {}

 private:
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // last: uses the other members
};

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

bool HasSameBytes(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0);
}

class Run {
 public:
  explicit Run(const FaultCase& one)
      : case_(one),
        expectation_(ExpectationOf(one)),
        reference_(ReferenceOf(one.call, one.size)),
        group_(one.transport, one.call, CountOf(one.call, one.size), expectation_.timeout_ms) {}

  FaultReport Report() {
    const auto before = group_.Call(kCallsBefore);
    for (const CallsOfRank& calls : before) {
      if (calls.result != onebitSuccess) Violation("the call before the fault failed", calls.text);
    }
    group_.faults().Arm(case_.fault());
    calls_ = group_.Call(kCaseCalls - kCallsBefore);
    if (!group_.faults().has_struck()) Violation("the fault did not strike", "");
    CheckErrors();
    CheckOutputs();
    CheckResiduals();
    report_.recovered = "not needed";
    if (has_failed()) {
      CheckRefusals();
      Recover();
    }
    return std::move(report_);
  }

 private:
  void Violation(const std::string& what, const std::string& detail) {
    report_.violations.push_back(detail.empty() ? what : what + ": " + detail);
  }

  bool has_failed() const {
    return std::any_of(calls_.begin(), calls_.end(),
                       [](const auto& calls) { return calls.result != onebitSuccess; });
  }
  bool IsCauseNamed(const std::string& text) const {
    return std::any_of(expectation_.causes.begin(), expectation_.causes.end(),
                       [&](std::string_view cause) { return Contains(text, cause); });
  }

  void CheckErrors() {
    report_.named = "nobody";
    if (!has_failed()) {
      if (!expectation_.causes.empty() && !expectation_.may_be_harmless) {
        Violation("nobody noticed", "");
      }
      return;
    }
    const FaultSwitch& faults = group_.faults();
    const std::string sender = Format("rank {}", kStruckRank);
    const std::string receiver = Format("rank {}", faults.struck_peer());
    report_.named = expectation_.is_sender_named ? "the rank" : "an end of the message";
    double slowest_ms = 0;
    for (const CallsOfRank& calls : calls_) {
      if (calls.result == onebitSuccess) continue;
      if (!IsCauseNamed(calls.text)) Violation("the cause is not named", calls.text);
      if (!Contains(calls.text, sender) &&
          (expectation_.is_sender_named || !Contains(calls.text, receiver))) {
        Violation("who it was is not named", calls.text);
      }
      const std::chrono::duration<double, std::milli> passed = calls.end - faults.struck_at();
      slowest_ms = std::max(slowest_ms, passed.count());
    }
    report_.detection_ms = slowest_ms;
  }

  // A rank that succeeded must have the result of a run without a fault.
  void CheckOutputs() {
    bool is_damaged = false;
    for (const CallsOfRank& calls : calls_) {
      for (size_t i = 0; i < calls.outputs.size(); ++i) {
        is_damaged |= !HasSameBytes(calls.outputs[i], reference_.outputs[kCallsBefore + i]);
      }
    }
    report_.outcome = is_damaged ? "wrong output" : has_failed() ? "error" : "success";
    if (is_damaged != expectation_.is_unseen) {
      Violation(is_damaged ? "a call succeeded with a wrong output" : "no output shows the damage",
                "");
    }
  }

  // Each rank must have the generation of its last success, byte for byte; generations differ by at
  // most one.
  void CheckResiduals() {
    report_.residuals = "none";
    if (!case_.call.mode) return;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const uint64_t epoch = group_.epoch(rank);
      least = std::min(least, epoch);
      most = std::max(most, epoch);
      const uint64_t successes = kCallsBefore + calls_[static_cast<size_t>(rank)].outputs.size();
      if (epoch != successes) {
        Violation("an epoch is not that of the last success",
                  Format("rank {}: {} instead of {}", rank, epoch, successes));
      } else if (ResidualsOf(group_.compressor(rank)) !=
                 reference_.residuals[epoch][static_cast<size_t>(rank)]) {
        Violation("residuals are of no generation", Format("rank {}, epoch {}", rank, epoch));
      }
    }
    if (most - least > 1)
      Violation("epochs are further apart than one", Format("{}", most - least));
    if (report_.violations.empty()) report_.residuals = "whole";
  }

  // A communicator that failed on one rank is out of use on all, and every call says why at once.
  void CheckRefusals() {
    for (const CallsOfRank& calls : group_.Call(1)) {
      if (calls.result == onebitSuccess) Violation("a failed communicator works", "");
      if (!IsCauseNamed(calls.text)) Violation("the refusal names no cause", calls.text);
    }
  }

  // All ranks continue, except one that is cut off.
  void Recover() {
    report_.recovered = "no";
    group_.faults().Arm({});
    std::vector<int> members;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      if (rank != kStruckRank || !CutsOff(case_.kind)) members.push_back(rank);
    }
    Recovery recovery(&group_, &reference_, members);
    // A rank that is cut off lives, so it would be waited for.
    const bool is_told = CutsOff(case_.kind);
    const auto is_well = [&](const Violations& violations) {
      for (const std::string& violation : violations) Violation("recovery", violation);
      return violations.empty();
    };
    if (is_well(recovery.Shrink(is_told)) && is_well(recovery.Rebind()) &&
        is_well(recovery.CheckState()) && is_well(recovery.CallAndCheck())) {
      report_.recovered = members.size() == kCaseRanks ? "yes" : "yes, without the rank";
    }
  }

  const FaultCase& case_;
  const Expectation expectation_;
  const Reference& reference_;
  FaultGroup group_;
  std::vector<CallsOfRank> calls_;
  FaultReport report_;
};

}  // namespace

FaultReport RunFaultCase(const FaultCase& one) {
  const Watchdog watchdog(one.Text());
  return Run(one).Report();
}

}  // namespace onebit::testing
