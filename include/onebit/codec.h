/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Codecs: how the elements of a compressed call travel. Included by onebit.h; the configuration of
 * a compressor has the members `codec`, `scaleRule`, `block`, `k`, `values`, `hops`, `efDecay` and
 * `seed`.
 */
#ifndef ONEBIT_CODEC_H_
#define ONEBIT_CODEC_H_

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How the elements of a block travel: as a code of few bits each, in units of the block's scale
 * (src/codec/FORMAT.md, section 15). "dB" is the signal-to-noise ratio of one pass over gradients
 * of a small language model at the default block.
 */
typedef enum {
  onebitCodecSign = 0,    /* 1 bit: the sign, fp32 scales; default block 4096; 3 dB. Gradients and
                             momentum with error feedback, where the variance is frozen (optim.h) */
  onebitCodecFp4 = 1,     /* 4 bits (e2m1): +-0, .5, 1, 1.5, 2, 3, 4, 6; default block 128; 19 dB.
                             Gradients with error feedback, outer gradients, weights */
  onebitCodecInt8 = 2,    /* 8 bits: -127 to 127; default block 256; 42 dB. Anything */
  onebitCodecUint8mm = 3, /* 8 bits: 0 to 255 from the smallest to the largest element; default
                             block 256; 43 dB. One-sided activations (ReLU, GELU), where it gains
                             6 dB over onebitCodecInt8 */
  onebitCodecInt2 = 4,    /* 2 bits: +-.5, +-1.5; default block 4096; 8 dB. Gradients with error
                             feedback; never activations */
  onebitCodecInt8Stochastic = 5, /* onebitCodecInt8 rounded up or down at random, so that the mean
                                    is exact: unbiased; onebitModePlain only; 39 dB */
  /* Sparse codecs send `k` elements of each block and nothing of the others (FORMAT.md, section
     18): 14 bits for each that is sent. AllReduce, and with onebitModePlain ReduceScatter and
     AllGather, of onebitMemoryHost; default block 4096. The library cannot know how many calls
     there will be, so it does not warn: below 3 for (number of calls) * k / block, some elements
     are hardly ever sent, and training suffers. */
  onebitCodecTopk = 6, /* the elements of largest magnitude. Outer gradients with error feedback */
  onebitCodecRandk = 7 /* elements drawn at random, the same ones on every rank; with
                          onebitModePlain times block / k, which makes the result unbiased with
                          onebitValuesFloat32. 2 bits, or 32, for each that is sent */
} onebitCodec_t;

/** How sparse codecs send an element's value. */
typedef enum {
  onebitValuesTwoMagnitudes = 0, /* 2 bits: the sign, and one of two magnitudes of the block */
  onebitValuesFloat32 = 1        /* as it is; truly sparse tensors */
} onebitSparseValues_t;

/** Scale of a block z of N elements. */
typedef enum {
  onebitScaleL2 = 0, /* ||z||_2 / sqrt(N): 1-bit Adam (Tang et al. 2021, section 3), DeepSpeed */
  onebitScaleL1 = 1  /* ||z||_1 / N: EF-SignSGD (Karimireddy et al. 2019), 0/1 Adam (optim.h) */
} onebitScaleRule_t;

#ifdef __cplusplus
}
#endif

#endif /* ONEBIT_CODEC_H_ */
