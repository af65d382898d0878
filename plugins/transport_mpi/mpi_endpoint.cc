// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds the native allreduce to the requests of an endpoint.
#include "plugins/transport_mpi/mpi_endpoint.h"

#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {
namespace {

plugin::Endpoint::Limits LimitsOf(const Context& context) {
  return {.eager_bytes = context.options().eager_bytes,
          .early_bytes = context.options().early_bytes};
}

}  // namespace

MpiEndpoint::MpiEndpoint(Context* context, const onebitTransportCommInfo& info,
                         std::unique_ptr<MpiFrameTransport> frames)
    : MpiEndpoint(context, info, frames.release()) {}

MpiEndpoint::MpiEndpoint(Context* context, const onebitTransportCommInfo& info,
                         MpiFrameTransport* frames)
    : Endpoint(context, info, LimitsOf(*context), std::unique_ptr<plugin::FrameTransport>(frames)),
      context_(context),
      nranks_(info.nranks),
      frames_(frames) {}

onebitResult_t MpiEndpoint::Allreduce(const void* send, void* recv, size_t count,
                                      onebitDataType_t type, onebitRedOp_t op, Request** request) {
  if (type != onebitFloat32 || (op != onebitSum && op != onebitAvg) ||
      ((send == nullptr || recv == nullptr) && count != 0)) {
    return onebitInvalidArgument;
  }
  return WithLock([&] {
    if (!is_connected() || context_->options().native_dense == 0) return onebitInvalidUsage;
    NativeAllreduce& native = frames_->channel().native();
    const bool has_started =
        native.Start({.comm = frames_->channel().comm(),
                      .send = static_cast<const float*>(send),
                      .recv = static_cast<float*>(recv),
                      .count = count,
                      .divisor = op == onebitAvg ? static_cast<float>(nranks_) : 1.0f});
    if (!has_started) return onebitInProgress;
    *request = &native_request_;
    return onebitSuccess;
  });
}

onebitResult_t MpiEndpoint::Probe(const Request& request, size_t* header_bytes,
                                  size_t* payload_bytes) {
  if (&request != &native_request_) {
    return Endpoint::Probe(request, header_bytes, payload_bytes);
  }
  return WithLock([&] {
    *header_bytes = 0;
    *payload_bytes = frames_->channel().native().finished() * sizeof(float);
    return onebitSuccess;
  });
}

onebitResult_t MpiEndpoint::Test(Request* request, onebitTransportState* state) {
  if (request != &native_request_) return Endpoint::Test(request, state);
  return WithLock([&] {
    const NativeAllreduce& native = frames_->channel().native();
    *state = native.is_running() ? onebitTransportPending : onebitTransportDone;
    if (native.code() == MPI_SUCCESS) return onebitSuccess;
    context_->Warn("MPI_Iallreduce failed: %s", ErrorText(native.code()).c_str());
    return onebitSystemError;
  });
}

onebitResult_t MpiEndpoint::Cancel(Request* request) {
  if (request != &native_request_) return Endpoint::Cancel(request);
  HoldLock([&] { frames_->channel().native().Cancel(); });
  return onebitSuccess;
}

}  // namespace onebit::mpi
