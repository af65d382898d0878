// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of single messages: order, sizes, and when the payload may be written.
#include <array>
#include <cctype>
#include <cstring>
#include <string>

#include "tests/transports/checks.h"
#include "tests/transports/traffic.h"

namespace onebit::conformance {

void PropertiesAreSane(const Subject& subject, OutOfBand& /*oob*/) {
  const onebitTransport& api = *subject.transport;
  Expect(api.structSize >= sizeof(onebitTransport), "structSize is ", api.structSize);
  Expect(api.abiVersion == ONEBIT_TRANSPORT_ABI_VERSION, "abiVersion is ", api.abiVersion);
  Expect(api.init && api.getProperties && api.finalize, "a function is missing");
  const onebitTransportProperties& properties = subject.properties;
  Expect(properties.name != nullptr && *properties.name != '\0', "no name");
  std::string prefix = "ONEBIT_";
  for (const char* c = properties.name; *c != '\0'; ++c) {
    Expect(std::islower(*c) || std::isdigit(*c), "the name ", properties.name, " has a character ",
           *c);
    prefix += static_cast<char>(std::toupper(*c));
  }
  prefix += '_';
  if (properties.hasFrameFace != 0) {
    Expect(api.open && api.getAddress && api.connect && api.abort && api.close && api.getLink &&
               api.sendFrame && api.progress && api.sleep,
           "a function of the frame face is missing");
  }
  Expect(properties.addressBytes > 0 && properties.addressBytes <= 65536, "addressBytes is ",
         properties.addressBytes);
  for (size_t i = 0; i < properties.settingCount; ++i) {
    const onebitTransportSetting& setting = properties.settings[i];
    Expect(std::string(setting.name).starts_with(prefix), setting.name, " does not begin with ",
           prefix);
    Expect(setting.kind >= onebitSettingInteger && setting.kind <= onebitSettingPath, setting.name,
           " is of the unknown kind ", setting.kind);
    Expect(setting.values != nullptr &&
               (*setting.values != '\0' || setting.kind == onebitSettingBoolean),
           setting.name, " does not tell its values");
    Expect(setting.defaultValue != nullptr, setting.name, " has no default");
    Expect(setting.offset % 8 == 0 && setting.offset + 8 <= properties.settingsBytes, setting.name,
           " is at offset ", setting.offset, " of ", properties.settingsBytes, " bytes");
    Expect(setting.help != nullptr && *setting.help != '\0', setting.name, " has no help");
  }
}

void MessagesKeepTheirOrder(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const size_t eager = endpoint.eager_bytes();
  Traffic(&endpoint, {.seed = subject.seed,
                      .messages_per_pair = 120,
                      .payload_bytes = {0, eager, 3, eager + 1, 1, 2 * eager, 200}})
      .Run();
}

void AllSizesArrive(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const size_t eager = endpoint.eager_bytes();
  const size_t large = endpoint.nranks() <= 3 ? 1 << 20 : 1 << 18;
  Traffic(&endpoint, {.seed = subject.seed,
                      .messages_per_pair = 11,
                      .payload_bytes = {0, 1, eager == 0 ? 0 : eager - 1, eager, eager + 1, 7, 4099,
                                        65537, large, large + 3, 0}})
      .Run();
}

void PayloadWaitsForAccept(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  for (const size_t bytes : {size_t{40}, endpoint.eager_bytes() + 5000}) {
    const std::string sent(bytes, 's');
    const std::string before(bytes, 'b');
    std::string buffer = before;  // the receiver accepts the payload into it later
    char header[kMessageHeaderBytes];
    const auto receive = endpoint.StartReceive(endpoint.previous(), header);
    const auto send = endpoint.StartSend(endpoint.next(), "h", sent.data(), bytes);
    endpoint.Await(receive, TransferState::kHeader);
    for (int i = 0; i < 100; ++i) endpoint.Check(endpoint.channel().Progress(), "Progress");
    // A header stays reported until it is answered.
    Expect(endpoint.Test(receive) == TransferState::kHeader, "the header is gone");
    Expect(buffer == before, "the payload was written before accept");
    endpoint.Check(endpoint.channel().Accept(receive, WritableBytesOf(buffer.data(), bytes)),
                   "Accept");
    endpoint.Await(receive, TransferState::kDone);
    Expect(buffer == sent, "the payload is wrong after accept");
    endpoint.Await(send, TransferState::kDone);
  }
  oob.Barrier();
}

namespace {

// Sends payloads of these sizes, waits for all their headers, and takes them in this order.
void TakeInOrder(Endpoint& endpoint, const std::vector<size_t>& sizes,
                 const std::vector<size_t>& order) {
  const size_t count = sizes.size();
  std::vector<std::string> sent(count);
  std::vector<MessageRequest> sends(count);
  std::vector<MessageRequest> receives(count);
  std::vector<std::array<char, kMessageHeaderBytes>> headers(count);
  for (size_t i = 0; i < count; ++i) {
    sent[i].assign(sizes[i], static_cast<char>('a' + i));
    sends[i] = endpoint.StartSend(endpoint.next(), Text(i), sent[i].data(), sent[i].size());
  }
  for (size_t i = 0; i < count; ++i) {
    receives[i] = endpoint.StartReceive(endpoint.previous(), headers[i].data());
    endpoint.Await(receives[i], TransferState::kHeader);
  }
  for (const size_t i : order) {
    const Endpoint::Message message = endpoint.Take(receives[i], headers[i].data());
    Expect(message.header == Text(i), "message ", i, " has header ", message.header);
    Expect(message.payload == sent[i], "message ", i, " has a wrong payload");
  }
  for (const auto send : sends) endpoint.Await(send, TransferState::kDone);
}

}  // namespace

// The next receive may be posted as soon as a header is there, so several payloads can wait and be
// accepted in another order than they arrived.
void HeadersRunAhead(const Subject& subject, OutOfBand& oob) {
  Endpoint endpoint(subject, oob);
  const size_t large = endpoint.eager_bytes() + 5000;
  TakeInOrder(endpoint, {100, large, 100, large}, {3, 2, 1, 0});
  oob.Barrier();
  TakeInOrder(endpoint, {large, 100, large}, {2, 0, 1});
  oob.Barrier();
}

}  // namespace onebit::conformance
