// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The model of onebitCompressorPrime.
#pragma once

#include "tests/generator/call_models.h"

namespace onebit::testing::generator {

// A call in full precision of the sums of inputs and residuals. Of fp32 tensors, whose result pays
// all that is owed.
void Prime(Model& model, const Case& c, const TensorCase& t, const Bytes& mask, const Buffers& b);

}  // namespace onebit::testing::generator
