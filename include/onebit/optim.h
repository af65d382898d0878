/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers: 1-bit Adam, 1-bit LAMB and 0/1 Adam over the compressed allreduce. Included by
 * onebit.h.
 *
 * An optimizer does both the averaging of gradients and the parameter update: each rank passes its
 * own gradients, and every rank ends the step with the same parameters, byte for byte. (With 0/1
 * Adam this holds after every sync.)
 *
 *   onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
 *   config.beta2 = 0.95;                                    // averages over 20 steps
 *   config.biasCorrection = 1;                              // as in AdamW
 *   config.freezeStep = steps / 4;                          // unset: freezes automatically
 *   onebitOptimizer_t optimizer;
 *   onebitOptimizerCreate(&optimizer, comm, count, parameters, &config);
 *   for (...) {
 *     // gradients of this rank's part of the batch, neither averaged nor clipped
 *     onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
 *     onebitOptimizerStep(optimizer, gradients, onebitFloat32, lr, 1.0, 0.0, &result, NULL);
 *     if (result.skipped) ...                               // the same on every rank
 *   }
 *
 * Parameters and gradients need not share one buffer. A segment can point to its own parameters,
 * and onebitOptimizerAddGradient takes gradients one at a time, in the order in which they become
 * available. Nothing is copied into a flat buffer, and results are the same, bit for bit.
 *
 * 1-bit Adam (Tang et al. 2021, algorithm 1) has two stages. Through step T_w it is Adam with dense
 * gradient averaging. Then the variance v is frozen, and ranks exchange the momentum m instead of
 * the gradient, at one bit per element with error feedback.
 *
 * 1-bit LAMB (Li et al. 2021, algorithm 1) does the same for LAMB, which scales the step of each
 * layer (here: segment) by a trust ratio c. The dense stage measures c = |x| / |u| and keeps its
 * moving average. In the compressed stage c is that average times a factor that follows the
 * variance of gradients reconstructed from the momentum. The momenta of all layers are first scaled
 * to the same root mean square, so that one call can carry them all. 1-bit LAMB needs a lower
 * learning rate than LAMB: start with half of LAMB's best rate; at the full rate it may diverge.
 *
 * 0/1 Adam (Lu et al. 2023, algorithm 1) has no long dense stage: v is refreshed at ever rarer
 * steps. Each rank steps on its own and sums up its updates. Ranks average these sums at syncs, at
 * one bit per element; the steps in between send nothing. schedule.h says which steps are syncs.
 *
 * If the parameters are in CUDA device memory (memory.h), so is the whole optimizer.
 * onebitOptimizerStep describes how such a step runs. Results and saved states are the same as with
 * host memory, bit for bit.
 *
 * docs/settings.md recommends settings and names the models on which they were tested.
 * src/optim/DEEPSPEED.md maps the parameters of DeepSpeed's optimizers to the members below and
 * lists the differences.
 */
#ifndef ONEBIT_OPTIM_H_
#define ONEBIT_OPTIM_H_

#include "onebit/onebit.h"
#include "onebit/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct onebitOptimizer_s* onebitOptimizer_t;

/* ------------------------------------------------------------------------------ configuration */

/** Stage of an optimizer, which determines the data that a step sends. */
typedef enum {
  onebitStageDense = 0,      /* full precision gradients; the variance is live */
  onebitStageCompressed = 1, /* one-bit momentum; only dense segments have a live variance */
  onebitStageBoth = 2,       /* 0/1 Adam: full precision gradients for v, and one-bit sums */
  onebitStageLocal = 3       /* nothing: a local step of 0/1 Adam, or the first step of DeepSpeed's
                                variant, which is swallowed together with its gradients */
} onebitStage_t;

/** Flags of a segment. */
typedef enum {
  /* The segment has an exact average and a live variance in all stages: plain Adam or LAMB. Use it
     for embeddings and biases whose gradients are sparse. With 0/1 Adam, v sees only the gradients
     of syncs, so varianceFloor applies here, too. */
  onebitSegmentDense = 1,
  /* 1-bit LAMB: the segment has no trust ratio, c = 1 in both stages. For biases and norms. */
  onebitSegmentNoTrustRatio = 2,
  /* For embeddings under 0/1 Adam, whose rows receive gradients only now and then. Wherever
     varianceFloor applies, the lower bound of sqrt(v) is its whole root mean square over the
     segment, not a share of it: v of a rare row says nothing about the row's next gradient, which
     could throw the row far away. Rows that are rarer than average then move as under momentum
     without v. With 1-bit Adam use onebitSegmentDense. */
  onebitSegmentRareRows = 4
} onebitSegmentFlags_t;

/** The norm that max_grad_norm of onebitOptimizerStep limits. */
typedef enum {
  /* sqrt(mean over ranks of |g|^2): one factor for all ranks, in every step that sends something */
  onebitClipMeanSquare = 0,
  /* the norm of the averaged gradient in dense steps; other steps clip each rank's own gradient */
  onebitClipAverage = 1
} onebitClipNorm_t;

/** What a scale of the compressed average may span. */
typedef enum {
  /* One segment: blocks restart at each. Gradients of layers differ in size, those of a bias in
     front of a normalization by many orders of magnitude, and an element that gets the scale of
     much larger neighbours is thrown far away. */
  onebitScalesSegment = 1,
  /* Neighbours in the buffer of all segments, as in the papers. For comparisons with them. */
  onebitScalesFused = 2
} onebitScales_t;

/** A run of parameters with settings of its own, e.g. a layer. Start from ONEBIT_SEGMENT_INIT. */
typedef struct {
  size_t size;         /* sizeof(onebitSegment_t), the same in all segments of a table */
  size_t offset;       /* first element: the end of the segment before it (0 for the first) */
  size_t count;        /* elements; may be 0 */
  double lrScale;      /* multiplies the learning rate, >= 0; default 1 */
  double weightDecay;  /* >= 0; default: weightDecay of the optimizer */
  uint32_t flags;      /* sum of onebitSegmentFlags_t */
  const uint8_t* mask; /* NULL: all elements take part. Otherwise one bit per element of the
                          segment: bit i mod 8 of byte i / 8 is element i. A clear bit excludes the
                          element: its momentum is 0, and only weight decay moves it. Copied */
  float* parameters;   /* `count` elements; NULL: those at `offset` of the buffer given to
                          onebitOptimizerCreate, whose rules apply to both */
  void* parameterCopy; /* `count` elements; NULL: those at `offset` of the configuration's
                          parameterCopy, if it has one. parameterCopyType applies to both */
} onebitSegment_t;

#define ONEBIT_SEGMENT_INIT \
  { sizeof(onebitSegment_t), 0, 0, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, 0, NULL, NULL, NULL }

/** Stands for all segments, one after the other, where a segment's index is expected. */
#define ONEBIT_ALL_SEGMENTS SIZE_MAX

/**
 * Parameters of an optimizer. Start from ONEBIT_OPTIMIZER_CONFIG_INIT and set what differs; members
 * left at ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL or ONEBIT_UNDEF_STEP take the default given here.
 * Leave the members that the algorithm or the variant does not use at their initial values.
 *
 * All members except parameterCopy must be equal on all ranks.
 */
typedef struct {
  size_t size;            /* sizeof(onebitOptimizerConfig_t) */
  uint32_t magic;         /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;       /* ONEBIT_VERSION_CODE */
  int32_t algorithm;      /* onebitAlgorithm_t; default onebitAlgorithmOneBitAdam */
  int32_t variant;        /* onebitVariant_t; default onebitVariantPaper */
  int32_t biasCorrection; /* 0 (default, as in the paper: use a learning-rate warm-up) or 1: divides
                             m and v by 1 - beta^t as AdamW does. A frozen v keeps the divisor of
                             T_w; that of m continues in both stages. Paper's variant only, and not
                             for 0/1 Adam, whose momentum is a mean over an interval */
  double beta1;           /* decay of m, [0, 1); default 0.9 */
  double beta2;           /* decay of v, [0, 1); default 0.999 */
  double eps;             /* added to the denominator, > 0; default 1e-8 */
  double weightDecay;     /* decoupled, as in AdamW, in both stages; >= 0; default 0 */
  double varianceFloor;   /* lower bound of sqrt(v) after the freeze (0/1 Adam: always), as a share
                             of the root mean square of sqrt(v) over the segment, or with
                             onebitScalesSegment over 4096 of its elements where that is larger (not
                             for 1-bit LAMB); >= 0; default 0.01, or 0.1 for 0/1 Adam. Without it,
                             elements whose gradients almost vanished before the freeze would be
                             thrown far away, because they then share scales with live elements. 0:
                             no bound, as in the papers; this is the default of DeepSpeed's variant */
  /* These decide which steps are dense, compressed or local: see onebitPolicyConfig_t. */
  int64_t freezeStep;    /* 1-bit Adam and 1-bit LAMB: T_w, the number of dense steps, >= 1; or
                            ONEBIT_FREEZE_AUTOMATIC (default); or, with biasCorrection,
                            ONEBIT_FREEZE_SETTLED; or ONEBIT_FREEZE_NEVER. DeepSpeed's variant
                            swallows the first of them, and has no rule that follows v */
  int64_t lrWarmupSteps; /* steps over which the caller raises the learning rate, >= 0; default 0 */
  /* Says how the momentum is compressed; NULL: all defaults. Copied. Its mask must be NULL, because
     masks belong to segments. Leave its memory and device undefined, or set them to where the
     parameters are. */
  const onebitCompressorConfig_t* compressor;
  /* A table that covers all elements in order without gaps; NULL: one segment. Copied. */
  const onebitSegment_t* segments;
  size_t segmentCount; /* entries of segments */
  /* NULL, or `count` elements of parameterCopyType that every step rewrites from the fp32
     parameters, rounded to nearest even. They are in the same memory as the parameters, belong to
     the caller, and must outlive the optimizer. onebitOptimizerCreate does not write them. */
  void* parameterCopy;
  int32_t parameterCopyType; /* onebitFloat16 or onebitBfloat16; required with parameterCopy, also
                                with that of a segment */

  /* 1-bit LAMB only: trust ratios c = |x| / |u|. */
  double minCoeff;  /* smallest c of a dense step, >= 0; default 0.01 */
  double maxCoeff;  /* largest c of a dense step, >= minCoeff; default 10 */
  double coeffBeta; /* decay of the moving average of c over dense steps, [0, 1); default 0.9. The
                       average starts at 0 and is not corrected: with fewer dense steps than several
                       times 1 / (1 - coeffBeta), layers move too little after the freeze */
  double factorMin; /* smallest factor on that average in compressed steps, > 0; default 0.5 */
  double factorMax; /* largest one, >= factorMin; default 4 */
  /* largest relative change of the factor in a step, [0, 1); default 0.1 */
  double factorThreshold;

  /* 0/1 Adam only: see onebitPolicyConfig_t. */
  int64_t varFreezeStep;          /* default: lrWarmupSteps, which must then be positive */
  int64_t varUpdateScaler;        /* default 16 */
  int64_t localStepScaler;        /* default 32678 */
  int64_t localStepClipper;       /* default 16 */
  int64_t localStepStart;         /* default: varFreezeStep */
  int32_t rateTied;               /* 0 (default) or 1 */
  int32_t denseStepFeedsMomentum; /* 0 (default) or 1 */

  int32_t clipNorm; /* onebitClipNorm_t; default onebitClipMeanSquare */
  int32_t scales;   /* onebitScales_t; default onebitScalesSegment, but onebitScalesFused with a
                       compressor that knows nothing else: one whose block is ONEBIT_BLOCK_TENSOR, or
                       whose codec is not onebitCodecSign */
} onebitOptimizerConfig_t;

#define ONEBIT_OPTIMIZER_CONFIG_INIT                                                             \
  {                                                                                              \
    sizeof(onebitOptimizerConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,                \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP,              \
        ONEBIT_UNDEF_STEP, NULL, NULL, 0, NULL, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL,             \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,              \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP,              \
        ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT,                \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT                                                       \
  }

/* ------------------------------------------------------------------------------------- results */

/** Outcome of a step. Start from ONEBIT_STEP_RESULT_INIT. */
typedef struct {
  size_t size;      /* sizeof(onebitStepResult_t) as the caller was compiled; input */
  int32_t skipped;  /* 1: some rank's gradient was not finite, or its square overflowed fp32 (which
                       is detected in the dense stage and when the norm is measured). Nothing has
                       changed, except that 0/1 Adam takes back local steps. Equal on all ranks */
  int32_t stage;    /* onebitStage_t of this step */
  uint64_t step;    /* steps so far, this one included and skipped ones not: t of the formulas */
  double grad_norm; /* the norm that max_grad_norm limits, before clipping; -1 if not measured.
                       Equal on all ranks, unless it is the norm of the rank's own gradient */
  uint64_t bytes_sent; /* sent by this rank for the averages of this step, headers included */
} onebitStepResult_t;

#define ONEBIT_STEP_RESULT_INIT \
  { sizeof(onebitStepResult_t), 0, 0, 0, -1.0, 0 }

/** Counters and facts of an optimizer. */
typedef struct {
  size_t size;               /* sizeof(onebitOptimizerStats_t) as the caller was compiled; input */
  uint64_t step;             /* steps that were not skipped */
  uint64_t dense_steps;      /* steps with a full precision average */
  uint64_t compressed_steps; /* steps with a compressed average; a step may have both */
  uint64_t local_steps;      /* steps that sent nothing */
  uint64_t skipped;          /* steps that were skipped */
  uint64_t frozen_at;        /* T_w, or varFreezeStep: the last step that changes v; 0 until then */
  uint64_t bytes_sent;      /* by this rank in steps that returned success, skipped ones included */
  uint64_t state_bytes;     /* memory held for m, v, masks, scratch and residuals */
  int32_t stage;            /* onebitStage_t of the next step */
  uint64_t lost_elements;   /* as in onebitCompressorStats_t, summed over all compressors */
  uint64_t local_overflows; /* local steps in which this rank's gradient was not finite and counted
                               as zero. `skipped` leaves them out, so a loss scaler of 0/1 Adam must
                               read this on all ranks. Saved states do not have it */
} onebitOptimizerStats_t;

/** Trust ratio of a layer of 1-bit LAMB. Start from ONEBIT_TRUST_RATIO_INIT. */
typedef struct {
  size_t size;        /* sizeof(onebitTrustRatio_t) as the caller was compiled; input */
  double coefficient; /* c of the last step: the layer moved by c times its Adam step. 0 before the
                         first step; 1 without a trust ratio */
  double average;     /* moving average of c over the dense steps */
  double factor;      /* factor of the last compressed step, in which c = average * factor */
  double momentumScale; /* multiplies the layer's momentum before compression, so that all layers
                           have the same root mean square at the freeze; 1 for a layer whose
                           momentum is less than a millionth of the others' */
} onebitTrustRatio_t;

#define ONEBIT_TRUST_RATIO_INIT \
  { sizeof(onebitTrustRatio_t), 0, 0, 1, 1 }

/* --------------------------------------------------------------------------------------- steps */

/**
 * Makes an optimizer for `count` parameters, with m = v = 0 at step 0.
 *
 * Local: sends nothing. It creates compressors, so all ranks must create their optimizers in the
 * same order, or set the tensorId of `compressor`.
 *
 * Memory per element, in the parameters' memory: 8 bytes for m and v; the compressor's residuals
 * (onebitCompressorCreate) unless freezeStep is ONEBIT_FREEZE_NEVER; 1/8 byte for masks; 4 bytes of
 * scratch if there are dense segments or gradients that are not fp32. 1-bit LAMB adds 4 bytes for
 * the variance of reconstructed gradients. 0/1 Adam adds 8 for the sum of steps and the parameters
 * of the last sync, and 4, or 8 with 16-bit gradients, until its variance is frozen (on a device:
 * for as long as it lives). All compressed segments share one compressor. Gradients that are handed
 * over one by one add 4 bytes of scratch, and another 4 if they were ever NULL.
 *
 * @param optimizer  Receives the handle.
 * @param comm       All its ranks take part in every step. It must outlive the last step, or live
 *                   until the optimizer is rebound.
 * @param count      Number of parameters; may be 0.
 * @param parameters fp32, `count` elements, updated in place by every step. Owned by the caller;
 *                   must outlive the optimizer. They must already hold the initial values, the same
 *                   bytes on every rank (see onebitBroadcast), because 0/1 Adam remembers where it
 *                   began. They are in host memory or on the CUDA device of `comm`, where the work
 *                   that writes the initial values must have finished. May be NULL if every
 *                   segment that is not empty points to its own.
 * @param config     NULL: all defaults.
 * @return onebitInvalidArgument  also: a member of `config` is out of range (the text says what is
 *                                allowed); or a segment's parameters, a parameterCopy or the
 *                                compressor's memory is not where the first parameters are.
 * @return onebitInvalidUsage     also: `comm` works on a device other than the parameters' device.
 *
 * Thread safety: one thread at a time per `comm`.
 */
ONEBIT_API onebitResult_t onebitOptimizerCreate(onebitOptimizer_t* optimizer, onebitComm_t comm,
                                                size_t count, float* parameters,
                                                const onebitOptimizerConfig_t* config);

/**
 * Frees an optimizer and its state, before or after its communicator is destroyed. Local.
 *
 * @param optimizer If NULL, nothing is done.
 *
 * Thread safety: no other thread may still be using `optimizer`.
 */
ONEBIT_API onebitResult_t onebitOptimizerDestroy(onebitOptimizer_t optimizer);

/**
 * Passes the gradient of one segment for the next step. Local: sends nothing and reads no
 * elements.
 *
 * The gradients of a step may come in any order, which may differ between ranks, e.g. the order of
 * a backward pass. Every segment that is not empty needs one, and all ranks must choose the same
 * data types. onebitOptimizerStep with gradients = NULL then makes the step. It uses them all up,
 * whatever it returns, unless its arguments are wrong, the optimizer is busy or a group is open.
 *
 * @param segment  Index in the segment table; 0 if there is no table. ONEBIT_ALL_SEGMENTS, with
 *                 `gradient` NULL: discards everything passed so far, e.g. after a backward pass
 *                 failed.
 * @param gradient The segment's elements as this rank has them, local and unaveraged, in the
 *                 parameters' memory. It must live until the step, which uses it as scratch: its
 *                 content is undefined afterwards, even after a skipped step. On a device, earlier
 *                 work on the step's stream may still be writing it. NULL: zeros, for parameters
 *                 that took no part.
 * @param datatype Type of this gradient: onebitFloat32, onebitFloat16 or onebitBfloat16. Segments
 *                 may differ. Required with NULL, too, because the average is formed in this type.
 * @return onebitInvalidArgument  also: there is no such segment, or the gradient is not where the
 *                                parameters are.
 * @return onebitInvalidUsage     also: the segment already has a gradient for the next step.
 *
 * After an error nothing is handed over. Allocates nothing. Thread safety: one thread at a time per
 * optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerAddGradient(onebitOptimizer_t optimizer, size_t segment,
                                                     void* gradient, onebitDataType_t datatype);

/**
 * Averages gradients over all ranks and updates the parameters: one step of the configured
 * algorithm. Collective: every rank calls it at every step, with equal datatype, learning_rate,
 * grad_scale and max_grad_norm. Either all ranks pass their gradients in one buffer, or all hand
 * them over one by one.
 *
 * With g = gradients * grad_scale * clip and t the number of this step:
 *
 * 1-bit Adam
 *   dense       m = b1 m + (1-b1) avg(g)          v = b2 v + (1-b2) avg(g)^2  d = sqrt(v)
 *   compressed  m = onebit_avg(b1 m + (1-b1) g)   v = v of step T_w           d = max(sqrt(v), f)
 *   both        x = x - lr u,                     u = m / (d + eps) + weight_decay x
 *
 * 1-bit LAMB, with m, v, d and u as above for each layer
 *   both        x = x - lr c u
 *   dense       c = clip(|x| / |u|, minCoeff, maxCoeff), 1 where x or u is 0; C is its average
 *   compressed  c = C r, where r is the maximum of (d + eps) / (sqrt(w) + eps) over the layer,
 *               reduced by the share of weight decay in u, then limited to factorMin and factorMax,
 *               then to a change of factorThreshold from the previous r. w continues as v would,
 *               with gradients (m_t - b1 m_{t-1}) / (1-b1)
 *
 * 0/1 Adam, between two syncs on each rank by itself
 *   local       m = b1 m + (1-b1) g    s = s + lr m    L = L + lr
 *               x = x_sync - s / (d + eps) - weight_decay L x_sync,   d = max(sqrt(v), f)
 *   sync        a = onebit_avg(s)   m = a / L   x as above, from a; x_sync = x, s = 0, L = 0
 *   refresh     v = b2 v + (1-b2) avg(g)^2, before anything else of its step
 *
 * At every sync of 0/1 Adam, s and g of dense segments are averaged exactly, and g refreshes v.
 * schedule.h says which steps are syncs.
 *
 * clip is min(1, max_grad_norm / norm). The configuration's clipNorm says which norm.
 *
 * onebitClipMeanSquare: sqrt(mean over ranks of |gradients * grad_scale|^2), the same factor on
 * every rank in both stages. This norm is larger than that of the mean gradient, because it
 * includes the noise of each rank. It costs a dense allreduce of one number, which is not sent if
 * max_grad_norm is 0.
 *
 * onebitClipAverage: |avg(gradients) * grad_scale| in steps that average all gradients densely, as
 * clip_grad_norm_ of PyTorch does after DistributedDataParallel. It sends nothing more. A
 * compressed step never learns the average, so each rank clips its own gradient by its own norm. By
 * the triangle inequality the average is then within the limit, too, but the norms of single ranks
 * are larger (up to the root of the number of ranks), so clipping becomes stricter at the freeze.
 * Two averages are known in other steps and are clipped by their own norms: the one of the dense
 * segments of a compressed step, and the one that refreshes v of 0/1 Adam. grad_norm of the result
 * is the norm of the average of all gradients if the step has one, otherwise the norm of the rank's
 * own gradient. When v is refreshed, a rank whose gradient is finite but whose squares overflow
 * fp32 contributes to v, but adds nothing to its own momentum.
 *
 * A local step always clips by the norm of the rank's own gradient.
 *
 * The floor f is varianceFloor times the root mean square of sqrt(v) that the configuration names,
 * or that root mean square itself with onebitSegmentRareRows. It bounds d in compressed steps; in
 * dense segments it bounds d only with 0/1 Adam, where a segment whose v is all 0 does not move at
 * all. After the freeze, and always in 0/1 Adam, elements whose v is 0 are masked: they never
 * received a gradient, and one bit cannot express 0.
 *
 * Values that are not finite. A step happens either on every rank or on none. If a gradient of any
 * rank is NaN or infinite, or overflows on the way, the step is skipped: it returns onebitSuccess
 * with `skipped` = 1, and m, v, x, residuals and the step number stay as they were, bit for bit.
 * (A compressor that is not transactional resets its residuals.) In the compressed stage the
 * gradients of masked elements are ignored, unless the norm is measured. Ranks cannot agree on a
 * step that sends nothing: all ranks make it, whatever the state of the communicator, and a rank
 * whose gradient is not finite uses zeros. A sync whose sum is not finite on some rank is skipped:
 * all ranks return to x_sync with s = 0 and L = 0, and m becomes the mean over the ranks, averaged
 * in full precision.
 *
 * Values that must be equal. Ranks that differ in a rate or a weight decay, or that began with
 * different parameters, would drift apart. They therefore compare learning_rate, grad_scale,
 * max_grad_norm and the configuration (except masks and members that decide about steps) before the
 * first step of each stage and in every 64th later step that sends something, and a digest of the
 * parameters before the first of these. They do so again after a state was loaded or the optimizer
 * was rebound, without the parameters if an interval of 0/1 Adam is open. A comparison costs an
 * allreduce of 18 numbers per rank, which bytes_sent leaves out. Ranks whose rates diverge
 * learn of it at most 64 such steps later; their results in between differ, so training must
 * continue from a checkpoint.
 *
 * On a device all work is enqueued on `stream`; the kernels that make the gradients may still run.
 * The call waits on the host, by polling, until the ranks have agreed, once for each average that
 * they examine: once in every step, local ones included; once more for the dense segments of a
 * compressed step, for the trust ratios of a LAMB, and until a freeze that follows v; twice for
 * max_grad_norm; two or three times more when a variance is frozen or refreshed. The last part, the
 * update of x, m, v and the copy, is only enqueued: later work on `stream` sees its results, other
 * streams must wait for an event recorded there. Steps may be on different streams but cannot be
 * captured into a graph. The other functions that work on elements, Create and Destroy included,
 * wait for the last step and return when they are done; the caller's own work on the parameters
 * must have finished before they are called.
 *
 * @param gradients     `count` elements of this rank, local and unaveraged, in the parameters'
 *                      memory. Used as scratch: undefined afterwards, even after a skipped step.
 *                      NULL: those that were handed over with onebitOptimizerAddGradient.
 * @param datatype      Type of gradients: onebitFloat32, onebitFloat16 or onebitBfloat16. The dense
 *                      stage averages in this type. Ignored if gradients is NULL.
 * @param learning_rate >= 0, finite.
 * @param grad_scale    Multiplies gradients first, e.g. 1 / loss scale; > 0, finite.
 * @param max_grad_norm Clips to this norm; 0: no clipping; INFINITY: only measures the norm.
 * @param result        NULL, or receives the outcome.
 * @param stream        Host memory: NULL, and the call blocks. (To run a step on a stream, call it
 *                      from a function of onebitStreamLaunchHostFunc.) Device memory: a
 *                      cudaStream_t of that device; NULL is its default stream.
 * @return onebitInvalidArgument  also: the stream is of the wrong kind, or the gradients are not
 *                                where the parameters are.
 * @return onebitInvalidUsage     also: a group is open; `stream` is being captured; a rebind was
 *                                left half done; a device failed in the middle of an update;
 *                                gradients is NULL, but a segment's gradient is missing; or
 *                                gradients is not NULL, but some were handed over.
 * @return onebitMismatch         also: a value that the ranks compare differs; the text names it,
 *                                two ranks and their values. Nothing changed.
 * @return onebitUnhandledCudaError  the device is broken. If it was in the middle of an update, x,
 *                                m and v are part old and part new, and further steps are refused.
 * @return onebitOutOfMemory      no scratch at the first use of this gradient type, or no masks at
 *                                the first compressed step; nothing changed.
 * @return other errors of every collective: m, v, x and the step number of this rank are unchanged;
 *         a rank that had already finished may be one step ahead (onebitOptimizerRebind).
 *
 * Thread safety: one thread at a time per optimizer and per its communicator. A step allocates
 * nothing, except in the first two steps of each stage, at the first gradient of another type or
 * the first NULL one, and in steps of 0/1 Adam that refresh a variance or whose sync is skipped.
 */
ONEBIT_API onebitResult_t onebitOptimizerStep(onebitOptimizer_t optimizer, void* gradients,
                                              onebitDataType_t datatype, double learning_rate,
                                              double grad_scale, double max_grad_norm,
                                              onebitStepResult_t* result, onebitStream_t stream);

/**
 * Moves an optimizer with all of its state to a communicator that was made from ranks of its old
 * one, so that training can continue after a rank was lost (onebitCommShrink). Collective over
 * `newcomm`: each rank calls it for its part of the same optimizer, whether or not the old
 * communicator was destroyed.
 *
 * A step that failed on some ranks may have happened on others, which are then one step ahead. All
 * ranks adopt parameters, parameter copy, m, v and the step number of a rank that is ahead. The
 * trainer must continue with the same step on all ranks: the stats have its number. Residuals move
 * as in onebitCompressorRebind; those of lost ranks are lost.
 *
 * @param newcomm A healthy communicator, none of whose own compressors has a tensor id of the
 *                optimizer's.
 * @param source  Receives the rank of `newcomm` whose state all ranks have now.
 * @return onebitInvalidUsage     also: a group is open.
 * @return onebitMismatch         the ranks' optimizers do not belong to the same training, or only
 *                                some were re-warmed.
 * @return onebitRemoteError      another rank failed; or the only rank that was ahead was lost
 *                                while the others took its state: then only a checkpoint helps.
 * @return other errors of onebitCompressorRebind and onebitBroadcast. Repeat the call, on the
 *         successor of `newcomm` if that has failed; until then a rank whose state is half adopted
 *         refuses steps.
 *
 * Thread safety: one thread at a time per optimizer and per `newcomm`.
 */
ONEBIT_API onebitResult_t onebitOptimizerRebind(onebitOptimizer_t optimizer, onebitComm_t newcomm,
                                                int* source);

/**
 * Reads counters and facts.
 *
 * @param stats `size` must be set; members beyond the library's own size are left alone.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetStats(onebitOptimizer_t optimizer,
                                                  onebitOptimizerStats_t* stats);

/**
 * Reads the trust ratios of a layer of 1-bit LAMB, which are the same on every rank. Local.
 *
 * @param segment Index in the segment table; 0 if there is no table.
 * @param ratio   `size` must be set; members beyond the library's own size are left alone.
 * @return onebitInvalidArgument  also: there is no such segment.
 * @return onebitInvalidUsage     also: the algorithm is not onebitAlgorithmOneBitLamb.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetTrustRatio(onebitOptimizer_t optimizer, size_t segment,
                                                       onebitTrustRatio_t* ratio);

/**
 * Makes the ranks agree on parameters and momentum after local steps, as a sync of 0/1 Adam does,
 * but without a step. Call it before an evaluation or checkpoint in the middle of an interval; the
 * next interval begins here. Collective. It sends nothing if the ranks already agree, as they do
 * after every step of the other algorithms.
 *
 * If the sum of some rank is not finite, all ranks return to the parameters of the last sync, and
 * the momentum becomes the mean over the ranks.
 *
 * @return onebitInvalidUsage  also: a group is open, or a rebind was left half done.
 * @return errors of every collective. x, m and v of this rank are then unchanged, but a rank that
 *         had already finished has new ones: onebitOptimizerRebind makes them agree.
 *
 * Thread safety: one thread at a time per optimizer and per its communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerSync(onebitOptimizer_t optimizer);

/**
 * Reads a moment of one segment by the name that it has in the formulas of onebitOptimizerStep.
 * Local.
 *
 * Names: "m", the momentum, and "v", the variance, both without bias correction. 1-bit LAMB with a
 * compressed stage also has "w", the variance of reconstructed gradients, used after the freeze;
 * 0/1 Adam has "s", the sum of steps since the last sync, and "x_sync", the parameters of the last
 * sync. They are the same on every rank, except m and s of 0/1 Adam between two syncs.
 *
 * @param segment Index in the segment table; 0 if there is no table; ONEBIT_ALL_SEGMENTS.
 * @param name    One of the names above.
 * @param values  Receives the segment's elements, as fp32; in host memory or where the parameters
 *                are. May be NULL if there are none.
 * @return onebitInvalidArgument  also: there is no such segment, or no such moment; the text lists
 *                                the moments that exist.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetMoment(onebitOptimizer_t optimizer, size_t segment,
                                                   const char* name, float* values);

/**
 * Replaces the settings of one segment that may change between steps: for schedules that differ
 * between layers, and for layers that start to train later. Local, and compares nothing between
 * ranks: call it on all of them between the same two steps, with the same values.
 *
 * @param segment      Index in the segment table; 0 if there is no table.
 * @param lr_scale     The new lrScale of onebitSegment_t; ONEBIT_UNDEF_REAL leaves it as it is.
 * @param weight_decay The new weightDecay; ONEBIT_UNDEF_REAL leaves it as it is.
 * @return onebitInvalidArgument  also: there is no such segment, or a value is out of range.
 * @return onebitInvalidUsage     also: an interval of 0/1 Adam has begun, all of whose steps must
 *                                have the same factors: call onebitOptimizerSync first.
 *
 * After an error nothing has changed. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerSetRates(onebitOptimizer_t optimizer, size_t segment,
                                                  double lr_scale, double weight_decay);

/**
 * Replaces a moment of one segment, e.g. with that of another Adam's checkpoint. Local: call it on
 * all ranks between the same two steps, with the same values. Step numbers, schedule and residuals
 * stay as they are; onebitOptimizerImport replaces everything.
 *
 * If v is frozen, the step after a new v recomputes masks and floors.
 *
 * @param values The segment's elements; finite, and for "v" and "w" not negative. In host memory or
 *               where the parameters are.
 * @return onebitInvalidArgument  also: there is no such segment or moment, or a value is
 *                                impossible; nothing changed.
 * @return onebitInvalidUsage     also: a rebind was left half done.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerSetMoment(onebitOptimizer_t optimizer, size_t segment,
                                                   const char* name, const float* values);

/**
 * Returns to dense steps, after which the variance is frozen again: for training in two phases,
 * e.g. with longer sequences or other data in the second. Parameters, momentum and step number
 * continue; residuals are dropped. Local: call it on all ranks between the same two steps. If ranks
 * differ, the first step that is dense on some and compressed on others reports onebitMismatch.
 *
 * 1-bit Adam and 1-bit LAMB: v becomes live again, starting from its frozen value, and so does its
 * bias correction. `steps` further steps are dense. Moving averages of trust ratios restart at 0,
 * factors and momentum scales at 1. A call before the freeze replaces the rule for it.
 *
 * 0/1 Adam: the refreshes of v, from its present value, and the intervals of local steps restart as
 * at step 0 of the configuration's policy; the step that DeepSpeed's variant swallows is not
 * swallowed again. In the middle of an interval call onebitOptimizerSync first.
 *
 * @param steps Number of dense steps, >= 1; or ONEBIT_FREEZE_NEVER; or ONEBIT_FREEZE_AUTOMATIC, the
 *              rule that freezeStep has by default, with lrWarmupSteps counted from here. For 0/1
 *              Adam always ONEBIT_FREEZE_AUTOMATIC.
 * @return onebitInvalidArgument  also: ONEBIT_FREEZE_SETTLED, because v continues from where it had
 *                                settled; ONEBIT_FREEZE_AUTOMATIC for 1-bit Adam and 1-bit LAMB
 *                                with onebitVariantDeepSpeed, or with a beta2 above 1 - 1e-6; or 1
 *                                if DeepSpeed's variant has yet to swallow its first step.
 * @return onebitInvalidUsage     also: a group is open, freezeStep is ONEBIT_FREEZE_NEVER, an
 *                                interval of 0/1 Adam has begun, or a rebind was left half done.
 *
 * After an error the optimizer is unchanged. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerRewarm(onebitOptimizer_t optimizer, int64_t steps);

/* ---------------------------------------------------------------------------------- checkpoints */

/**
 * Writes an optimizer into `buffer`, for a checkpoint: the fp32 parameters, which are its master
 * weights, m, v and the other state of its algorithm, counters, the progress of its schedule, and
 * its compressor's residuals. The state has neither the learning rate nor other arguments of
 * onebitOptimizerStep, nor the low-precision copy of the parameters, which follows from them, nor
 * bytes_sent of the stats.
 *
 * onebitStateRank is local, forces no sync, and also works after the communicator was destroyed. It
 * belongs to this rank alone. With the states of the same step on all ranks, training continues bit
 * for bit as if it had not been interrupted, even in the middle of an interval of 0/1 Adam. `step`
 * and `skipped` of the stats tell whether it is the same step.
 *
 * onebitStateGlobal is collective over the optimizer's communicator: each rank calls it between the
 * same two steps and gets the same bytes, which are compared, so one copy is enough for a
 * checkpoint. It first makes the ranks agree, as onebitOptimizerSync does. In the middle of an
 * interval that is an additional sync, after which training differs from a run without it. Its
 * residuals are what onebitCompressorExport writes for onebitStateGlobal.
 *
 * src/state/STATE.md describes the bytes.
 *
 * @param kind   Scope of the state.
 * @param buffer NULL: only *bytes is written, without communication. Otherwise receives the state;
 *               any alignment. Its content is undefined after an error.
 * @param bytes  In: the size of `buffer`, if it is not NULL. Out: the length of the state: 12 bytes
 *               per element for 1-bit Adam, 16 for 1-bit LAMB, 20 for 0/1 Adam, plus the length
 *               that onebitCompressorExport gives for this kind.
 * @return onebitInvalidArgument  also: *bytes is too small, and receives the size needed. Nothing
 *                                was sent.
 * @return onebitInvalidUsage     also: a group is open, or a rebind was left half done.
 * @return onebitDetached         onebitStateGlobal: the communicator was destroyed.
 * @return onebitMismatch         onebitStateGlobal: the ranks have made different steps, or have
 *                                different values where all should have the same.
 *
 * Further errors: those of onebitCompressorExport and, for onebitStateGlobal, of
 * onebitOptimizerSync. Thread safety: one thread at a time per optimizer and, for
 * onebitStateGlobal, per communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerExport(onebitOptimizer_t optimizer, onebitStateKind_t kind,
                                                void* buffer, size_t* bytes);

/**
 * Replaces the state of an optimizer with one from onebitOptimizerExport, including the parameters
 * and their low-precision copy. Local: call it on all ranks between the same two steps, each with
 * its own onebitStateRank or all with the same onebitStateGlobal.
 *
 * The state fits an optimizer with the same algorithm, variant, count, segments (how many, their
 * counts, and which are dense), beta2, and members that decide about steps: freezeStep and
 * lrWarmupSteps, or those of 0/1 Adam. A onebitStateRank fits the same rank of as many ranks, with
 * a compressor of the same settings; a onebitStateGlobal fits any number of ranks, with the same
 * mode and serverResidual. Everything else may differ, and the optimizer keeps its own: beta1, eps,
 * biasCorrection, varianceFloor, masks, learning rates, weight decay, and bounds of trust ratios.
 *
 * @param blob  `bytes` bytes, any alignment; only read. Any damaged bit and any missing or
 *              additional byte is detected.
 * @param bytes Length of the state.
 * @return onebitInvalidArgument  also: `blob` is not a state.
 * @return onebitCorrupt          the state is damaged or incomplete, or a residual is too large for
 *                                the residual type.
 * @return onebitMismatch         the state belongs to another optimizer, to something that is not
 *                                an optimizer, or to a later version of the library; the text names
 *                                every difference.
 * @return onebitInvalidUsage     also: a group is open.
 *
 * After an error the optimizer is unchanged. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerImport(onebitOptimizer_t optimizer, const void* blob,
                                                size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_OPTIM_H_ */
