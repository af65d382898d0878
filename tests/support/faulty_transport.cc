// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_transport.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "plugins/transport_local/local_transport.h"

namespace onebit::testing {
namespace {

onebitResult_t Init(const onebitTransportHost* host, void** context) {
  return StartFaulty(onebitTransportLocalGet(), host, context);
}

onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
  void* inner = context == nullptr ? nullptr : static_cast<FaultyContext*>(context)->inner_context;
  return onebitTransportLocalGet()->getProperties(inner, properties);
}

const onebitTransport& Functions() {
  static const onebitTransport functions = [] {
    onebitTransport table = kFaultyFunctions;
    table.init = Init;
    table.getProperties = GetProperties;
    return table;
  }();
  return functions;
}

}  // namespace

FaultyTransport::FaultyTransport() {
  auto started = Transport::Start(&Functions());
  if (!started.ok()) throw std::runtime_error(started.status().text());
  transport_ = std::move(started).value();
}

FaultyTransport::~FaultyTransport() {
  EXPECT_EQ(transport_.functions().finalize(transport_.context()), onebitSuccess)
      << "an endpoint was not closed";
}

}  // namespace onebit::testing
