// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// DecodeHeader on arbitrary bytes: a header that it accepts must encode to the same bytes again.
#include <cstdlib>
#include <cstring>

#include "codec/message_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace onebit;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto decoded = DecodeHeader(bytes);
  if (!decoded.ok()) {
    if (decoded.status().text().empty()) std::abort();
    return 0;
  }
  auto copy = decoded;
  HeaderBytes encoded;
  EncodeHeader(copy.value(), &encoded);
  if (std::memcmp(encoded.data(), data, kHeaderBytes) != 0) std::abort();
  if (Describe(copy.value().call).empty()) std::abort();
  if (!DescribeDifference(copy.value().call, copy.value().call).empty()) std::abort();
  return 0;
}
