// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls the scalar kernels of the low-bit codecs until there are SIMD kernels.
#include "kernels/low_bit.h"

namespace onebit::kernels::cpu {

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  return reference::LowBitCompress(in, format, draws, out);
}
LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  return reference::LowBitReduce(in, format, draws, out);
}
LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  return reference::LowBitAverage(in, format, output);
}
LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  return reference::LowBitAddDelta(in, format, output);
}
LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  return reference::LowBitDecode(packet, format, count, mask, output_type, output);
}

}  // namespace onebit::kernels::cpu
