// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names what a thread does for NVIDIA's profilers. Builds without NVTX's header have no code here.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include "base/settings.h"
#endif

namespace onebit {

#if __has_include(<nvtx3/nvToolsExt.h>)

// A range of the domain "onebit", from construction to destruction; none if `name` is null.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name) : domain_(name == nullptr ? nullptr : Domain()) {
    if (domain_ == nullptr) return;
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  ~NvtxRange() {
    if (domain_ != nullptr) nvtxDomainRangePop(domain_);
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  // Null if no profiler is attached to the process. NVTX loads a file that the environment names,
  // which a program with more rights than its caller must not do.
  static nvtxDomainHandle_t Domain() {
    static const nvtxDomainHandle_t domain =
        IsSecureExecution() ? nullptr : nvtxDomainCreateA("onebit");
    return domain;
  }

  const nvtxDomainHandle_t domain_;
};

#else

class NvtxRange {
 public:
  explicit NvtxRange(const char*) {}
};

#endif

}  // namespace onebit
