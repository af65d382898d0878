// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Registration: lets network adapters access memory.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace onebit::ucx {

// Registers memory with UCX for as long as the object lives, so that operations need not. Where
// memory cannot be registered there is no handle, and UCX does without.
class Registration {
 public:
  Registration(ucp_context_h context, std::span<std::byte> memory) : context_(context) {
    const ucp_mem_map_params_t params{.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                    UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                      .address = memory.data(),
                                      .length = memory.size(),
                                      .memory_type = UCS_MEMORY_TYPE_HOST};
    if (ucp_mem_map(context, &params, &handle_) != UCS_OK) handle_ = nullptr;
  }
  ~Registration() {
    if (handle_ != nullptr) ucp_mem_unmap(context_, handle_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  ucp_mem_h handle() const { return handle_; }
  // The bit of ucp_request_param_t::op_attr_mask that announces the handle.
  uint32_t attribute() const { return handle_ != nullptr ? UCP_OP_ATTR_FIELD_MEMH : 0; }

 private:
  const ucp_context_h context_;
  ucp_mem_h handle_ = nullptr;
};

}  // namespace onebit::ucx
