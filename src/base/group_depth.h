// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Whether this thread is between onebitGroupStart and onebitGroupEnd.
#pragma once

namespace onebit {

// How many groups are open, one inside the other. The group's own code (api/group_calls.h) changes
// it.
int& GroupDepth();
inline bool IsInsideGroup() { return GroupDepth() != 0; }

}  // namespace onebit
