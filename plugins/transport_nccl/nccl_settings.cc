// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_nccl/nccl_settings.h"

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "plugins/transport_nccl/nccl_address.h"

namespace onebit::nccl {
namespace {

static_assert(std::is_standard_layout_v<Options>, "offsetof must be defined");

constexpr onebitTransportSetting kSettings[] = {
    {.name = "ONEBIT_NCCL_LIB",
     .kind = onebitSettingPath,
     .values = "path of a file",
     .defaultValue = "",
     .help = "The NCCL library to load; empty: the libnccl.so.2 that the process has loaded, else "
             "the one that the system's loader finds.",
     .offset = offsetof(Options, library)},
    {.name = "ONEBIT_NCCL_NATIVE_DENSE",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "1",
     .help = "0: dense calls of the application have the same bytes as over other transports, at a "
             "fraction of NCCL's speed; 1: allreduces, reduce-scatters, all-gathers and broadcasts "
             "without a compressor are NCCL's own, and counters leave out their bytes. Those of "
             "optimizers, syncs and flushes are always the library's. Equal on all ranks.",
     .offset = offsetof(Options, native_dense)},
    {.name = "ONEBIT_NCCL_BLOCKING",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "1",
     .help = "0: the library makes non-blocking NCCL communicators: a call costs more CPU time, "
             "but one that connects to a lost peer ends by itself, not only when the communicator "
             "is aborted.",
     .offset = offsetof(Options, is_blocking)},
    {.name = "ONEBIT_NCCL_CLOSE_MS",
     .kind = onebitSettingInteger,
     .values = "milliseconds",
     .maximum = 600'000,
     .defaultValue = "5000",
     .help = "How long the end of a communicator waits for work that was started before it; then "
             "it is aborted.",
     .offset = offsetof(Options, close_ms)},
    {.name = "ONEBIT_NCCL_RULES",
     .kind = onebitSettingText,
     .values = "off, default or rules",
     .defaultValue = "off",
     .help = "Which NCCL calls the interposer compresses, and how (docs/preload.md). Equal on all "
             "ranks.",
     .offset = offsetof(Options, rules)},
    {.name = "ONEBIT_NCCL_STATS",
     .kind = onebitSettingPath,
     .values = "path of a file",
     .defaultValue = "",
     .help = "Where the interposer reports, when the process ends, what became of the NCCL calls: "
             "a file (%p in its name is the process id), or stderr; empty: nowhere.",
     .offset = offsetof(Options, stats)},
};

}  // namespace

onebitTransportProperties PropertiesWith(const Options& options) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "nccl",
          .hasFrameFace = 0,
          .addressBytes = sizeof(Address),
          .eagerBytes = 0,
          .earlyBytes = 0,
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 1,
          .nativeDense = options.native_dense != 0 ? 1 : 0,
          .hasStreamFace = 1,
          .agreedName = options.rules == nullptr ? nullptr : "ONEBIT_NCCL_RULES",
          .agreedValue = options.rules};
}

}  // namespace onebit::nccl
