/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers over the compressed allreduce of onebit.h: 1-bit Adam, 1-bit LAMB and 0/1 Adam.
 *
 * An optimizer replaces gradient averaging and the parameter update together: the trainer hands
 * over its own rank's gradients, and every rank ends the step with the same parameters, byte for
 * byte. (In 0/1 Adam that holds for the steps that synchronise.)
 *
 *   onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
 *   config.freezeStep = steps / 5;                          // or leave it: frozen automatically
 *   onebitOptimizer_t optimizer;
 *   onebitOptimizerCreate(&optimizer, comm, count, parameters, &config);
 *   for (...) {
 *     // gradients of this rank's part of the batch, neither averaged nor clipped
 *     onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
 *     onebitOptimizerStep(optimizer, gradients, onebitFloat32, lr, 1.0, 0.0, &result, NULL);
 *     if (result.skipped) ...                               // the same on every rank
 *   }
 *
 * 1-bit Adam (Tang et al. 2021, algorithm 1) has two stages. Up to step T_w it is Adam with dense
 * gradient averaging. Then the variance v is frozen, and what crosses the network is the momentum
 * m, at one bit per element with error feedback.
 *
 * 1-bit LAMB (Li et al. 2021, algorithm 1) does the same for LAMB, whose layers, the segments, move
 * by a trust ratio c each. In the dense stage c = |x| / |u| is measured, and its moving average
 * kept. In the compressed stage c is that average times a factor, which follows the variance of
 * gradients that are reconstructed from the momentum. All layers' momenta are scaled to the same
 * root mean square first, so that one call can carry them all.
 *
 * 0/1 Adam (Lu et al. 2023, algorithm 1) has no long dense stage: v is refreshed at steps that
 * become rarer. Ranks step on their own, add up their steps, and average the sums at syncs, at one
 * bit per element; the steps between send nothing. schedule.h says which steps are which.
 *
 * Parameters may be in the memory of a CUDA device (memory.h). Then the whole optimizer is there;
 * onebitOptimizerStep says how a step goes. Results and saved states are those of host memory, to
 * the bit.
 *
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

/** What an optimizer step sends. */
typedef enum {
  onebitStageDense = 0, /* full precision gradients; the variance is live */
  onebitStageCompressed =
      1,               /* one-bit momentum; the variance of all but dense segments is frozen */
  onebitStageBoth = 2, /* 0/1 Adam: full precision gradients for the variance, and as 1 */
  onebitStageLocal = 3 /* nothing. 0/1 Adam: the step is this rank's own. DeepSpeed's variant: also
                          the first step, which is swallowed, gradients and all */
} onebitStage_t;

/** Flags of a segment. */
typedef enum {
  /* Exact average and a live variance for ever, in both stages: plain Adam or LAMB. For
     embeddings and biases whose gradients are sparse. */
  onebitSegmentDense = 1,
  /* No trust ratio: c = 1 in both stages. For biases and norms. Only 1-bit LAMB has any. */
  onebitSegmentNoTrustRatio = 2
} onebitSegmentFlags_t;

/** A run of parameters with settings of its own, e.g. a layer. Start from ONEBIT_SEGMENT_INIT. */
typedef struct {
  size_t size;         /* sizeof(onebitSegment_t) */
  size_t offset;       /* first element; the end of the segment before it (0 for the first) */
  size_t count;        /* elements; may be 0 */
  double lrScale;      /* multiplies the learning rate, >= 0; default 1 */
  double weightDecay;  /* >= 0; default: weightDecay of the optimizer */
  uint32_t flags;      /* sum of onebitSegmentFlags_t */
  const uint8_t* mask; /* NULL: all elements take part. Otherwise one bit per element of the
                          segment, element i being bit i mod 8 of byte i / 8; a clear bit takes the
                          element out: its momentum is 0, it moves by weight decay only. Copied */
} onebitSegment_t;

#define ONEBIT_SEGMENT_INIT \
  { sizeof(onebitSegment_t), 0, 0, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, 0, NULL }

/**
 * Parameters of an optimizer. Start from ONEBIT_OPTIMIZER_CONFIG_INIT and set what differs; members
 * left at ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL or ONEBIT_UNDEF_STEP take the default given here. A
 * member that the algorithm or the variant has no use for must be left. All members but
 * parameterCopy must be equal on all ranks. Ranks compare what shapes their calls, not rates,
 * decays or parameters: where those differ, replicas come apart, which onebitOptimizerExport with
 * onebitStateGlobal finds.
 */
typedef struct {
  size_t size;            /* sizeof(onebitOptimizerConfig_t) */
  uint32_t magic;         /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;       /* ONEBIT_VERSION_CODE */
  int32_t algorithm;      /* onebitAlgorithm_t; default onebitAlgorithmOneBitAdam */
  int32_t variant;        /* onebitVariant_t; default onebitVariantPaper */
  int32_t biasCorrection; /* 0 (default, as in the paper: use a learning-rate warm-up) or 1: m and v
                             are divided by 1 - beta^t as in AdamW. Frozen v keeps the divisor of
                             T_w; m keeps its own in both stages. Paper's variant, and not 0/1 Adam,
                             whose momentum is a mean over an interval */
  double beta1;           /* decay of m, [0, 1); default 0.9 */
  double beta2;           /* decay of v, [0, 1); default 0.999 */
  double eps;             /* added to the denominator, > 0; default 1e-8 */
  double weightDecay;     /* decoupled, as in AdamW, in both stages; >= 0; default 0 */
  double varianceFloor;   /* after the freeze (0/1 Adam: always) sqrt(v) counts as at least this
                             share of the root mean square of sqrt(v) over its segment, >= 0;
                             default 0.01; 0: the papers, and the default of DeepSpeed's variant.
                             Elements whose gradients almost vanished before the freeze share scales
                             with live ones afterwards and would be thrown far */
  /* Which steps are dense, compressed or local: as onebitPolicyConfig_t has them. */
  int64_t freezeStep;    /* 1-bit Adam and 1-bit LAMB: T_w, the number of dense steps, >= 1; or
                            ONEBIT_FREEZE_AUTOMATIC (default); or ONEBIT_FREEZE_NEVER. DeepSpeed's
                            variant swallows the first of them, and has no automatic freeze */
  int64_t lrWarmupSteps; /* steps over which the caller raises the learning rate, >= 0; default 0 */
  /* How the momentum is compressed; NULL: all defaults. Copied. Its mask must be NULL: masks belong
     to segments. Its memory and device follow the parameters: left, or set to where these are. */
  const onebitCompressorConfig_t* compressor;
  /* Table that covers all elements in order without gaps, or NULL: one segment. Copied. */
  const onebitSegment_t* segments;
  size_t segmentCount; /* entries of segments */
  /* NULL, or `count` elements of parameterCopyType that every step rewrites from the fp32
     parameters, rounded to nearest even. In the memory that these are in. Owned by the caller, must
     outlive the optimizer; not written by Create. */
  void* parameterCopy;
  int32_t parameterCopyType; /* onebitFloat16 or onebitBfloat16; needed when parameterCopy is set */

  /* 1-bit LAMB only: of trust ratios c = |x| / |u|. */
  double minCoeff;  /* least c of a dense step, >= 0; default 0.01 */
  double maxCoeff;  /* greatest c of a dense step, >= minCoeff; default 10 */
  double coeffBeta; /* decay of the moving average of c over dense steps, [0, 1); default 0.9. It
                       begins at 0 and is not corrected: dense steps should be several times
                       1 / (1 - coeffBeta), or layers move too little behind them */
  double factorMin; /* least factor on that average in compressed steps, > 0; default 0.5 */
  double factorMax; /* greatest, >= factorMin; default 4 */
  double factorThreshold; /* how much of itself the factor may change by in a step, [0, 1); default
                             0.1 */

  /* 0/1 Adam only: as onebitPolicyConfig_t has them. */
  int64_t varFreezeStep;          /* default: lrWarmupSteps, which must then be positive */
  int64_t varUpdateScaler;        /* default 16 */
  int64_t localStepScaler;        /* default 32678 */
  int64_t localStepClipper;       /* default 16 */
  int64_t localStepStart;         /* default: varFreezeStep */
  int32_t rateTied;               /* 0 (default) or 1 */
  int32_t denseStepFeedsMomentum; /* 0 (default) or 1 */
} onebitOptimizerConfig_t;

#define ONEBIT_OPTIMIZER_CONFIG_INIT                                                             \
  {                                                                                              \
    sizeof(onebitOptimizerConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,                \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP,              \
        ONEBIT_UNDEF_STEP, NULL, NULL, 0, NULL, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL,             \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_REAL,              \
        ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP,              \
        ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT                 \
  }

/* ------------------------------------------------------------------------------------- results */

/** What a step did. Start from ONEBIT_STEP_RESULT_INIT. */
typedef struct {
  size_t size;     /* sizeof(onebitStepResult_t) as the caller was compiled; in */
  int32_t skipped; /* 1: a gradient of some rank was not finite, or its square overflows fp32 (which
                      is seen in the dense stage or when the norm is measured); nothing was
                      changed, but for local steps that 0/1 Adam takes back. The same on every
                      rank */
  int32_t stage;   /* onebitStage_t of this step */
  uint64_t step;   /* steps that were not skipped so far, this one included: t of the formulas */
  double grad_norm;    /* the norm of max_grad_norm, before clipping, common unless the stage is
                          onebitStageLocal; -1 if not measured */
  uint64_t bytes_sent; /* by this rank in this step, headers included */
} onebitStepResult_t;

#define ONEBIT_STEP_RESULT_INIT \
  { sizeof(onebitStepResult_t), 0, 0, 0, -1.0, 0 }

/** What an optimizer has done so far. */
typedef struct {
  size_t size;               /* sizeof(onebitOptimizerStats_t) as the caller was compiled; in */
  uint64_t step;             /* steps that were not skipped */
  uint64_t dense_steps;      /* of these, with a full precision average */
  uint64_t compressed_steps; /* of these, with a compressed average; may be the same */
  uint64_t local_steps;      /* of these, that sent nothing */
  uint64_t skipped;          /* steps that were skipped */
  uint64_t frozen_at;        /* T_w, or varFreezeStep: the step from which on v is kept; 0 before */
  uint64_t bytes_sent;      /* by this rank in steps that returned success, skipped ones included */
  uint64_t state_bytes;     /* memory held for m, v, masks, scratch and residuals */
  int32_t stage;            /* onebitStage_t of the next step */
  uint64_t lost_elements;   /* as onebitCompressorStats_t has it, of all compressors */
  uint64_t local_overflows; /* of local_steps, those that found a gradient of this rank not finite
                               and took zeros. `skipped` does not tell, so a loss scaler of 0/1 Adam
                               looks here, on all ranks. Not in saved states */
} onebitOptimizerStats_t;

/** What 1-bit LAMB knows of a layer. Start from ONEBIT_TRUST_RATIO_INIT. */
typedef struct {
  size_t size;        /* sizeof(onebitTrustRatio_t) as the caller was compiled; in */
  double coefficient; /* c of the last step: the layer moved by c times its Adam step. 0 before the
                         first; 1 without a trust ratio */
  double average;     /* moving average of c over the dense steps */
  double factor;      /* of the last compressed step: there c = average * factor */
  double momentumScale; /* what the layer's momentum is multiplied with before it is compressed, so
                           that all layers have the same root mean square at the freeze; 1 for a
                           layer whose momentum is less than a millionth of the others' */
} onebitTrustRatio_t;

#define ONEBIT_TRUST_RATIO_INIT \
  { sizeof(onebitTrustRatio_t), 0, 0, 1, 1 }

/* ----------------------------------------------------------------------------------- functions */

/**
 * Makes an optimizer for `count` parameters, with m = v = 0 at step 0.
 *
 * Memory per element: 8 bytes of m and v, the compressor's residuals (onebitCompressorCreate)
 * unless freezeStep is ONEBIT_FREEZE_NEVER, 1/8 byte of masks, and 4 bytes of scratch if there are
 * dense segments or gradients that are not fp32. 1-bit LAMB has 4 bytes more for the variance of
 * reconstructed gradients, 0/1 Adam 8 for the sum of steps and the parameters of the last sync, and
 * 4 (with 16-bit gradients 8) until its variance is frozen, on a device as long as it lives. All
 * compressed segments share one compressor. All of it is where the parameters are.
 *
 * Local: sends nothing. It creates compressors, so the rule of onebitCompressorCreate holds: all
 * ranks create in the same order, or set its tensorId.
 *
 * @param optimizer  receives the handle; not NULL. Written only on success.
 * @param comm       its ranks take part in every step; must not be destroyed before the last, or
 *                   before the optimizer was rebound.
 * @param count      parameters; may be 0.
 * @param parameters fp32, `count` elements, updated in place by every step. Owned by the caller,
 *                   must outlive the optimizer, and must hold their initial values, the same bytes
 *                   on every rank, already (see onebitBroadcast): 0/1 Adam remembers where it
 *                   began. In host memory, or in that of the CUDA device of `comm`; there what
 *                   writes the initial values must be done. May be NULL if count is 0.
 * @param config     NULL: all defaults.
 * @return onebitInvalidArgument  NULL handle, comm or parameters, or a config member out of range;
 *                                the text names the member and what it may be; or parameterCopy
 *                                or the compressor's memory is not where the parameters are.
 * @return onebitInvalidUsage     another thread is inside a call on `comm`, or `comm` works on
 *                                another device than that of the parameters.
 * @return onebitOutOfMemory      not enough memory for the state.
 *
 * Thread safety: one thread at a time per `comm`.
 */
ONEBIT_API onebitResult_t onebitOptimizerCreate(onebitOptimizer_t* optimizer, onebitComm_t comm,
                                                size_t count, float* parameters,
                                                const onebitOptimizerConfig_t* config);

/**
 * Frees an optimizer and its state. Local. Works before and after its communicator was destroyed.
 *
 * @param optimizer NULL is allowed and does nothing.
 * @return onebitInvalidUsage  a call is using it.
 */
ONEBIT_API onebitResult_t onebitOptimizerDestroy(onebitOptimizer_t optimizer);

/**
 * Averages gradients over all ranks and updates the parameters: one step of the configured
 * algorithm. With g = gradients * grad_scale * clip and t the number of this step:
 *
 * 1-bit Adam
 *   dense       m = b1 m + (1-b1) avg(g)          v = b2 v + (1-b2) avg(g)^2  d = sqrt(v)
 *   compressed  m = onebit_avg(b1 m + (1-b1) g)   v = v of step T_w           d = max(sqrt(v), f)
 *   both        x = x - lr u,                     u = m / (d + eps) + weight_decay x
 *
 * 1-bit LAMB, with the same m, v, d and u for each layer
 *   both        x = x - lr c u
 *   dense       c = clip(|x| / |u|, minCoeff, maxCoeff), 1 where x or u is 0; C is its average
 *   compressed  c = C r, and r = max of (d + eps) / (sqrt(w) + eps) over the layer, made smaller by
 *               the share of weight decay in u, then kept within factorMin and factorMax, then
 *               within factorThreshold of the r before. w goes on as v would, with gradients
 *               (m_t - b1 m_{t-1}) / (1-b1)
 *
 * 0/1 Adam, between two syncs on each rank by itself
 *   local       m = b1 m + (1-b1) g    s = s + lr m    L = L + lr
 *               x = x_sync - s / (d + eps) - weight_decay L x_sync,   d = max(sqrt(v), f)
 *   sync        a = onebit_avg(s)   m = a / L   x as above, from a; x_sync = x, s = 0, L = 0
 *   refresh     v = b2 v + (1-b2) avg(g)^2, before anything else of its step
 *
 * Its dense segments are averaged exactly at every sync, s and g, and refresh their v then. Which
 * steps are which is told by schedule.h.
 *
 * clip is min(1, max_grad_norm / norm), norm = sqrt(mean over ranks of |gradients * grad_scale|^2):
 * the same factor on every rank in both stages. This norm is larger than that of the mean gradient,
 * as it holds the noise of each rank. It costs a dense allreduce of one number, which is not sent
 * when max_grad_norm is 0. The floor f is varianceFloor times the root mean square of sqrt(v) over
 * the segment.
 *
 * After the freeze, and in 0/1 Adam always, elements whose v is 0 are masked: they never saw a
 * gradient, and one bit cannot say 0.
 *
 * A step either happens on every rank or on none. If a gradient of any rank is NaN or infinite, or
 * overflows on the way, the step is skipped: it returns onebitSuccess with `skipped` = 1, and m, v,
 * x, residuals and the step number stay as they were, bit for bit. (A compressor that is not
 * transactional resets its residuals then.) In the compressed stage what a masked element holds is
 * ignored, unless the norm is measured.
 *
 * A step that sends nothing cannot be agreed on. All ranks make it, in whatever state the
 * communicator is; a rank whose gradient is not finite takes zeros instead, and clipping goes by
 * the norm of its own gradient. A sync that meets a sum which is not finite is skipped: all ranks
 * go back to x_sync, with s = 0 and L = 0, and m becomes the mean of theirs, for which it is
 * averaged in full precision.
 *
 * On a device all work goes on `stream`, behind what is there: kernels that make the gradients need
 * not be done. The call waits on the host, by asking, until the ranks have agreed: once for each
 * average that they form and look at. That is once in a dense and in a compressed step and in a
 * local one; once more with dense segments in a compressed step, for a LAMB's trust ratios, and
 * until an automatic freeze; twice more for max_grad_norm; and two or three times more where a
 * variance is frozen or refreshed. What comes last, the update of x, m, v and the copy, is enqueued
 * only: work behind it on `stream` finds it done, other streams wait for an event there. Steps may
 * be on different streams. A step cannot be captured into a graph. Other functions that work on
 * elements, Create and Destroy among them, wait for the last step and until they are done; the
 * caller's own work on parameters must be done before them.
 *
 * Every rank calls it every step, with equal datatype, learning_rate, grad_scale and max_grad_norm.
 *
 * @param gradients     `count` elements of this rank, local and unaveraged. Used as scratch:
 *                      undefined afterwards, also after a skipped step. In the memory that the
 *                      parameters are in. May be NULL if count is 0.
 * @param datatype      of gradients: onebitFloat32, onebitFloat16 or onebitBfloat16. The dense
 *                      stage averages in this type.
 * @param learning_rate >= 0, finite.
 * @param grad_scale    multiplies gradients first, e.g. 1 / loss scale; > 0, finite.
 * @param max_grad_norm clips to this norm; 0: no clipping; INFINITY: measures the norm only.
 * @param result        NULL, or receives what was done. Written only on success.
 * @param stream        Host memory: NULL; the call blocks. To have a step on a stream, behind calls
 *                      that are there, make it from a function of onebitStreamLaunchHostFunc.
 *                      Memory of a device: a cudaStream_t of it, NULL being its default stream.
 * @return onebitInvalidArgument  NULL optimizer or gradients, unknown type, a number out of range,
 *                                a result with a wrong size, a stream that does not fit, or
 *                                gradients that are elsewhere than the parameters. Nothing was sent
 *                                and nothing changed.
 * @return onebitInvalidUsage     another call is using the optimizer, a group is open, its
 *                                communicator failed, `stream` is being captured, a rebind was left
 *                                half done, or a device failed in the middle of an update.
 * @return onebitDetached         its communicator was destroyed.
 * @return onebitUnhandledCudaError  the device is broken. If it was in the middle of an update, x,
 *                                m and v are part old and part new: further steps are refused.
 * @return onebitOutOfMemory      no memory for scratch at the first use of this gradient type, or
 *                                for masks at the first compressed step; nothing changed.
 * @return other errors of onebitAllReduce: m, v, x and the step number of this rank are unchanged;
 *         a rank that had already finished may be one step ahead.
 *
 * Thread safety: one thread at a time per optimizer and per its communicator. Apart from the first
 * two steps of each stage, and those of 0/1 Adam that refresh a variance, it allocates nothing.
 */
ONEBIT_API onebitResult_t onebitOptimizerStep(onebitOptimizer_t optimizer, void* gradients,
                                              onebitDataType_t datatype, double learning_rate,
                                              double grad_scale, double max_grad_norm,
                                              onebitStepResult_t* result, onebitStream_t stream);

/**
 * Takes an optimizer over to another communicator of ranks of its own, with all of its state: how
 * training goes on after a rank was lost (onebitCommShrink). Collective over `newcomm`: each rank
 * calls it for its part of the same optimizer, whether or not the old communicator was destroyed.
 *
 * A step that failed on some ranks may have happened on others, which are one ahead. Then all get
 * parameters, parameter copy, m, v and the step number of a rank that is ahead, and it is for the
 * trainer to see that all go on with the same step: the stats have its number. Residuals go over
 * as by onebitCompressorRebind; what belonged to ranks that are gone is lost.
 *
 * @param newcomm in order. Compressors of its own must not have the optimizer's tensor ids.
 * @param source  receives the rank of `newcomm` whose state all ranks have now; not NULL. Written
 *                only on success.
 * @return onebitInvalidArgument  a NULL argument.
 * @return onebitInvalidUsage     another call is using the optimizer, or a group is open.
 * @return onebitMismatch         the ranks' optimizers are not of the same training, or were
 *                                re-warmed on some only.
 * @return onebitRemoteError      another rank failed; or the only rank that was ahead was lost
 *                                while the others took its state: then only a checkpoint helps.
 * @return other errors of onebitCompressorRebind and onebitBroadcast. Call it again, on the
 *         successor of `newcomm` if that has failed; until then steps are refused where state was
 *         half taken over.
 *
 * Thread safety: one thread at a time per optimizer and per `newcomm`.
 */
ONEBIT_API onebitResult_t onebitOptimizerRebind(onebitOptimizer_t optimizer, onebitComm_t newcomm,
                                                int* source);

/**
 * Counters and facts.
 *
 * @param stats `size` must be set; members beyond the library's own size are left alone.
 * @return onebitInvalidArgument  an argument is NULL, or `size` is too small to be one of ours.
 * @return onebitInvalidUsage     another call is using the optimizer.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetStats(onebitOptimizer_t optimizer,
                                                  onebitOptimizerStats_t* stats);

/**
 * Trust ratios of a layer. Local; they are the same on every rank.
 *
 * @param segment index in the segment table; 0 where there is none.
 * @param ratio   `size` must be set; members beyond the library's own size are left alone.
 * @return onebitInvalidArgument  an argument is NULL, there is no such segment, or `size` is too
 *                                small to be one of ours.
 * @return onebitInvalidUsage     another call is using the optimizer, or its algorithm is not
 *                                onebitAlgorithmOneBitLamb.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetTrustRatio(onebitOptimizer_t optimizer, size_t segment,
                                                       onebitTrustRatio_t* ratio);

/**
 * Makes ranks agree on parameters and momentum where local steps have taken them apart: what a sync
 * step of 0/1 Adam does, without a step. For an evaluation or a checkpoint in the middle of an
 * interval; the next interval begins here. Nothing to do, and nothing sent, if ranks agree already,
 * as they do after every step of the other algorithms. Collective.
 *
 * If what some rank has added up is not finite, all go back to the parameters of the last sync, and
 * its momentum becomes the mean over the ranks.
 *
 * @return onebitInvalidArgument  `optimizer` is NULL.
 * @return onebitInvalidUsage     another call is using the optimizer, a group is open, or a rebind
 *                                was left half done.
 * @return onebitDetached         its communicator was destroyed.
 * @return other errors of onebitAllReduce; then x, m and v of this rank are unchanged, and those of
 *         a rank that had already finished are not: onebitOptimizerRebind makes them agree.
 *
 * Thread safety: one thread at a time per optimizer and per its communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerSync(onebitOptimizer_t optimizer);

/**
 * Copies the moments, in the order of the parameters. Local. They are the same on every rank, but
 * for m of 0/1 Adam between two syncs.
 *
 * @param m receives `count` floats, the momentum without bias correction; NULL: not wanted.
 * @param v receives `count` floats, the variance without bias correction; NULL: not wanted.
 * @return onebitInvalidArgument  `optimizer` is NULL.
 * @return onebitInvalidUsage     another call is using the optimizer.
 *
 * Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerGetState(onebitOptimizer_t optimizer, float* m, float* v);

/**
 * Goes back to dense steps, behind which the variance is frozen anew: for trainings of two phases,
 * e.g. with longer sequences or other data in the second. Parameters, momentum and step number go
 * on; residuals are dropped. Local: do it on all ranks between the same two steps. Where ranks
 * differ, the first step that some send dense and others compressed reports onebitMismatch.
 *
 * 1-bit Adam and 1-bit LAMB: v is live again, from the value it was frozen with, and so is its bias
 * correction. `steps` further steps are dense. Moving averages of trust ratios begin anew at 0,
 * factors and momentum scales at 1. It may be called before a freeze, too, and then replaces the
 * rule for it.
 *
 * 0/1 Adam: the refreshes of v, from its present value, and the intervals of local steps begin anew
 * as at step 0 of the configuration's policy; the step that DeepSpeed's policy drops is not dropped
 * again. Not in the middle of an interval: call onebitOptimizerSync first.
 *
 * @param steps how many, >= 1; ONEBIT_FREEZE_NEVER; or ONEBIT_FREEZE_AUTOMATIC: the rule of
 *              freezeStep, with lrWarmupSteps counted from here. Of 0/1 Adam always
 *              ONEBIT_FREEZE_AUTOMATIC.
 * @return onebitInvalidArgument  `optimizer` is NULL, or `steps` is out of range;
 *                                ONEBIT_FREEZE_AUTOMATIC for onebitVariantDeepSpeed of 1-bit Adam
 *                                and 1-bit LAMB, or with a beta2 above 1 - 1e-6.
 * @return onebitInvalidUsage     another call is using the optimizer; a group is open; its
 *                                freezeStep is ONEBIT_FREEZE_NEVER; an interval of 0/1 Adam has
 *                                begun; or a rebind was left half done.
 * @return onebitOutOfMemory      not enough memory.
 *
 * After an error the optimizer is what it was. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerRewarm(onebitOptimizer_t optimizer, int64_t steps);

/* ---------------------------------------------------------------------------------- checkpoints */

/**
 * Writes all of an optimizer into `buffer`, for a checkpoint: the fp32 parameters, which are its
 * master weights, m, v, what else its algorithm keeps, counters, the progress of its schedule, and
 * its compressor's residuals. Not in it: the learning rate and other arguments of
 * onebitOptimizerStep, the low-precision copy of the parameters, which follows from them, and
 * bytes_sent of the stats.
 *
 * onebitStateRank is local, forces nothing, and works when the communicator was destroyed, too. It
 * is this rank's alone: with the states of the same step on all ranks training goes on bit for bit
 * as if it had not been interrupted, also in the middle of an interval of 0/1 Adam. `step` and
 * `skipped` of the stats tell whether it is the same step.
 *
 * onebitStateGlobal is collective over the optimizer's communicator: each rank calls it between the
 * same two steps, and gets the same bytes, which are compared, so that one of them is enough for a
 * checkpoint. It first makes the ranks agree, as onebitOptimizerSync does: in the middle of an
 * interval that is a sync of its own, behind which training goes on otherwise than without it. Of
 * the residuals it has the onebitStateGlobal of onebitCompressorExport.
 *
 * src/compressor/STATE.md describes the bytes.
 *
 * @param kind   whose state.
 * @param buffer NULL: only *bytes is written, without any communication. Otherwise receives the
 *               state; of any alignment. Undefined after an error.
 * @param bytes  in: room in `buffer`, if it is not NULL. Receives the length of the state; not
 *               NULL. 12 bytes per element for 1-bit Adam, 16 for 1-bit LAMB, 20 for 0/1 Adam, and
 *               besides what onebitCompressorExport says of its kind.
 * @return onebitInvalidArgument  a NULL argument, an unknown kind, or *bytes is too small; it then
 *                                receives what is needed. Nothing was sent.
 * @return onebitInvalidUsage     another call is using the optimizer; a group is open; a rebind was
 *                                left half done; and what onebitCompressorExport says.
 * @return onebitDetached         onebitStateGlobal: its communicator was destroyed.
 * @return onebitMismatch         onebitStateGlobal: the ranks have made different steps, or differ
 *                                in what should be the same on all of them.
 * @return other errors of onebitOptimizerSync and onebitCompressorExport, for onebitStateGlobal.
 *
 * Thread safety: one thread at a time per optimizer and, for onebitStateGlobal, per communicator.
 */
ONEBIT_API onebitResult_t onebitOptimizerExport(onebitOptimizer_t optimizer, onebitStateKind_t kind,
                                                void* buffer, size_t* bytes);

/**
 * Replaces all of an optimizer by a state of onebitOptimizerExport, the parameters and their
 * low-precision copy included. Local. Do it on all ranks between the same two steps: each its own
 * onebitStateRank, or all the same onebitStateGlobal.
 *
 * The state fits an optimizer with the same algorithm, variant, count, segments (how many, their
 * counts, and which are dense), beta2, and members that decide about steps: freezeStep and
 * lrWarmupSteps, or those of 0/1 Adam. A onebitStateRank fits the same rank of as many ranks, with
 * a compressor of the same settings; a onebitStateGlobal any number of ranks, with the same mode
 * and serverResidual. Everything else may differ: beta1, eps, biasCorrection, varianceFloor, masks,
 * learning rates, weight decay, and bounds of trust ratios are those of this optimizer.
 *
 * @param blob  `bytes` bytes, of any alignment; read only. Damage of any bit, and missing or
 *              additional bytes, are found.
 * @return onebitInvalidArgument  a NULL argument, or `blob` is no state.
 * @return onebitCorrupt          the state is damaged or not complete, or a residual is too large
 *                                for the residual type.
 * @return onebitMismatch         the state is of another optimizer, no state of an optimizer, or of
 *                                a later version of the library; the text names every difference.
 * @return onebitInvalidUsage     another call is using the optimizer, or a group is open.
 * @return onebitOutOfMemory      not enough memory.
 *
 * After an error the optimizer is what it was. Thread safety: one thread at a time per optimizer.
 */
ONEBIT_API onebitResult_t onebitOptimizerImport(onebitOptimizer_t optimizer, const void* blob,
                                                size_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_OPTIM_H_ */
