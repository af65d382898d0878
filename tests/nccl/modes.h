// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Modes: the ways to use NCCL, for tests that hold for all of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {

struct Mode {
  std::string name;
  std::map<std::string, std::string> settings;
  std::string library;  // file of the stand-in; empty: the one that the test links
};

inline void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }

extern const std::vector<Mode> kModes;
std::string NameOf(const ::testing::TestParamInfo<Mode>& info);

// Counters of the stand-in of a mode.
struct Counts : onebitTestNcclCounts {
  static Counts Get(const Mode& mode);
  // The same once no communicator is left, or after a minute: ends go on in threads of their own.
  static Counts GetAtTheEnd(const Mode& mode);
};

// Returns the loaded stand-in of a mode.
void* LibraryOf(const Mode& mode);
// Returns a function of a mode's stand-in. Each stand-in has separate state.
void* FunctionOf(const Mode& mode, const char* name);
template <typename Function>
Function* FindFunction(const Mode& mode, Function*, const char* name) {
  return reinterpret_cast<Function*>(FunctionOf(mode, name));
}
#define ONEBIT_OF_MODE(mode, function) \
  ::onebit::testing::FindFunction(mode, static_cast<decltype(&function)>(nullptr), #function)

}  // namespace onebit::testing
