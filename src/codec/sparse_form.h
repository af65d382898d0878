// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks the content of a sparse packet (FORMAT.md, "Sparse codecs") that arrived intact.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "kernels/sparse.h"

namespace onebit {

// Magnitudes must be finite and not negative, values finite; both may be NaN if `may_be_nan`.
// Indices must ascend within their block and be below its length, padding and unused bits be 0.
// `packet` has the bytes of a packet of `count` elements.
Status CheckSparseForm(std::span<const std::byte> packet, const kernels::SparseFormat& format,
                       size_t count, bool may_be_nan);

}  // namespace onebit
