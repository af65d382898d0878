// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Options for joining a group, from the caller's configuration and the settings of the process.
#pragma once

#include "base/settings.h"
#include "comm/comm.h"
#include "onebit/onebit.h"

namespace onebit {

// Options that communicators of all kinds take from the settings.
CommOptions CommOptionsOf(const Settings& settings);

// The environment overrides `config`, which may be null. Errors name the member or variable and the
// values it may have. The caller sets the rendezvous.
Result<JoinOptions> ParseCommConfig(const onebitConfig_t* config, const SettingsTable& table,
                                    int rank, int ranks);

}  // namespace onebit
