// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A fault while survivors rebind: the rebind fails with an error, nothing is lost, and the next
// shrink and rebind succeed.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/fault_recovery.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

constexpr uint64_t kMostMessages = 200;
constexpr CallKind kTwoExchanges{.name = "ef", .mode = onebitModeEf};
constexpr CallKind kOneExchange{
    .name = "ef, one exchange", .mode = onebitModeEf, .is_one_exchange = true};

struct Parameter {
  std::string name;
  std::string transport;
  CallKind call;
  Fault::Kind fault;
};

class RebindFaultTest : public ::testing::TestWithParam<Parameter> {
 protected:
  // A group that rank 2 will leave, because a rebind with the same ranks would have little to send.
  // At the end all three have made one call, and the first two have a communicator of their own.
  void Start() {
    const Parameter& parameter = GetParam();
    const uint64_t timeout_ms =
        parameter.fault == Fault::Kind::kDrop ? ShortTimeoutMs() : kPatient.timeout_ms;
    group_.emplace(parameter.transport, parameter.call,
                   CountOf(parameter.call, MessageSize::kEager), timeout_ms);
    for (const CallsOfRank& calls : group_->Call(1)) ASSERT_EQ(calls.result, onebitSuccess);
    recovery_.emplace(&*group_, &ReferenceOf(parameter.call, MessageSize::kEager),
                      std::vector<int>{0, 1});
    ExpectNone(recovery_->Shrink(true));
  }

  static void ExpectNone(const Violations& violations) {
    for (const std::string& violation : violations) ADD_FAILURE() << violation;
  }

  std::optional<FaultGroup> group_;
  std::optional<Recovery> recovery_;
};

TEST_P(RebindFaultTest, FailsAndIsRepeatedWithoutLoss) {
  uint64_t message = 0;
  for (; message < kMostMessages; ++message) {
    SCOPED_TRACE(::testing::Message() << "message " << message << " of the rebind");
    Start();
    group_->faults().Arm({.kind = GetParam().fault, .rank = 1, .message = message, .bit = 200});
    const Violations failures = recovery_->Rebind();
    const bool has_struck = group_->faults().has_struck();
    group_->faults().Arm({});
    if (!has_struck) {
      ExpectNone(failures);
      break;
    }
    EXPECT_FALSE(failures.empty());
    ExpectNone(recovery_->Shrink(true));
    ExpectNone(recovery_->Rebind());
    ExpectNone(recovery_->CheckState());
    ExpectNone(recovery_->CallAndCheck());
    if (HasFailure()) return;
  }
  EXPECT_GT(message, 0u);
  EXPECT_LT(message, kMostMessages);
}

std::vector<Parameter> Parameters() {
  std::vector<Parameter> parameters;
  const auto add = [&](const char* name, const char* transport, const CallKind& call) {
    parameters.push_back(
        {std::string(name) + "Corrupt", transport, call, Fault::Kind::kFlipHeader});
    parameters.push_back({std::string(name) + "Lost", transport, call, Fault::Kind::kDrop});
    parameters.push_back({std::string(name) + "Refused", transport, call, Fault::Kind::kRefuse});
  };
  add("LocalTwoExchanges", "local", kTwoExchanges);
  add("LocalOneExchange", "local", kOneExchange);
  add("SocketTwoExchanges", "socket", kTwoExchanges);
  return parameters;
}

INSTANTIATE_TEST_SUITE_P(Faults, RebindFaultTest, ::testing::ValuesIn(Parameters()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onebit::testing
