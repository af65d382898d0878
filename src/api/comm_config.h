// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How a rank joins its group, from the caller's configuration and the settings of the process.
#pragma once

#include "base/settings.h"
#include "comm/comm.h"
#include "onebit/onebit.h"

namespace onebit {

// What communicators of all kinds take from the settings.
CommOptions CommOptionsOf(const Settings& settings);

// The environment wins over `config`, which may be null. An error names the member or variable and
// what it may be. Where the ranks meet is left open.
Result<JoinOptions> ParseCommConfig(const onebitConfig_t* config, const SettingsTable& table,
                                    int rank, int ranks);

}  // namespace onebit
