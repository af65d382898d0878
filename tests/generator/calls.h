// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What each rank does in a case, in order. One implementation does it, another one prints it as C.
#pragma once

#include <memory>
#include <span>

#include "tests/generator/case.h"

namespace onebit::testing::generator {

// One rank.
class RankActions {
 public:
  virtual ~RankActions() = default;
  virtual void Begin() = 0;
  virtual void Create(int tensor) = 0;
  // An event that happens to the tensor; kMask and kNan with the number of changes of its mask so
  // far.
  virtual void Apply(Event event, int tensor, int round, int mask_version) = 0;
  // Writes the round's input, and a weight.
  virtual void Fill(int tensor, int round) = 0;
  virtual void PutNan(int tensor, int round, int mask_version) = 0;
  virtual void GroupStart() = 0;
  virtual void Call(int tensor, int round) = 0;
  virtual void Prime(int tensor) = 0;
  virtual void GroupEnd() = 0;
  virtual void Synchronize() = 0;
  virtual void Check(int tensor, int round) = 0;
  virtual void End() = 0;
};

// Makes one thread's actions: those of one rank, or of all.
void MakeCalls(const Case& c, std::span<const std::unique_ptr<RankActions>> ranks);

// The configuration of a tensor's compressor, without its mask and its cuts. `id` is of a ring's
// sender.
onebitCompressorConfig_t ConfigOf(const Case& c, int tensor, int id);

}  // namespace onebit::testing::generator
