// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/reference/dense_words.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::reference {
namespace {

void AddFloats(const void* const* inputs, size_t ranks, size_t count, DataType type,
               bool is_average, void* output) {
  for (size_t i = 0; i < count; ++i) {
    float sum = LoadElement(inputs[0], type, i);
    for (size_t rank = 1; rank < ranks; ++rank) sum += LoadElement(inputs[rank], type, i);
    StoreElement(is_average ? sum / static_cast<float>(ranks) : sum, type, i, output);
  }
}

template <DataType kType, bool kAdds>
struct ScalarReduction {
  using Word = WordOf<kType>;

  static Word WordAt(const void* array, size_t i) {
    Word word;
    memcpy(&word, static_cast<const Word*>(array) + i, sizeof(word));
    return word;
  }

  static void Run(DenseOp op, const void* const* inputs, size_t ranks, size_t count, void* output) {
    for (size_t i = 0; i < count; ++i) {
      Word result = WordAt(inputs[0], i);
      for (size_t rank = 1; rank < ranks; ++rank) {
        result = Combine<kType, kAdds>(op, result, WordAt(inputs[rank], i));
      }
      if constexpr (kAdds) {
        if (op == DenseOp::kAverage) result = Quotient<kType>(result, ranks);
      }
      memcpy(static_cast<Word*>(output) + i, &result, sizeof(result));
    }
  }
};

}  // namespace

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output) {
  InDefaultFpEnvironment([&] {
    if (IsOfWords(type, op)) {
      ReduceWords<ScalarReduction>(type, op, inputs, ranks, count, output);
    } else {
      AddFloats(inputs, ranks, count, type, op == DenseOp::kAverage, output);
    }
  });
}

}  // namespace onebit::kernels::reference
