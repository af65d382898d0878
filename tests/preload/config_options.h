// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/nccl_ext.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {

// A configuration with options, as a program of NCCL 2.32 writes it.
class Options {
 public:
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  Options& Tensor(uint64_t number) {
    Add(onebitNcclTensor).raw = reinterpret_cast<void*>(number);
    return *this;
  }
  Options& Codec(const char* text) {
    Add(onebitNcclCodec).s = text;
    return *this;
  }
  Options& Off() {
    Add(onebitNcclOff).i = 1;
    return *this;
  }
  ncclCollConfig_t& config() { return config_; }

 private:
  decltype(ncclConfigExt_t::val)& Add(onebitNcclOption_t option) {
    ncclConfigExt_t& added = options_[used_++];
    added = {.next = config_.ext, .key = {ONEBIT_NCCL_VENDOR, option}, .val = {.raw = nullptr}};
    config_.ext = &added;
    return added.val;
  }

  ncclConfigExt_t options_[3];
  size_t used_ = 0;
  ncclCollConfig_t config_{.size = sizeof(ncclCollConfig_t),
                           .magic = 0xcafebeef,
                           .version = 23203,
                           .ext = nullptr,
                           .minCTAs = INT_MIN,
                           .maxCTAs = INT_MIN,
                           .nvlsCTAs = INT_MIN,
                           .cgaClusterSize = INT_MIN,
                           .algSelection = nullptr,
                           .forceAlgSelection = 1,
                           .CTAPolicy = INT_MIN,
                           .userProfilerTag = 0,
                           .launchCompletionEvent = nullptr};
};

}  // namespace onebit::testing
