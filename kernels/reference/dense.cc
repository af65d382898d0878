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
               bool is_average, size_t divisor, const DenseTerms& terms, void* output) {
  const DataType output_type = terms.is_output_f32 ? DataType::kF32 : type;
  const auto term = [&](size_t rank, size_t i) {
    const float value = LoadElement(inputs[rank], type, i);
    return terms.factors == nullptr ? value : terms.factors[rank] * value;
  };
  for (size_t i = 0; i < count; ++i) {
    float sum = term(0, i);
    for (size_t rank = 1; rank < ranks; ++rank) sum += term(rank, i);
    StoreElement(is_average ? sum / static_cast<float>(divisor) : sum, output_type, i, output);
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

  static void Run(DenseOp op, const void* const* inputs, size_t ranks, size_t count, size_t divisor,
                  void* output) {
    for (size_t i = 0; i < count; ++i) {
      Word result = WordAt(inputs[0], i);
      for (size_t rank = 1; rank < ranks; ++rank) {
        result = Combine<kType, kAdds>(op, result, WordAt(inputs[rank], i));
      }
      if constexpr (kAdds) {
        if (op == DenseOp::kAverage) result = Quotient<kType>(result, divisor);
      }
      memcpy(static_cast<Word*>(output) + i, &result, sizeof(result));
    }
  }
};

}  // namespace

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output, const DenseTerms& terms) {
  const size_t divisor = terms.divisor == 0 ? ranks : terms.divisor;
  InDefaultFpEnvironment([&] {
    if (IsOfWords(type, op)) {
      ReduceWords<ScalarReduction>(type, op, inputs, ranks, count, divisor, output);
    } else {
      AddFloats(inputs, ranks, count, type, op == DenseOp::kAverage, divisor, terms, output);
    }
  });
}

}  // namespace onebit::kernels::reference
