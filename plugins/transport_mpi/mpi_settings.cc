// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_mpi/mpi_settings.h"

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "plugins/transport_mpi/mpi_address.h"

namespace onebit::mpi {
namespace {

static_assert(std::is_standard_layout_v<Options>, "offsetof must be defined");

constexpr onebitTransportSetting kSettings[] = {
    // The caller considers the send of such a payload done and may not call again soon, so MPI must
    // deliver it without further calls. Open MPI sends up to 4096 bytes at once over shared memory,
    // its own header and those of wire.h and channel.cc included; its other networks and MPICH
    // accept more.
    plugin::EagerBytesSetting("ONEBIT_MPI_EAGER_BYTES", "2048", 3584,
                              offsetof(Options, eager_bytes)),
    plugin::EarlyBytesSetting("ONEBIT_MPI_EARLY_BYTES", offsetof(Options, early_bytes)),
    {.name = "ONEBIT_MPI_NATIVE_DENSE",
     .kind = onebitSettingBoolean,
     .values = "",
     .defaultValue = "0",
     .help =
         "1: dense allreduces of fp32 are MPI's own, in full precision but not with bytes equal to "
         "those of other transports; counters leave out their bytes; equal on all ranks.",
     .offset = offsetof(Options, native_dense)},
};

}  // namespace

onebitTransportProperties PropertiesWith(const Options& options) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "mpi",
          .hasFrameFace = 1,
          .addressBytes = sizeof(Address),
          .eagerBytes = options.eager_bytes,
          .earlyBytes = options.early_bytes,
          .settings = kSettings,
          .settingCount = std::size(kSettings),
          .settingsBytes = sizeof(Options),
          .survivesLoss = 0,
          .nativeDense = options.native_dense != 0 ? 1 : 0};
}

}  // namespace onebit::mpi
