// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every message fault once in every kind of call over every transport, with varying sizes and
// places. fault_matrix runs all combinations.
#include <cctype>
#include <vector>

#include <gtest/gtest.h>

#include "tests/faults/process_fault_run.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

struct Parameter {
  std::string transport;
  size_t fault;  // index into kMessageFaults
};

class FaultMatrixTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(FaultMatrixTest, EveryRankIsWholeAndKnowsTheCause) {
  size_t turn = GetParam().fault;
  for (const CallKind& call : kCallKinds) {
    std::vector<FaultCase> cases;
    for (const FaultCase& one : AllCases(GetParam().transport)) {
      if (one.kind == kMessageFaults[GetParam().fault] && one.call.name == call.name) {
        cases.push_back(one);
      }
    }
    turn = turn * 5 + 3;
    const FaultCase& one = cases[turn % cases.size()];
    for (const std::string& violation : RunFaultCase(one).violations) {
      ADD_FAILURE() << one.Text() << ": " << violation;
    }
  }
}

std::vector<Parameter> Parameters(const std::string& transport) {
  std::vector<Parameter> parameters;
  for (size_t i = 0; i < std::size(kMessageFaults); ++i) parameters.push_back({transport, i});
  return parameters;
}

std::string ParameterName(const ::testing::TestParamInfo<Parameter>& info) {
  std::string name(NameOf(kMessageFaults[info.param.fault]));
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Local, FaultMatrixTest, ::testing::ValuesIn(Parameters("local")),
                         ParameterName);
INSTANTIATE_TEST_SUITE_P(Socket, FaultMatrixTest, ::testing::ValuesIn(Parameters("socket")),
                         ParameterName);

}  // namespace
}  // namespace onebit::testing
