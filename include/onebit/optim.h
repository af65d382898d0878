/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers: 1-bit Adam, 1-bit LAMB and 0/1 Adam over the compressed allreduce. Included by
 * onebit.h.
 *
 * An optimizer replaces gradient averaging and the parameter update together: the trainer hands
 * over its own rank's gradients, and every rank ends the step with the same parameters, byte for
 * byte. (In 0/1 Adam this holds after the steps that synchronise.)
 *
 *   onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
 *   config.beta2 = 0.95;                                    // averages over 20 steps
 *   config.biasCorrection = 1;                              // as in AdamW
 *   config.freezeStep = steps / 4;                          // or leave it: frozen automatically
 *   onebitOptimizer_t optimizer;
 *   onebitOptimizerCreate(&optimizer, comm, count, parameters, &config);
 *   for (...) {
 *     // gradients of this rank's part of the batch, neither averaged nor clipped
 *     onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
 *     onebitOptimizerStep(optimizer, gradients, onebitFloat32, lr, 1.0, 0.0, &result, NULL);
 *     if (result.skipped) ...                               // the same on every rank
 *   }
 *
 * Parameters and gradients need not be in one buffer. A segment may bring the address of its own
 * parameters, and onebitOptimizerAddGradient hands over the gradients one by one, in the order in
 * which they come. Nothing is copied into a flat buffer, and results are the same, bit for bit.
 *
 * 1-bit Adam (Tang et al. 2021, algorithm 1) has two stages. Up to step T_w it is Adam with dense
 * gradient averaging. Then the variance v is frozen, and the network carries the momentum m instead
 * of the gradient, at one bit per element with error feedback.
 *
 * 1-bit LAMB (Li et al. 2021, algorithm 1) does the same for LAMB, whose layers (here: segments)
 * move by a trust ratio c each. The dense stage measures c = |x| / |u| and keeps its moving
 * average. In the compressed stage c is that average times a factor that follows the variance of
 * gradients reconstructed from the momentum. All layers' momenta are first scaled to the same root
 * mean square, so that one call can carry them all. It bears lower learning rates than LAMB: begin
 * with half of LAMB's best one, at which it may diverge.
 *
 * 0/1 Adam (Lu et al. 2023, algorithm 1) has no long dense stage: v is refreshed at steps that
 * become rarer. Ranks step on their own, accumulate their steps, and average the sums at syncs, at
 * one bit per element; the steps between send nothing. schedule.h says which steps are which.
 *
 * If the parameters are in the memory of a CUDA device (memory.h), the whole optimizer is there.
 * onebitOptimizerStep says how such a step runs. Results and saved states are those of host memory,
 * bit for bit.
 *
 * docs/settings.md says which settings suit which model, and what they were tried on.
 * src/optim/DEEPSPEED.md maps the parameters of DeepSpeed's optimizers to members here, and says
 * what differs.
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

/** Stage of an optimizer: the data that a step sends. */
typedef enum {
  onebitStageDense = 0,      /* full precision gradients; the variance is live */
  onebitStageCompressed = 1, /* one-bit momentum; only dense segments have a live variance */
  onebitStageBoth = 2,       /* 0/1 Adam: full precision gradients for the variance, and as 1 */
  onebitStageLocal = 3       /* nothing: a local step of 0/1 Adam, or the first step of DeepSpeed's
                                variant, which is swallowed together with its gradients */
} onebitStage_t;

/** Flags of a segment. */
typedef enum {
  /* Exact average and live variance in all stages: plain Adam or LAMB. For embeddings and biases
     whose gradients are sparse. With 0/1 Adam v sees the gradients of syncs alone, so that
     varianceFloor holds here, too. */
  onebitSegmentDense = 1,
  /* 1-bit LAMB: no trust ratio, c = 1 in both stages. For biases and norms. */
  onebitSegmentNoTrustRatio = 2,
  /* Few gradients reach a row, as in an embedding. Where varianceFloor holds, sqrt(v) counts at
     least as its root mean square over the segment, instead of that share of it: the v of a rare
     row says nothing about its next gradient, which would throw it. Rows that are rarer than the
     average then move as by momentum without v */
  onebitSegmentRareRows = 4
} onebitSegmentFlags_t;

/** The norm that max_grad_norm of onebitOptimizerStep limits. */
typedef enum {
  /* sqrt(mean over ranks of |g|^2): one factor for all ranks, in every step that sends something */
  onebitClipMeanSquare = 0,
  /* the norm of the averaged gradient in dense steps; others limit the gradient of each rank */
  onebitClipAverage = 1
} onebitClipNorm_t;

/** A run of parameters with settings of its own, e.g. a layer. Start from ONEBIT_SEGMENT_INIT. */
typedef struct {
  size_t size;         /* sizeof(onebitSegment_t), the same in all segments of a table */
  size_t offset;       /* first element; the end of the segment before it (0 for the first) */
  size_t count;        /* elements; may be 0 */
  double lrScale;      /* multiplies the learning rate, >= 0; default 1 */
  double weightDecay;  /* >= 0; default: weightDecay of the optimizer */
  uint32_t flags;      /* sum of onebitSegmentFlags_t */
  const uint8_t* mask; /* NULL: all elements take part. Otherwise one bit per element of the
                          segment: bit i mod 8 of byte i / 8 is element i. A clear bit takes the
                          element out: its momentum is 0, and only weight decay moves it. Copied */
  float* parameters;   /* `count` elements; NULL: those at `offset` of the buffer given to
                          onebitOptimizerCreate, whose rules hold for both */
  void* parameterCopy; /* `count` elements; NULL: those at `offset` of the configuration's
                          parameterCopy, if it has one. parameterCopyType holds for both */
} onebitSegment_t;

#define ONEBIT_SEGMENT_INIT \
  { sizeof(onebitSegment_t), 0, 0, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, 0, NULL, NULL, NULL }

/** In place of a segment's index: all segments, one after the other. */
#define ONEBIT_ALL_SEGMENTS SIZE_MAX

/**
 * Parameters of an optimizer. Start from ONEBIT_OPTIMIZER_CONFIG_INIT and set what differs; members
 * left at ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL or ONEBIT_UNDEF_STEP take the default given here.
 * Leave the members that the algorithm or the variant does not use at their initial values.
 *
 * All members but parameterCopy must be equal on all ranks.
 */
typedef struct {
  size_t size;            /* sizeof(onebitOptimizerConfig_t) */
  uint32_t magic;         /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;       /* ONEBIT_VERSION_CODE */
  int32_t algorithm;      /* onebitAlgorithm_t; default onebitAlgorithmOneBitAdam */
  int32_t variant;        /* onebitVariant_t; default onebitVariantPaper */
  int32_t biasCorrection; /* 0 (default, as in the paper: use a learning-rate warm-up) or 1: divides
                             m and v by 1 - beta^t as AdamW does. A frozen v keeps the divisor of
                             T_w; m has its own in both stages. Paper's variant only, and not for
                             0/1 Adam, whose momentum is a mean over an interval */
  double beta1;           /* decay of m, [0, 1); default 0.9 */
  double beta2;           /* decay of v, [0, 1); default 0.999 */
  double eps;             /* added to the denominator, > 0; default 1e-8 */
  double weightDecay;     /* decoupled, as in AdamW, in both stages; >= 0; default 0 */
  double varianceFloor;   /* lower bound of sqrt(v) after the freeze (0/1 Adam: always), as a share
                             of the root mean square of sqrt(v) over the segment; >= 0; default
                             0.01, for 0/1 Adam 0.1. Without it elements whose gradients almost
                             vanished before the freeze are thrown far, because they share scales
                             with live ones afterwards. 0: no bound, as in the papers; the default
                             of DeepSpeed's variant */
  /* Which steps are dense, compressed or local: see onebitPolicyConfig_t. */
  int64_t freezeStep;    /* 1-bit Adam and 1-bit LAMB: T_w, the number of dense steps, >= 1; or
                            ONEBIT_FREEZE_AUTOMATIC (default); or, with biasCorrection,
                            ONEBIT_FREEZE_SETTLED; or ONEBIT_FREEZE_NEVER. DeepSpeed's variant
                            swallows the first of them, and has no rule that follows v */
  int64_t lrWarmupSteps; /* steps over which the caller raises the learning rate, >= 0; default 0 */
  /* How the momentum is compressed; NULL: all defaults. Copied. Its mask must be NULL, because
     masks belong to segments. Its memory and device are left undefined, or set to where the
     parameters are. */
  const onebitCompressorConfig_t* compressor;
  /* Table that covers all elements in order without gaps, or NULL: one segment. Copied. */
  const onebitSegment_t* segments;
  size_t segmentCount; /* entries of segments */
  /* NULL, or `count` elements of parameterCopyType that every step rewrites from the fp32
     parameters, rounded to nearest even. In the memory that the parameters are in. Owned by the
     caller; must outlive the optimizer. Create does not write it. */
  void* parameterCopy;
  int32_t parameterCopyType; /* onebitFloat16 or onebitBfloat16; required with parameterCopy, that
                                of segments included */

  /* 1-bit LAMB only: trust ratios c = |x| / |u|. */
  double minCoeff;  /* least c of a dense step, >= 0; default 0.01 */
  double maxCoeff;  /* greatest c of a dense step, >= minCoeff; default 10 */
  double coeffBeta; /* decay of the moving average of c over dense steps, [0, 1); default 0.9. The
                       average begins at 0 and is not corrected: make dense steps several times
                       1 / (1 - coeffBeta), or layers move too little after them */
  double factorMin; /* least factor on that average in compressed steps, > 0; default 0.5 */
  double factorMax; /* greatest, >= factorMin; default 4 */
  /* greatest relative change of the factor in a step, [0, 1); default 0.1 */
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
} onebitOptimizerConfig_t;

#define ONEBIT_OPTIMIZER_CONFIG_INIT                                                               \
  {                                                                                                \
    sizeof(onebitOptimizerConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT,   \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,                  \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP,                \
        ONEBIT_UNDEF_STEP, NULL, NULL, 0, NULL, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL,               \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,                \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP,                \
        ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT \
  }

/* ------------------------------------------------------------------------------------- results */

/** Outcome of a step. Start from ONEBIT_STEP_RESULT_INIT. */
typedef struct {
  size_t size;      /* sizeof(onebitStepResult_t) as the caller was compiled; input */
  int32_t skipped;  /* 1: some rank's gradient was not finite, or its square overflowed fp32 (which
                       is detected in the dense stage and when the norm is measured). Nothing was
                       changed, except that 0/1 Adam takes back local steps. The same on every
                       rank */
  int32_t stage;    /* onebitStage_t of this step */
  uint64_t step;    /* steps not skipped so far, this one included: t of the formulas */
  double grad_norm; /* the norm that max_grad_norm limits, before clipping; -1 if not measured. The
                       same on every rank, unless it is that of the rank's own gradient */
  uint64_t bytes_sent; /* by this rank for the averages of this step, headers included */
} onebitStepResult_t;

#define ONEBIT_STEP_RESULT_INIT \
  { sizeof(onebitStepResult_t), 0, 0, 0, -1.0, 0 }

/** Counters and facts of an optimizer. */
typedef struct {
  size_t size;               /* sizeof(onebitOptimizerStats_t) as the caller was compiled; input */
  uint64_t step;             /* steps that were not skipped */
  uint64_t dense_steps;      /* those of them with a full precision average */
  uint64_t compressed_steps; /* those with a compressed average; a step may be both */
  uint64_t local_steps;      /* those that sent nothing */
  uint64_t skipped;          /* steps that were skipped */
  uint64_t frozen_at;        /* T_w, or varFreezeStep: the step from which on v is kept; 0 before */
  uint64_t bytes_sent;      /* by this rank in steps that returned success, skipped ones included */
  uint64_t state_bytes;     /* memory held for m, v, masks, scratch and residuals */
  int32_t stage;            /* onebitStage_t of the next step */
  uint64_t lost_elements;   /* as in onebitCompressorStats_t, over all compressors */
  uint64_t local_overflows; /* local_steps whose gradient on this rank was not finite and counted as
                               zero. `skipped` does not show them, so a loss scaler of 0/1 Adam must
                               look here, on all ranks. Not in saved states */
} onebitOptimizerStats_t;

/** Trust ratio of a layer of 1-bit LAMB. Start from ONEBIT_TRUST_RATIO_INIT. */
typedef struct {
  size_t size;        /* sizeof(onebitTrustRatio_t) as the caller was compiled; input */
  double coefficient; /* c of the last step: the layer moved by c times its Adam step. 0 before the
                         first step; 1 without a trust ratio */
  double average;     /* moving average of c over the dense steps */
  double factor;      /* that of the last compressed step, where c = average * factor */
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
 * Local: sends nothing. It creates compressors, so all ranks create their optimizers in the same
 * order, or set the tensorId of `compressor`.
 *
 * Memory per element, where the parameters are: 8 bytes of m and v; the compressor's residuals
 * (onebitCompressorCreate) unless freezeStep is ONEBIT_FREEZE_NEVER; 1/8 byte of masks; 4 bytes of
 * scratch if there are dense segments or gradients that are not fp32. 1-bit LAMB adds 4 bytes for
 * the variance of reconstructed gradients. 0/1 Adam adds 8 for the sum of steps and the parameters
 * of the last sync, and until its variance is frozen (on a device: as long as it lives) 4, or 8
 * with 16-bit gradients. All compressed segments share one compressor. Gradients that are handed
 * over one by one add 4 bytes of scratch, and 4 for those that were NULL once.
 *
 * @param optimizer  Receives the handle.
 * @param comm       All its ranks take part in every step. Must outlive the last step, or live
 *                   until the optimizer was rebound.
 * @param count      Parameters; may be 0.
 * @param parameters fp32, `count` elements, updated in place by every step. Owned by the caller;
 *                   must outlive the optimizer. Must hold the initial values already, the same
 *                   bytes on every rank (see onebitBroadcast), because 0/1 Adam remembers where it
 *                   began. In host memory or in that of the CUDA device of `comm`; there the work
 *                   that writes the initial values must be done. May be NULL if every segment that
 *                   is not empty brings its own.
 * @param config     NULL: all defaults.
 * @return onebitInvalidArgument  also: a member of `config` is out of range (the text says what is
 *                                allowed); or a segment's parameters, a parameterCopy or the
 *                                compressor's memory is not where the first parameters are.
 * @return onebitInvalidUsage     also: `comm` works on another device than that of the parameters.
 *
 * Thread safety: one thread at a time per `comm`.
 */
ONEBIT_API onebitResult_t onebitOptimizerCreate(onebitOptimizer_t* optimizer, onebitComm_t comm,
                                                size_t count, float* parameters,
                                                const onebitOptimizerConfig_t* config);

/**
 * Frees an optimizer and its state, before or after its communicator is destroyed. Local.
 *
 * @param optimizer NULL does nothing.
 *
 * Thread safety: no other thread may use `optimizer` any more.
 */
ONEBIT_API onebitResult_t onebitOptimizerDestroy(onebitOptimizer_t optimizer);

/**
 * Hands over the gradient of one segment, to be used by the next step. Local: sends nothing, reads
 * nothing.
 *
 * The gradients of a step may come in any order, which may differ between ranks, e.g. as a backward
 * pass makes them. Every segment that is not empty needs one, and all ranks must choose the same
 * data types. onebitOptimizerStep with gradients = NULL then makes the step. It takes them all,
 * whatever it returns, unless its arguments were wrong, the optimizer is busy or a group is open.
 *
 * @param segment  Index in the segment table; 0 if there is no table. ONEBIT_ALL_SEGMENTS, with
 *                 `gradient` NULL: forgets all that was handed over, e.g. after a backward pass
 *                 that has failed.
 * @param gradient The segment's elements as this rank has them, local and unaveraged, where the
 *                 parameters are. Must live until the step, which uses it as scratch: undefined
 *                 afterwards, even after a skipped step. On a device it may be written until then
 *                 by earlier work on the step's stream. NULL: zeros, for parameters that took no
 *                 part.
 * @param datatype Type of this gradient: onebitFloat32, onebitFloat16 or onebitBfloat16. Segments
 *                 may differ. Required with NULL, too, because the average is made in this type.
 * @return onebitInvalidArgument  also: there is no such segment, or the gradient is not where the
 *                                parameters are.
 * @return onebitInvalidUsage     also: the segment has a gradient for the next step already.
 *
 * After an error nothing is handed over. Allocates nothing. Thread safety: one thread at a time per
 * optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerAddGradient(onebitOptimizer_t optimizer, size_t segment,
                                                     void* gradient, onebitDataType_t datatype);

/**
 * Averages gradients over all ranks and updates the parameters: one step of the configured
 * algorithm. Collective: every rank calls it at every step, with equal datatype, learning_rate,
 * grad_scale and max_grad_norm, and with gradients in one buffer on all ranks or handed over one by
 * one on all.
 *
 * With g = gradients * grad_scale * clip and t the number of this step:
 *
 * 1-bit Adam
 *   dense       m = b1 m + (1-b1) avg(g)          v = b2 v + (1-b2) avg(g)^2  d = sqrt(v)
 *   compressed  m = onebit_avg(b1 m + (1-b1) g)   v = v of step T_w           d = max(sqrt(v), f)
 *   both        x = x - lr u,                     u = m / (d + eps) + weight_decay x
 *
 * 1-bit LAMB, with the same m, v, d and u for each layer
 *   both        x = x - lr c u
 *   dense       c = clip(|x| / |u|, minCoeff, maxCoeff), 1 where x or u is 0; C is its average
 *   compressed  c = C r, where r is the maximum of (d + eps) / (sqrt(w) + eps) over the layer,
 *               reduced by the share of weight decay in u, then limited to factorMin and factorMax,
 *               then to a change of factorThreshold from the r before. w continues as v would, with
 *               gradients (m_t - b1 m_{t-1}) / (1-b1)
 *
 * 0/1 Adam, between two syncs on each rank by itself
 *   local       m = b1 m + (1-b1) g    s = s + lr m    L = L + lr
 *               x = x_sync - s / (d + eps) - weight_decay L x_sync,   d = max(sqrt(v), f)
 *   sync        a = onebit_avg(s)   m = a / L   x as above, from a; x_sync = x, s = 0, L = 0
 *   refresh     v = b2 v + (1-b2) avg(g)^2, before anything else of its step
 *
 * At every sync dense segments of 0/1 Adam are averaged exactly, s and g, and refresh their v.
 * schedule.h says which steps are which.
 *
 * clip is min(1, max_grad_norm / norm). The configuration's clipNorm says which norm.
 *
 * onebitClipMeanSquare: sqrt(mean over ranks of |gradients * grad_scale|^2), the same factor on
 * every rank in both stages. This norm is larger than that of the mean gradient, because it
 * includes the noise of each rank. It costs a dense allreduce of one number, which is not sent when
 * max_grad_norm is 0.
 *
 * onebitClipAverage: |avg(gradients) * grad_scale| in steps that average all gradients densely, as
 * clip_grad_norm_ of PyTorch does after DistributedDataParallel. Nothing more is sent. A compressed
 * step never learns the average, so there each rank clips its own gradient by its own norm. By the
 * triangle inequality the average then is within the limit, too, but single ranks have larger norms
 * (up to the root of the number of ranks), so clipping gets harder at the freeze. Two averages are
 * known in other steps and clipped by their own norms: that of the dense segments of a compressed
 * step, and that which refreshes v of 0/1 Adam. grad_norm of the result is the norm of the average
 * of all gradients if the step has one, otherwise that of the rank's own gradient. Where v is
 * refreshed, a rank whose gradient is finite but whose squares overflow fp32 counts for v, and adds
 * nothing to its own momentum.
 *
 * A local step always clips by the norm of the rank's own gradient.
 *
 * The floor f is varianceFloor times the root mean square of sqrt(v) over the segment, or the root
 * mean square itself with onebitSegmentRareRows. It bounds d in compressed steps, and in dense
 * segments only with 0/1 Adam, where a segment whose v is all 0 does not move at all. After the
 * freeze, and in 0/1 Adam always, elements whose v is 0 are masked: they never saw a gradient, and
 * one bit cannot say 0.
 *
 * Values that are not finite. A step happens either on every rank or on none. If a gradient of any
 * rank is NaN or infinite, or overflows on the way, the step is skipped: it returns onebitSuccess
 * with `skipped` = 1, and m, v, x, residuals and the step number stay as they were, bit for bit.
 * (A compressor that is not transactional resets its residuals.) In the compressed stage the
 * gradients of masked elements are ignored, unless the norm is measured. A step that sends nothing
 * cannot be agreed on: all ranks make it, in whatever state the communicator is. A rank whose
 * gradient is not finite then uses zeros. A sync whose sum is not finite on some rank is skipped:
 * all ranks return to x_sync with s = 0 and L = 0, and m becomes the mean of theirs, averaged in
 * full precision.
 *
 * Values that must be equal. Ranks that differ in a rate or a weight decay, or began with other
 * parameters, would drift apart. They compare learning_rate, grad_scale, max_grad_norm and the
 * configuration (but masks, and members that decide about steps) before the first step of each
 * stage and once in 64 later steps that send something, and a digest of the parameters before the
 * first of these; again after a state was loaded or the optimizer was rebound, but for parameters
 * in the middle of an interval of 0/1 Adam. This costs an allreduce of 17 numbers of each rank,
 * which bytes_sent leaves out. Ranks whose rates part are told so at most 64 such steps later; what
 * they did in between is different on each, so they go on from a checkpoint.
 *
 * On a device all work is enqueued on `stream`; kernels that make the gradients need not be done.
 * The call waits on the host, by polling, until the ranks have agreed, once for each average that
 * they look at: once in every step, local ones included; once more for the dense segments of a
 * compressed step, for the trust ratios of a LAMB, and until a freeze that follows v; twice for
 * max_grad_norm; two or three times more where a variance is frozen or refreshed. The last part,
 * the update of x, m, v and the copy, is only enqueued: later work on `stream` finds it done, other
 * streams must wait for an event there. Steps may be on different streams but cannot be captured
 * into a graph. The other functions that work on elements, Create and Destroy included, wait for
 * the last step and return when they are done; before them the caller's own work on the parameters
 * must be done.
 *
 * @param gradients     `count` elements of this rank, local and unaveraged, in the memory that the
 *                      parameters are in. Used as scratch: undefined afterwards, even after a
 *                      skipped step. NULL: those that onebitOptimizerAddGradient has handed over.
 * @param datatype      Type of gradients: onebitFloat32, onebitFloat16 or onebitBfloat16. The dense
 *                      stage averages in this type. Ignored if gradients is NULL.
 * @param learning_rate >= 0, finite.
 * @param grad_scale    Multiplies gradients first, e.g. 1 / loss scale; > 0, finite.
 * @param max_grad_norm Clips to this norm; 0: no clipping; INFINITY: measures the norm only.
 * @param result        NULL, or receives what was done.
 * @param stream        Host memory: NULL, and the call blocks. (To run a step on a stream, call it
 *                      from a function of onebitStreamLaunchHostFunc.) Device memory: a
 *                      cudaStream_t of that device, NULL being its default stream.
 * @return onebitInvalidArgument  also: the stream is of the wrong kind, or the gradients are not
 *                                where the parameters are.
 * @return onebitInvalidUsage     also: a group is open, `stream` is being captured, a rebind was
 *                                left half done, or a device failed in the middle of an update.
 *                                gradients is NULL and a segment's gradient is missing, or it is
 *                                not, and some were handed over.
 * @return onebitMismatch         also: a value that the ranks compare differs; the text names it,
 *                                two ranks and what they have. Nothing changed.
 * @return onebitUnhandledCudaError  the device is broken. If it was in the middle of an update, x,
 *                                m and v are part old and part new: further steps are refused.
 * @return onebitOutOfMemory      no scratch at the first use of this gradient type, or no masks at
 *                                the first compressed step; nothing changed.
 * @return other errors of every collective: m, v, x and the step number of this rank are unchanged;
 *         a rank that had already finished may be one step ahead (onebitOptimizerRebind).
 *
 * Thread safety: one thread at a time per optimizer and per its communicator. It allocates nothing,
 * except in the first two steps of each stage, at the first gradient of another type or the first
 * NULL one, and in steps of 0/1 Adam that refresh a variance or whose sync is skipped.
 */
ONEBIT_API onebitResult_t onebitOptimizerStep(onebitOptimizer_t optimizer, void* gradients,
                                              onebitDataType_t datatype, double learning_rate,
                                              double grad_scale, double max_grad_norm,
                                              onebitStepResult_t* result, onebitStream_t stream);

/**
 * Moves an optimizer with all of its state to a communicator made from ranks of its own: how
 * training continues after a rank was lost (onebitCommShrink). Collective over `newcomm`: each rank
 * calls it for its part of the same optimizer, whether or not the old communicator was destroyed.
 *
 * A step that failed on some ranks may have happened on others, which are then one ahead. All ranks
 * adopt parameters, parameter copy, m, v and the step number of a rank that is ahead. The trainer
 * must make all continue with the same step: the stats have its number. Residuals move as in
 * onebitCompressorRebind; those of ranks that are gone are lost.
 *
 * @param newcomm Healthy. Its own compressors must not have the optimizer's tensor ids.
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
 * Makes the ranks agree on parameters and momentum after local steps: what a sync step of 0/1 Adam
 * does, without a step. For an evaluation or checkpoint in the middle of an interval; the next
 * interval begins here. Collective. Sends nothing if the ranks agree already, as they do after
 * every step of the other algorithms.
 *
 * If the sum of some rank is not finite, all return to the parameters of the last sync, and the
 * momentum becomes the mean over the ranks.
 *
 * @return onebitInvalidUsage  also: a group is open, or a rebind was left half done.
 * @return errors of every collective. Then x, m and v of this rank are unchanged, but not those of
 *         a rank that had already finished: onebitOptimizerRebind makes them agree.
 *
 * Thread safety: one thread at a time per optimizer and per its communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerSync(onebitOptimizer_t optimizer);

/**
 * Reads a moment of one segment, under the name that the formulas of onebitOptimizerStep use.
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
 *                                those there are.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetMoment(onebitOptimizer_t optimizer, size_t segment,
                                                   const char* name, float* values);

/**
 * Replaces the settings of one segment that may change between steps: for schedules that differ
 * between layers, and for layers that begin to train later. Local, and not compared between ranks:
 * call it on all of them between the same two steps, with the same values.
 *
 * @param segment      Index in the segment table; 0 if there is no table.
 * @param lr_scale     As lrScale of onebitSegment_t; ONEBIT_UNDEF_REAL: stays as it is.
 * @param weight_decay As its weightDecay; ONEBIT_UNDEF_REAL: stays as it is.
 * @return onebitInvalidArgument  also: there is no such segment, or a value is out of range.
 * @return onebitInvalidUsage     also: an interval of 0/1 Adam has begun, whose steps have these
 *                                factors in common: call onebitOptimizerSync first.
 *
 * After an error nothing has changed. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerSetRates(onebitOptimizer_t optimizer, size_t segment,
                                                  double lr_scale, double weight_decay);

/**
 * Replaces a moment of one segment, e.g. from a checkpoint of another Adam. Local: call it on all
 * ranks between the same two steps, with the same values. Step numbers, schedule and residuals stay
 * as they are; onebitOptimizerImport replaces everything.
 *
 * After a new v the next step computes masks and floors anew where v is frozen.
 *
 * @param values The segment's elements; finite, and for "v" and "w" not negative. In host memory or
 *               where the parameters are.
 * @return onebitInvalidArgument  also: there is no such segment or moment, or a value is not
 *                                possible; nothing changed.
 * @return onebitInvalidUsage     also: a rebind was left half done.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerSetMoment(onebitOptimizer_t optimizer, size_t segment,
                                                   const char* name, const float* values);

/**
 * Returns to dense steps, after which the variance is frozen anew: for training in two phases, e.g.
 * with longer sequences or other data in the second. Parameters, momentum and step number continue;
 * residuals are dropped. Local: call it on all ranks between the same two steps. If ranks differ,
 * the first step that is dense on some and compressed on others reports onebitMismatch.
 *
 * 1-bit Adam and 1-bit LAMB: v is live again, starting from its frozen value, and so is its bias
 * correction. `steps` further steps are dense. Moving averages of trust ratios restart at 0,
 * factors and momentum scales at 1. It may be called before a freeze, too, and then replaces the
 * rule for it.
 *
 * 0/1 Adam: the refreshes of v, from its present value, and the intervals of local steps restart as
 * at step 0 of the configuration's policy; the step that DeepSpeed's variant swallows is not
 * swallowed again. Not in the middle of an interval: call onebitOptimizerSync first.
 *
 * @param steps How many, >= 1; ONEBIT_FREEZE_NEVER; or ONEBIT_FREEZE_AUTOMATIC: the rule of
 *              freezeStep, with lrWarmupSteps counted from here. For 0/1 Adam always
 *              ONEBIT_FREEZE_AUTOMATIC.
 * @return onebitInvalidArgument  also: ONEBIT_FREEZE_SETTLED, because v goes on from where it had
 *                                settled; ONEBIT_FREEZE_AUTOMATIC for 1-bit Adam and 1-bit LAMB
 *                                with onebitVariantDeepSpeed, or with a beta2 above 1 - 1e-6; or 1
 *                                where DeepSpeed's variant has yet to swallow its first step.
 * @return onebitInvalidUsage     also: a group is open, freezeStep is ONEBIT_FREEZE_NEVER, an
 *                                interval of 0/1 Adam has begun, or a rebind was left half done.
 *
 * After an error the optimizer is unchanged. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerRewarm(onebitOptimizer_t optimizer, int64_t steps);

/* ---------------------------------------------------------------------------------- checkpoints */

/**
 * Writes an optimizer into `buffer`, for a checkpoint: the fp32 parameters, which are its master
 * weights, m, v, what else its algorithm keeps, counters, the progress of its schedule, and its
 * compressor's residuals. Not included: the learning rate and other arguments of
 * onebitOptimizerStep, the low-precision copy of the parameters, which follows from them, and
 * bytes_sent of the stats.
 *
 * onebitStateRank is local, forces nothing, and works after the communicator was destroyed, too. It
 * belongs to this rank alone. With the states of the same step on all ranks training continues bit
 * for bit as if it had not been interrupted, even in the middle of an interval of 0/1 Adam. `step`
 * and `skipped` of the stats tell whether it is the same step.
 *
 * onebitStateGlobal is collective over the optimizer's communicator: each rank calls it between the
 * same two steps and gets the same bytes, which are compared, so that one copy is enough for a
 * checkpoint. It first makes the ranks agree, as onebitOptimizerSync does. In the middle of an
 * interval that is an additional sync, after which training differs from a run without it. The
 * residuals in it are the onebitStateGlobal of onebitCompressorExport.
 *
 * src/compressor/STATE.md describes the bytes.
 *
 * @param kind   Scope of the state.
 * @param buffer NULL: only *bytes is written, without communication. Otherwise receives the state;
 *               of any alignment. Undefined after an error.
 * @param bytes  In: the size of `buffer`, if it is not NULL. Out: the length of the state: 12 bytes
 *               per element for 1-bit Adam, 16 for 1-bit LAMB, 20 for 0/1 Adam, plus what
 *               onebitCompressorExport says for this kind.
 * @return onebitInvalidArgument  also: *bytes is too small, and receives what is needed. Nothing
 *                                was sent.
 * @return onebitInvalidUsage     also: a group is open, or a rebind was left half done.
 * @return onebitDetached         onebitStateGlobal: the communicator was destroyed.
 * @return onebitMismatch         onebitStateGlobal: the ranks have made different steps, or differ
 *                                in what should be the same on all of them.
 *
 * Further errors: those of onebitCompressorExport and, for onebitStateGlobal, of
 * onebitOptimizerSync. Thread safety: one thread at a time per optimizer and, for
 * onebitStateGlobal, per communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerExport(onebitOptimizer_t optimizer, onebitStateKind_t kind,
                                                void* buffer, size_t* bytes);

/**
 * Replaces an optimizer by a state of onebitOptimizerExport, the parameters and their low-precision
 * copy included. Local: call it on all ranks between the same two steps, each with its own
 * onebitStateRank or all with the same onebitStateGlobal.
 *
 * The state fits an optimizer with the same algorithm, variant, count, segments (how many, their
 * counts, and which are dense), beta2, and members that decide about steps: freezeStep and
 * lrWarmupSteps, or those of 0/1 Adam. A onebitStateRank fits the same rank of as many ranks, with
 * a compressor of the same settings; a onebitStateGlobal any number of ranks, with the same mode
 * and serverResidual. Everything else may differ and is that of this optimizer: beta1, eps,
 * biasCorrection, varianceFloor, masks, learning rates, weight decay, and bounds of trust ratios.
 *
 * @param blob  `bytes` bytes, of any alignment; read only. Any damaged bit and any missing or
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
