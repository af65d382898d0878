// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx` started for a test.
#pragma once

#include "plugins/transport_ucx/ucx_transport.h"
#include "tests/support/transport_host.h"

namespace onebit::ucx {

using testing::SettingTexts;

class StartedTransport : public testing::StartedTransport {
 public:
  explicit StartedTransport(const SettingTexts& settings = {}, const char* interfaces = "")
      : testing::StartedTransport(*onebitTransportGet(), settings, interfaces) {}
};

}  // namespace onebit::ucx
