// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a transport's table of C functions from its C++ classes: checks arguments and keeps
// exceptions inside.
#pragma once

#include <onebit/transport.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace onebit::plugin {

// Runs code that may throw std::bad_alloc.
template <typename Body>
onebitResult_t WithoutExceptions(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return onebitOutOfMemory;
  } catch (...) {
    return onebitInternalError;
  }
}

// Start and end of a transport. Context needs the members
//   static onebitResult_t Create(const onebitTransportHost&, std::unique_ptr<Context>*);
//   static onebitTransportProperties Properties(const Context*);  // null: before init
//   bool is_idle() const;
template <typename Context>
struct ContextTable {
  static onebitResult_t Init(const onebitTransportHost* host, void** context) {
    if (host == nullptr || context == nullptr || host->structSize < sizeof *host ||
        (host->settings == nullptr && Context::Properties(nullptr).settingCount != 0)) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions([&] {
      std::unique_ptr<Context> created;
      const onebitResult_t result = Context::Create(*host, &created);
      if (result == onebitSuccess) *context = created.release();
      return result;
    });
  }

  static onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
    if (properties == nullptr ||
        properties->structSize < offsetof(onebitTransportProperties, survivesLoss)) {
      return onebitInvalidArgument;
    }
    const size_t asked = properties->structSize;
    onebitTransportProperties all = Context::Properties(static_cast<const Context*>(context));
    all.structSize = asked;
    std::memcpy(properties, &all, std::min(asked, sizeof all));
    return onebitSuccess;
  }

  static onebitResult_t Finalize(void* context) {
    if (context == nullptr) return onebitInvalidArgument;
    auto* ending = static_cast<Context*>(context);
    if (!ending->is_idle()) return onebitInvalidUsage;
    delete ending;
    return onebitSuccess;
  }
};

// The functions that the endpoints of all plugins have. Context needs, in addition,
//   onebitResult_t Open(const onebitTransportCommInfo&, std::unique_ptr<Endpoint>*);
// and Endpoint
//   onebitResult_t GetAddress(void* address, size_t* bytes);
//   onebitResult_t Connect(const void* const* addresses, const size_t* bytes, uint64_t timeout_ms);
//   onebitResult_t Abort();  // thread-safe
template <typename Context, typename Endpoint>
struct TransportTable : ContextTable<Context> {
  static Endpoint* AsEndpoint(void* comm) { return static_cast<Endpoint*>(comm); }

  static onebitResult_t Open(void* context, const onebitTransportCommInfo* info, void** comm) {
    if (context == nullptr || info == nullptr || comm == nullptr ||
        info->structSize < offsetof(onebitTransportCommInfo, group) || info->nranks < 1 ||
        info->rank < 0 || info->rank >= info->nranks) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions([&] {
      onebitTransportCommInfo known{.structSize = sizeof known};
      std::memcpy(&known, info, std::min(info->structSize, sizeof known));
      std::unique_ptr<Endpoint> created;
      const onebitResult_t result = static_cast<Context*>(context)->Open(known, &created);
      if (result == onebitSuccess) *comm = created.release();
      return result;
    });
  }

  static onebitResult_t GetAddress(void* comm, void* address, size_t* bytes) {
    if (comm == nullptr || address == nullptr || bytes == nullptr) return onebitInvalidArgument;
    return WithoutExceptions([&] { return AsEndpoint(comm)->GetAddress(address, bytes); });
  }

  static onebitResult_t Connect(void* comm, const void* const* addresses,
                                const size_t* address_bytes, uint64_t timeout_ms) {
    if (comm == nullptr || addresses == nullptr || address_bytes == nullptr) {
      return onebitInvalidArgument;
    }
    return WithoutExceptions(
        [&] { return AsEndpoint(comm)->Connect(addresses, address_bytes, timeout_ms); });
  }

  static onebitResult_t Abort(void* comm) {
    return comm == nullptr ? onebitInvalidArgument : AsEndpoint(comm)->Abort();
  }

  static onebitResult_t Close(void* comm) {
    if (comm == nullptr) return onebitInvalidArgument;
    delete AsEndpoint(comm);
    return onebitSuccess;
  }

  // Members of a face are for the transport to add.
  static constexpr onebitTransport kFunctions{
      .structSize = sizeof(onebitTransport),
      .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
      .init = ContextTable<Context>::Init,
      .getProperties = ContextTable<Context>::GetProperties,
      .finalize = ContextTable<Context>::Finalize,
      .open = Open,
      .getAddress = GetAddress,
      .connect = Connect,
      .abort = Abort,
      .close = Close,
  };
};

}  // namespace onebit::plugin
