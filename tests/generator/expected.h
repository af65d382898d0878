// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the scalar models of a tensor's collective say that its calls return.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tests/generator/case.h"

namespace onebit::testing::generator {

using Bytes = std::vector<std::byte>;

// Bytes of a rank's buffers, by tensor, in one round.
size_t SendBytes(const Case& c, const TensorCase& t, int tensor, int round, int rank);
size_t ReceiveBytes(const Case& c, const TensorCase& t, int tensor, int round, int rank);
// Input of a rank in a round, without what Event::kNan puts there.
Bytes InputOf(const Case& c, int tensor, int round, int rank);
// The mask of a tensor after some changes; empty: none. It covers all parts of all ranks.
Bytes MaskOf(const Case& c, int tensor, int version);
// Where blocks of a tensor restart.
std::vector<size_t> CutsOf(const Case& c, int tensor);
uint64_t TensorSeed(const Case& c, int tensor);

// True if the event happens to this tensor.
bool Happens(Event event, const TensorCase& t, size_t ranks);
// The rank and the element that are not finite in a round of Event::kNan.
struct NanPlace {
  int rank = 0;
  size_t element = 0;
};
NanPlace NanPlaceOf(const Case& c, int tensor, int round, int mask_version);

// True if a scalar model covers the tensor's calls. The others are compared with the same calls
// made one by one.
bool HasModel(const TensorCase& t);

// Outputs by [round][rank]; a rank's is empty where the call gives it none.
using Outputs = std::vector<std::vector<Bytes>>;
// Of a tensor with a model.
Outputs Expected(const Case& c, int tensor);

}  // namespace onebit::testing::generator
