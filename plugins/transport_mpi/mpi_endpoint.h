// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MpiEndpoint: an endpoint with MPI's own allreduce.
#pragma once

#include <memory>

#include "plugins/common/endpoint.h"
#include "plugins/transport_mpi/mpi_frame_transport.h"

namespace onebit::mpi {

class MpiEndpoint final : public plugin::Endpoint {
 public:
  MpiEndpoint(Context* context, const onebitTransportCommInfo& info,
              std::unique_ptr<MpiFrameTransport> frames);

  onebitResult_t Allreduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                           onebitRedOp_t op, Request** request);
  onebitResult_t Probe(const Request& request, size_t* header_bytes, size_t* payload_bytes);
  onebitResult_t Test(Request* request, onebitTransportState* state);
  onebitResult_t Cancel(Request* request);

 private:
  // Takes ownership of the frame transport.
  MpiEndpoint(Context* context, const onebitTransportCommInfo& info, MpiFrameTransport* frames);

  const Context* const context_;
  const int nranks_;
  MpiFrameTransport* const frames_;  // owned by the base class
  Request native_request_{};         // of the allreduce; only its address is used
};

}  // namespace onebit::mpi
