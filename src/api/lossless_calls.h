// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls with compressors of onebitCodecLossless, which wait on the host for their work.
#pragma once

#include "api/host_stream_calls.h"

namespace onebit {

// Makes a call that was checked, at once or in its turn on a stream.
Status SubmitLossless(ApiCall&& call);

}  // namespace onebit
