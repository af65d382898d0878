// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings table of this process: the library's own rows and those that transports declare.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "onebit/transport.h"

namespace onebit {

// Reads the environment and sets up the log at the first call, and never again. An error names the
// variable: unknown, a value that does not parse, or a log file that cannot be opened. It stays one
// for the life of the process. Any thread.
//
// A variable ONEBIT_X_... that neither the library nor a transport that is linked in knows may be
// one of the plugin x, so that plugin is opened, if there is one, to ask for its rows. No other
// plugin is.
Result<const SettingsTable*> ProcessSettings();

// The same with the rows of all plugins that are found, which are opened for that; to be shown to
// people. A plugin that cannot be opened has no rows here, and a line in the log.
Result<const SettingsTable*> ListedSettings();

// Names of the transports that are linked in or found: sorted, the former first.
std::vector<std::string> ListedTransports();

// Folders in which this process looks for plugins; without plugin_path when the settings are in
// error.
std::vector<std::string> ProcessPluginFolders();

// Text of a row that a transport declared, as the environment gives it; null when it is not set,
// when no transport that the registry knows declared it, and when the settings are in error.
const char* TransportSettingText(const char* name);

// The rows that these transports declare. A row that is not complete, or whose name does not begin
// with ONEBIT_<NAME OF THE TRANSPORT>_, is an error.
Result<std::vector<DeclaredSetting>> DeclaredSettings(
    std::span<const onebitTransport* const> transports);

}  // namespace onebit
