// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plugin: transport `nccl`, its file opened as the library opens it, started with a test's
// settings.
#pragma once

#include "tests/support/transport_host.h"

namespace onebit::testing {

class Plugin : public StartedTransport {
 public:
  explicit Plugin(const SettingTexts& settings = {}) : StartedTransport(functions(), settings) {}

  // The functions, before and without a start.
  static const onebitTransport& functions();
};

}  // namespace onebit::testing
