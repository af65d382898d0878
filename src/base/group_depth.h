// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tells if this thread is between onebitGroupStart and onebitGroupEnd.
#pragma once

namespace onebit {

// Number of nested groups that this thread has open. Only the group's own code (api/group_calls.h)
// changes it.
int& GroupDepth();
inline bool IsInsideGroup() { return GroupDepth() != 0; }

}  // namespace onebit
