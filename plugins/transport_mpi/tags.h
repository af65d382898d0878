// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tags of messages on our private communicators.
#pragma once

namespace onebit::mpi {

inline constexpr int kFrameTag = 1;
// The last message from a rank.
inline constexpr int kLastTag = 2;

}  // namespace onebit::mpi
