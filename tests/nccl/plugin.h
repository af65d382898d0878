// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plugin: the transport as the library uses it, started with settings of a test's choice.
#pragma once

#include <onebit/transport.h>

#include <map>
#include <string>

namespace onebit::testing {

using Settings = std::map<std::string, std::string>;  // by name of the variable

// One at a time: the services of a host say nothing of who asks.
class Plugin {
 public:
  explicit Plugin(Settings settings = {});
  // Ends the transport; a test that has left an endpoint open fails.
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // The functions, before and without a start.
  static const onebitTransport& functions();

  onebitResult_t start_result() const { return start_result_; }
  void* context() const { return context_; }
  // What was logged since the start: as warnings, and all of it.
  static std::string warnings();
  static std::string lines();

 private:
  onebitResult_t start_result_ = onebitSuccess;
  void* context_ = nullptr;
};

}  // namespace onebit::testing
