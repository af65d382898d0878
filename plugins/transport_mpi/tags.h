// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tags of messages on a communicator of ours.
#pragma once

namespace onebit::mpi {

inline constexpr int kFrameTag = 1;
// Nothing follows from this rank.
inline constexpr int kLastTag = 2;

}  // namespace onebit::mpi
