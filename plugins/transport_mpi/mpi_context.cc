// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_mpi/mpi_context.h"

#include <utility>

#include "plugins/common/host_identity.h"
#include "plugins/transport_mpi/mpi_frame_transport.h"
#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {

Context::Context(const onebitTransportHost& host)
    : BaseContext(host, "mpi"),
      machine_(plugin::IdentityOfThisMachine()),
      options_(*static_cast<const Options*>(host.settings)) {}

onebitResult_t Context::Create(const onebitTransportHost& host, std::unique_ptr<Context>* context) {
  std::unique_ptr<Context> created(new Context(host));
  const onebitResult_t result = MpiProcess::Get().Start(*created);
  if (result == onebitSuccess) *context = std::move(created);
  return result;
}

onebitTransportProperties Context::Properties(const Context* context) {
  return PropertiesWith(context == nullptr ? Options{} : context->options_);
}

onebitResult_t Context::Open(const onebitTransportCommInfo& info,
                             std::unique_ptr<MpiFrameTransport>* frames) {
  *frames = std::make_unique<MpiFrameTransport>(this, info);
  return onebitSuccess;
}

}  // namespace onebit::mpi
