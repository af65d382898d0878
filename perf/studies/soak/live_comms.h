// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The communicators of the local ranks, so that all can be stopped when one rank fails.
#pragma once

#include <mutex>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::soak {

// Owns the communicators. Thread-safe.
class LiveComms {
 public:
  LiveComms() = default;
  // Destroys the remaining communicators; no rank may be inside a call any more.
  ~LiveComms();
  LiveComms(const LiveComms&) = delete;
  LiveComms& operator=(const LiveComms&) = delete;

  void Add(onebitComm_t comm);
  // Throws ToolError.
  void Destroy(onebitComm_t comm);
  // Aborts all communicators, including those that are added later.
  void AbortAll();

 private:
  std::mutex mutex_;  // guards what follows
  bool is_aborted_ = false;
  std::vector<onebitComm_t> comms_;
};

}  // namespace onebit::soak
