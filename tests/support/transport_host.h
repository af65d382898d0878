// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A transport started as the library starts one, for tests of the transport alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "onebit/transport.h"

namespace onebit::testing {

using SettingTexts =
    std::map<std::string, std::string>;  // by name of the variable; absent: not set

// Only one may exist at a time, because the log function of a host cannot tell two apart.
class StartedTransport {
 public:
  // A setting that does not parse is logged and ends as onebitInvalidUsage, without a call of
  // `init`.
  explicit StartedTransport(const onebitTransport& transport, const SettingTexts& settings = {},
                            const char* interfaces = "");
  // Finalizes the transport and aborts the program if that fails: an endpoint was left open.
  ~StartedTransport();
  StartedTransport(const StartedTransport&) = delete;
  StartedTransport& operator=(const StartedTransport&) = delete;

  const onebitTransport& api() const { return transport_; }
  void* context() const { return context_; }
  onebitResult_t start_result() const { return start_result_; }
  // Lines logged since the start, with newlines between them: of warnings, and of all levels.
  static std::string warnings();
  static std::string lines();

 private:
  const onebitTransport& transport_;
  std::vector<std::string> environment_;  // holds the texts of the settings
  void* context_ = nullptr;
  onebitResult_t start_result_ = onebitInvalidUsage;
};

}  // namespace onebit::testing
