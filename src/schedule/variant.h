// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Whose version of an algorithm a schedule follows.
#pragma once

namespace onebit {

enum class Variant {
  kPaper,      // the published algorithm
  kDeepSpeed,  // what DeepSpeed does, for comparison with runs of it
};

}  // namespace onebit
