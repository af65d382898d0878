// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The communicators of the local ranks, so that all can be stopped when one rank fails.
#pragma once

#include <mutex>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::soak {

// Owns them. Any thread may call anything.
class LiveComms {
 public:
  LiveComms() = default;
  // Frees what is left; no rank is inside a call any more.
  ~LiveComms();
  LiveComms(const LiveComms&) = delete;
  LiveComms& operator=(const LiveComms&) = delete;

  void Add(onebitComm_t comm);
  // Throws ToolError.
  void Destroy(onebitComm_t comm);
  // Also those that are still to come.
  void AbortAll();

 private:
  std::mutex mutex_;  // guards what follows
  bool is_aborted_ = false;
  std::vector<onebitComm_t> comms_;
};

}  // namespace onebit::soak
