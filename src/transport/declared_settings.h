// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings that a transport declares through the ABI, checked, and their values for its `init`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "onebit/transport.h"

namespace onebit {

// The rows in the library's form. A row that is not complete, or whose name does not begin with
// ONEBIT_<NAME OF THE TRANSPORT>_, is an error.
Result<std::vector<Setting>> DeclaredSettings(const onebitTransportProperties& properties);

// The structure of `settingsBytes` bytes that the transport's `init` receives, in units of 8 bytes.
// Texts in it point into `environment`.
Result<std::vector<uint64_t>> SettingsForInit(const onebitTransportProperties& properties,
                                              std::span<const char* const> environment);

}  // namespace onebit
