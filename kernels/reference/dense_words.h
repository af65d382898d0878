// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reductions that work on elements as they are stored: sums of integers and fp64, and the largest
// and smallest of every type. (Sums of the other floats are fp32.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/types.h"

namespace onebit::kernels::reference {

// The unsigned integer that an element is stored as. kInfinity: its bits if it is a float, else 0.
template <DataType kType>
struct WordTraits;
template <typename Unsigned, uint64_t kInfinityBits>
struct WordTraitsOf {
  using Word = Unsigned;
  static constexpr Word kInfinity = static_cast<Word>(kInfinityBits);
  static constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
};
template <>
struct WordTraits<DataType::kF32> : WordTraitsOf<uint32_t, 0x7F800000u> {};
template <>
struct WordTraits<DataType::kF16> : WordTraitsOf<uint16_t, 0x7C00u> {};
template <>
struct WordTraits<DataType::kBf16> : WordTraitsOf<uint16_t, 0x7F80u> {};
template <>
struct WordTraits<DataType::kI32> : WordTraitsOf<uint32_t, 0> {};
template <>
struct WordTraits<DataType::kI64> : WordTraitsOf<uint64_t, 0> {};
template <>
struct WordTraits<DataType::kU8> : WordTraitsOf<uint8_t, 0> {};
template <>
struct WordTraits<DataType::kF64> : WordTraitsOf<uint64_t, 0x7FF0'0000'0000'0000u> {};

template <DataType kType>
using WordOf = typename WordTraits<kType>::Word;

// An unsigned integer that orders elements as kMax or kMin prefers them. A NaN has the largest.
template <DataType kType>
ONEBIT_HOST_DEVICE constexpr WordOf<kType> PreferenceOf(DenseOp op, WordOf<kType> word) {
  using Traits = WordTraits<kType>;
  using Word = WordOf<kType>;
  Word order = word;
  if constexpr (Traits::kInfinity != 0) {
    if (static_cast<Word>(word & ~Traits::kSign) > Traits::kInfinity) return static_cast<Word>(~0);
    // Negative numbers order backwards, below the positive ones.
    order = static_cast<Word>((word & Traits::kSign) != 0 ? ~word : word | Traits::kSign);
  } else if constexpr (kType != DataType::kU8) {
    order = static_cast<Word>(word ^ Traits::kSign);
  }
  return static_cast<Word>(op == DenseOp::kMin ? ~order : order);
}

// Adds the next rank's element to what the ranks before it give. kAdds: the op is a sum or an
// average, else kMax or kMin.
template <DataType kType, bool kAdds>
ONEBIT_HOST_DEVICE constexpr WordOf<kType> Combine(DenseOp op, WordOf<kType> before,
                                                   WordOf<kType> next) {
  if constexpr (!kAdds) {
    return PreferenceOf<kType>(op, next) > PreferenceOf<kType>(op, before) ? next : before;
  } else if constexpr (kType == DataType::kF64) {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(before) + std::bit_cast<double>(next));
  } else {
    return static_cast<WordOf<kType>>(before + next);
  }
}

// The quotient of a sum and a number of ranks.
template <DataType kType>
ONEBIT_HOST_DEVICE constexpr WordOf<kType> Quotient(WordOf<kType> sum, size_t ranks) {
  if constexpr (kType == DataType::kF64) {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(sum) / static_cast<double>(ranks));
  } else if constexpr (kType == DataType::kI64) {
    return static_cast<uint64_t>(static_cast<int64_t>(sum) / static_cast<int64_t>(ranks));
  } else if constexpr (kType == DataType::kI32) {
    return static_cast<uint32_t>(static_cast<int32_t>(sum) / static_cast<int32_t>(ranks));
  } else {
    static_assert(kType == DataType::kU8);
    return static_cast<uint8_t>(sum / static_cast<uint32_t>(ranks));
  }
}

// Calls Reduction<type, adds>::Run(op, arguments...).
template <template <DataType, bool> class Reduction, DataType kType, class... Arguments>
ONEBIT_HOST_DEVICE void ReduceWordsOf(DenseOp op, const Arguments&... arguments) {
  if (op == DenseOp::kMax || op == DenseOp::kMin) {
    Reduction<kType, false>::Run(op, arguments...);
  } else if constexpr (IsOfWords(kType, DenseOp::kSum)) {
    Reduction<kType, true>::Run(op, arguments...);
  }
}

template <template <DataType, bool> class Reduction, class... Arguments>
ONEBIT_HOST_DEVICE void ReduceWords(DataType type, DenseOp op, const Arguments&... arguments) {
  switch (type) {
    case DataType::kF32:
      return ReduceWordsOf<Reduction, DataType::kF32>(op, arguments...);
    case DataType::kF16:
      return ReduceWordsOf<Reduction, DataType::kF16>(op, arguments...);
    case DataType::kBf16:
      return ReduceWordsOf<Reduction, DataType::kBf16>(op, arguments...);
    case DataType::kI32:
      return ReduceWordsOf<Reduction, DataType::kI32>(op, arguments...);
    case DataType::kI64:
      return ReduceWordsOf<Reduction, DataType::kI64>(op, arguments...);
    case DataType::kU8:
      return ReduceWordsOf<Reduction, DataType::kU8>(op, arguments...);
    case DataType::kF64:
      return ReduceWordsOf<Reduction, DataType::kF64>(op, arguments...);
  }
}

}  // namespace onebit::kernels::reference
