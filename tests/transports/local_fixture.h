// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local` started for a test.
#pragma once

#include <string>

#include "plugins/transport_local/local_transport.h"
#include "tests/support/transport_host.h"

namespace onebit::local {

class StartedTransport : public testing::StartedTransport {
 public:
  // `eager_bytes` is the value of ONEBIT_LOCAL_EAGER_BYTES; empty: not set.
  explicit StartedTransport(const std::string& eager_bytes = "")
      : testing::StartedTransport(*local::Functions(), TextsOf(eager_bytes)) {}

 private:
  static testing::SettingTexts TextsOf(const std::string& eager_bytes) {
    if (eager_bytes.empty()) return {};
    return {{"ONEBIT_LOCAL_EAGER_BYTES", eager_bytes}};
  }
};

}  // namespace onebit::local
