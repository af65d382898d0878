// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names the version of an algorithm that a schedule follows.
#pragma once

namespace onebit {

enum class Variant {
  kPaper,      // the published algorithm
  kDeepSpeed,  // what DeepSpeed does, for comparison with runs of it
};

}  // namespace onebit
