// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Gloo over TCP, used as PyTorch's process group gloo uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perf/studies/baselines/system.h"

namespace gloo {
class Context;
}

namespace onebit::perf {

struct GlooOptions {
  std::string store;      // folder where ranks meet; empty: beside the file of ONEBIT_RENDEZVOUS
  std::string interface;  // network interface; empty: lo on one host, else eth0
};

// A failed call throws: a peer is gone or silent.
class GlooSystem : public System {
 public:
  // Takes rank and number of ranks from RANK and WORLD_SIZE. Throws UsageError if these or the
  // folder are missing.
  explicit GlooSystem(const GlooOptions& options);
  ~GlooSystem() override;

  int rank() const override;
  int ranks() const override;
  std::string version() const override;
  std::string_view transport() const override { return "gloo"; }
  size_t max_count() const override;

  void AllReduce(const float* send, float* recv, size_t count) override;
  void Barrier() override;
  void Broadcast(std::span<std::byte> bytes, int root) override;

 private:
  std::shared_ptr<gloo::Context> context_;
  std::string interface_;
  uint32_t tag_ = 0;  // of the next collective; the same on all ranks
};

}  // namespace onebit::perf
