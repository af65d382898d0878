/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: step policies, which say what each step of an optimizer sends, and why, without
 * running it. Included by onebit.h. Advanced, and frozen: optimizers (optim.h) follow their policy
 * on their own, and nothing will be added here.
 *
 *   onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
 *   config.algorithm = onebitAlgorithmZeroOneAdam;
 *   config.varFreezeStep = 12500;
 *   onebitPolicy_t policy;
 *   onebitPolicyCreate(&policy, &config);
 *   for (...) {
 *     onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
 *     onebitPolicyNext(policy, lr, &plan);                    // plan.kind: 'B', '1', '.', ...
 *     onebitPolicyCommit(policy, lr, 0);
 *   }
 *
 * What a step sends depends only on its number, the policy, the learning rates so far and the
 * variance, all of which are equal on all ranks. So the ranks never need to ask each other.
 */
#ifndef ONEBIT_SCHEDULE_H_
#define ONEBIT_SCHEDULE_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct onebitPolicy_s* onebitPolicy_t;

/** "Take the default" for floating-point members of config structures. */
#define ONEBIT_UNDEF_REAL (-1.0)
/** "Take the default" for members of config structures that are numbers of steps. */
#define ONEBIT_UNDEF_STEP INT64_MIN

/** `freezeStep`: freeze when the variance has become stationary. */
#define ONEBIT_FREEZE_AUTOMATIC (-1)
/** `freezeStep`: freeze when the bias-corrected variance has settled, however early. */
#define ONEBIT_FREEZE_SETTLED (-2)
/** `freezeStep`: never freeze or compress: plain data-parallel Adam or LAMB. */
#define ONEBIT_FREEZE_NEVER INT64_MAX

/** Update rule. */
typedef enum {
  onebitAlgorithmOneBitAdam = 0, /* Tang et al. 2021 */
  onebitAlgorithmOneBitLamb = 1, /* Li et al. 2021 */
  onebitAlgorithmZeroOneAdam = 2 /* Lu et al. 2023 */
} onebitAlgorithm_t;

/** Version of an update rule: as published, or as in DeepSpeed. */
typedef enum {
  onebitVariantPaper = 0,
  /* For comparisons: what DeepSpeed computes. It swallows the first step, and its 0/1 Adam
     compresses the gradient instead of the model update until its freeze. */
  onebitVariantDeepSpeed = 1
} onebitVariant_t;

/**
 * Decides which steps are dense, compressed or local. Start from ONEBIT_POLICY_CONFIG_INIT and set
 * what differs; members left at ONEBIT_UNDEF_INT, ONEBIT_UNDEF_REAL or ONEBIT_UNDEF_STEP take the
 * default given here. Members that the algorithm or the variant does not use must stay at their
 * defaults. Equal on all ranks.
 */
typedef struct {
  size_t size;           /* sizeof(onebitPolicyConfig_t) */
  uint32_t magic;        /* ONEBIT_CONFIG_MAGIC */
  uint32_t version;      /* ONEBIT_VERSION_CODE */
  int32_t algorithm;     /* onebitAlgorithm_t; default onebitAlgorithmOneBitAdam */
  int32_t variant;       /* onebitVariant_t; default onebitVariantPaper */
  int64_t lrWarmupSteps; /* steps over which the caller raises the learning rate, >= 0; default 0.
                            A freeze that follows the variance waits for their end */

  /* --- 1-bit Adam and 1-bit LAMB: dense steps, then compressed ones. Steps count from 1. */
  double beta2;       /* decay of the variance, for a freeze that follows it; [0, 1), default
                         0.999 */
  int64_t freezeStep; /* the last dense step, >= 1; or ONEBIT_FREEZE_AUTOMATIC (default): the first
                         t > max(lrWarmupSteps, D), D = 1/(1 - beta2), at which the sums of the
                         variance at t and t - D, raw and bias-corrected, are within 4 % of each
                         other; or ONEBIT_FREEZE_SETTLED: the first t > max(lrWarmupSteps, 32) at
                         which the bias-corrected sum has stayed within 4 % since step t/2, or over
                         the last D steps if these are fewer; or ONEBIT_FREEZE_NEVER. DeepSpeed:
                         must be set, to 2 or more because step 1 is swallowed; it has no freeze
                         that follows the variance */

  /* --- 0/1 Adam: refreshes of the variance, and syncs with local steps in between. The paper's
     variant counts steps from 0, DeepSpeed's from 1. */
  int64_t varFreezeStep;   /* >= 1. The paper's variant refreshes only before this step, DeepSpeed's
                              up to and including the step after it. Default: lrWarmupSteps, if
                              that is not 0 */
  int64_t varUpdateScaler; /* refreshes until the distance between them doubles, >= 1; default 16 */
  int64_t localStepScaler; /* steps until the interval between syncs doubles, >= 1; default 32678,
                              as published */
  int64_t localStepClipper; /* longest interval between syncs, in steps, >= 1; default 16 */
  int64_t localStepStart;   /* paper only: every step before it is a sync, and from it on the
                               interval doubles; at least varFreezeStep, which is the default */
  int32_t rateTied; /* paper only: 1 ties the interval to the learning rate: it is the largest
                       power of two up to peak rate / present rate, or localStepClipper if that is
                       less, which need not be a power of two: with 12 the intervals are 1, 2, 4, 8
                       and 12. 0 (default): the interval doubles by localStepScaler, up to the same
                       limit */
  int32_t denseStepFeedsMomentum; /* paper only: 1 feeds the momentum with the dense average of a
                                     refresh, which then needs no compressed one; 0 (default): both
                                     are sent. DeepSpeed's variant always does the former */
} onebitPolicyConfig_t;

#define ONEBIT_POLICY_CONFIG_INIT                                                             \
  {                                                                                           \
    sizeof(onebitPolicyConfig_t), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE, ONEBIT_UNDEF_INT, \
        ONEBIT_UNDEF_INT, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_REAL, ONEBIT_UNDEF_STEP,            \
        ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_STEP,           \
        ONEBIT_UNDEF_STEP, ONEBIT_UNDEF_INT, ONEBIT_UNDEF_INT                                 \
  }

/** Effects of a step besides sending. */
typedef enum {
  onebitStepRefreshesVariance = 1,  /* with the dense average of the gradient */
  onebitStepFeedsMomentum = 2,      /* the momentum takes that average, not this rank's gradient */
  onebitStepCompressesGradient = 4, /* the compressed average is that of the gradient */
  onebitStepSyncs = 8, /* the compressed average is that of the updates since the last sync */
  onebitStepEndsInterval = 16,   /* after the step, ranks agree on everything */
  onebitStepResetsResiduals = 32 /* before the step: from now on another quantity is compressed */
} onebitStepFlags_t;

/** One step. Start from ONEBIT_STEP_PLAN_INIT. */
typedef struct {
  size_t size;    /* sizeof(onebitStepPlan_t) as the caller was compiled; input */
  uint64_t step;  /* its number, counted as the configuration says; onebitStepResult_t counts from
                     1 */
  uint32_t flags; /* sum of onebitStepFlags_t. If neither the gradient nor model updates are
                     compressed, the compressed average is that of the momentum */
  int32_t dense;  /* 1: a full precision average, 16 or 32 bits per element like the gradient */
  int32_t compressed; /* 1: a compressed average, one bit per element */
  char kind; /* 'B' dense and compressed, 'F' dense, '1' compressed, 'u' compressed, for a sync
                after DeepSpeed's freeze, '.' nothing, 'i' DeepSpeed's swallowed step */
} onebitStepPlan_t;

#define ONEBIT_STEP_PLAN_INIT \
  { sizeof(onebitStepPlan_t), 0, 0, 0, 0, 0 }

/**
 * Makes a policy, which is at its first step. Local.
 *
 * @param policy Receives the handle. Memory: for a freeze that follows the variance 8 bytes for
 *               each of 1/(1 - beta2) steps.
 * @param config NULL: all defaults. Copied.
 * @return onebitInvalidArgument  also: a member of `config` is out of range, or not used by the
 *                                algorithm or variant; the text names it.
 *
 * Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitPolicyCreate(onebitPolicy_t* policy,
                                             const onebitPolicyConfig_t* config);

/** Frees a policy; NULL does nothing. Thread safety: no other thread may be using `policy`. */
ONEBIT_API onebitResult_t onebitPolicyDestroy(onebitPolicy_t policy);

/**
 * Writes what the next step does if it is made with this learning rate. Changes nothing.
 *
 * A sync needs a mean weighted by learning rates: as long as those since the last sync, this one
 * included, sum to 0, a sync that is due is postponed.
 *
 * @param learning_rate >= 0, finite in fp32. Only 0/1 Adam uses it.
 * @param plan          `size` must be set.
 *
 * Thread safety: one thread at a time per policy.
 */
ONEBIT_API onebitResult_t onebitPolicyNext(onebitPolicy_t policy, double learning_rate,
                                           onebitStepPlan_t* plan);

/**
 * Records that the next step was made with this learning rate, and moves to the one after it. Do
 * not commit a step that was skipped, e.g. for an overflow: call onebitPolicyEndInterval instead.
 *
 * @param learning_rate As for onebitPolicyNext.
 * @param variance_sum  The sum of |v| after the step, finite and not negative. Used only by a
 *                      freeze that follows the variance and has not happened yet.
 *
 * Thread safety: one thread at a time per policy.
 */
ONEBIT_API onebitResult_t onebitPolicyCommit(onebitPolicy_t policy, double learning_rate,
                                             double variance_sum);

/**
 * Begins a new interval of local steps, because ranks agree, or went back to where they did,
 * without a sync step: call it after a step that was skipped and after onebitOptimizerSync. Changes
 * nothing for 1-bit Adam and 1-bit LAMB, or if no interval was begun.
 *
 * After onebitOptimizerRewarm make a new policy. If it is DeepSpeed's and the optimizer had made
 * steps before, also commit its first step, because it is not swallowed again.
 *
 * Thread safety: one thread at a time per policy.
 */
ONEBIT_API onebitResult_t onebitPolicyEndInterval(onebitPolicy_t policy);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SCHEDULE_H_ */
