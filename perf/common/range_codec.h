// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scalar model of one message between two ranks that keep nothing of earlier calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"
#include "perf/common/collective.h"

namespace onebit::perf {

// A message as its sender knows it.
struct SentRange {
  int from = 0;
  size_t begin = 0;  // in the sender's buffer
  size_t count = 0;
  uint32_t tensor_id = kModelTensorId;  // of the sender's compressor
  uint32_t calls_before = 0;            // of that compressor
};

// Compresses and decodes as the options say.
class RangeCodec {
 public:
  RangeCodec(const Case& row, const Options& options);
  // Writes what a receiver gets. `input` is where the range begins.
  void Send(const SentRange& range, const void* input, void* output) const;

 private:
  void SendSigns(size_t count, const void* input, void* output) const;
  void SendCodes(const SentRange& range, const void* input, void* output) const;

  const Case row_;
  const CodecChoice choice_;
  const kernels::DataType type_;
};

}  // namespace onebit::perf
