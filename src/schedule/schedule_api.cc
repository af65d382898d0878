// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of schedule.h: check arguments and convert Status to onebitResult_t.
#include <cmath>
#include <utility>

#include "base/config_head.h"
#include "base/fork.h"
#include "base/guard.h"
#include "base/status.h"
#include "onebit/schedule.h"
#include "schedule/policy.h"
#include "schedule/policy_options.h"

struct onebitPolicy_s {
  onebit::Policy policy;
  const onebit::Origin origin = {};
};

namespace onebit {
namespace {

Status CheckNotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is NULL", name);
}

Status CheckRate(double learning_rate) {
  if (learning_rate >= 0 && std::isfinite(static_cast<float>(learning_rate))) return OkStatus();
  return Error(Code::kInvalidArgument, "learning_rate is {}, but must be finite and >= 0",
               learning_rate);
}

Status Create(onebitPolicy_t* policy, const onebitPolicyConfig_t* config) {
  ONEBIT_TRY(CheckNotNull(policy, "policy"));
  const onebitPolicyConfig_t defaults = ONEBIT_POLICY_CONFIG_INIT;
  if (config == nullptr) config = &defaults;
  ONEBIT_TRY(CheckConfigHead("policy config", "ONEBIT_POLICY_CONFIG_INIT",
                             {config->size, config->magic, config->version},
                             {defaults.size, defaults.magic, defaults.version}));
  ONEBIT_ASSIGN_OR_RETURN(const PolicyOptions options, ReadPolicyOptions(*config));
  *policy = new onebitPolicy_s{Policy(options)};
  return OkStatus();
}

Status Next(onebitPolicy_t policy, double learning_rate, onebitStepPlan_t* plan) {
  ONEBIT_TRY(CheckHandle(policy, "policy"));
  ONEBIT_TRY(CheckNotNull(plan, "plan"));
  if (plan->size < sizeof(*plan)) {
    return Error(Code::kInvalidArgument, "plan->size is {}, but must be its sizeof", plan->size);
  }
  ONEBIT_TRY(CheckRate(learning_rate));
  policy->policy.Next(learning_rate, plan);
  return OkStatus();
}

Status Commit(onebitPolicy_t policy, double learning_rate, double variance_sum) {
  ONEBIT_TRY(CheckHandle(policy, "policy"));
  ONEBIT_TRY(CheckRate(learning_rate));
  if (policy->policy.needs_variance_sum() && !(variance_sum >= 0 && std::isfinite(variance_sum))) {
    return Error(Code::kInvalidArgument,
                 "variance_sum is {}, but the automatic freeze needs it finite and >= 0",
                 variance_sum);
  }
  policy->policy.Commit(learning_rate, variance_sum);
  return OkStatus();
}

template <typename Body>
onebitResult_t Guard(Body&& body) noexcept {
  return GuardAs<onebitResult_t>(std::forward<Body>(body));
}

}  // namespace
}  // namespace onebit

onebitResult_t onebitPolicyCreate(onebitPolicy_t* policy, const onebitPolicyConfig_t* config) {
  return onebit::Guard([&] { return onebit::Create(policy, config); });
}

onebitResult_t onebitPolicyDestroy(onebitPolicy_t policy) {
  return onebit::Guard([&] {
    if (policy != nullptr && policy->origin.is_here()) delete policy;
    return onebit::OkStatus();
  });
}

onebitResult_t onebitPolicyNext(onebitPolicy_t policy, double learning_rate,
                                onebitStepPlan_t* plan) {
  return onebit::Guard([&] { return onebit::Next(policy, learning_rate, plan); });
}

onebitResult_t onebitPolicyCommit(onebitPolicy_t policy, double learning_rate,
                                  double variance_sum) {
  return onebit::Guard([&] { return onebit::Commit(policy, learning_rate, variance_sum); });
}

onebitResult_t onebitPolicyEndInterval(onebitPolicy_t policy) {
  return onebit::Guard([&]() -> onebit::Status {
    ONEBIT_TRY(onebit::CheckHandle(policy, "policy"));
    policy->policy.EndInterval();
    return onebit::OkStatus();
  });
}
