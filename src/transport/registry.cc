// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which transports this process has; each is started once, at first use.
#include <array>
#include <memory>
#include <mutex>

#include "transport/settings.h"
#include "transport/transport.h"

// Of plugins/transport_local, which is linked in.
extern "C" const onebitTransport* onebitTransportLocalGet(void);

namespace onebit {
namespace {

struct BuiltIn {
  std::string_view name;
  onebitTransportGetFunction get;
};

constexpr std::array kBuiltIns = {BuiltIn{"local", onebitTransportLocalGet}};

}  // namespace

class TransportRegistry {
 public:
  Result<const Transport*> Get(std::string_view name) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kBuiltIns.size(); ++i) {
      if (kBuiltIns[i].name != name) continue;
      if (started_[i] == nullptr) {
        ONEBIT_ASSIGN_OR_RETURN(Transport transport, Transport::Start(kBuiltIns[i].get()));
        started_[i] = std::make_unique<Transport>(std::move(transport));
      }
      return started_[i].get();
    }
    std::string known;
    for (const BuiltIn& built_in : kBuiltIns) known += Format(" {}", built_in.name);
    return Error(Code::kInvalidArgument, "there is no transport \"{}\"; known:{}", name, known);
  }

 private:
  std::mutex mutex_;  // guards started_
  std::array<std::unique_ptr<Transport>, kBuiltIns.size()> started_;
};

Result<const Transport*> Transport::Get(std::string_view name) {
  ONEBIT_TRY(ProcessSettings().status());
  static TransportRegistry* registry = new TransportRegistry;  // endpoints may outlive main
  return registry->Get(name);
}

std::vector<const onebitTransport*> Transport::Known() {
  std::vector<const onebitTransport*> known;
  for (const BuiltIn& built_in : kBuiltIns) known.push_back(built_in.get());
  return known;
}

}  // namespace onebit
