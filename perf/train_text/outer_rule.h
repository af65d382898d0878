// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The value of --outer.
#pragma once

namespace onebit::train {

/** The parameters of an OuterOptimizer. */
struct OuterRule {
  int every = 30;         // inner steps of a round
  float merge = 0.5;      // share of its own parameters that a rank keeps, in [0, 1)
  bool is_rebase = false; /* instead of merge: a rank adds to the global parameters what it has done
                             since the average was submitted */
  int fragments = 1;      // parts that are averaged at different steps; at most `every`
  int overlap = 0;        // inner steps while an average is on its way; below `every`
  float rate = 0.7F;
  float momentum = 0.9F;  // in [0, 1)
  bool is_nesterov = true;
};

}  // namespace onebit::train
