/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Settings: lists the environment variables and the transports that the library knows, and gives
 * bindings of other languages the initial values of structures. Included by onebit.h.
 *
 *   onebitSetting_t setting;
 *   for (int i = 0; onebitGetSetting(i, &setting) == onebitSuccess; ++i)
 *     printf("%s=%s (%s)\n", setting.name, setting.value, setting.source);
 */
#ifndef ONEBIT_SETTING_H_
#define ONEBIT_SETTING_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One environment variable that the library understands. */
typedef struct {
  const char* name; /* ONEBIT_... */
  const char* type; /* which values it accepts */
  const char* defaultValue;
  const char* help;   /* one sentence */
  const char* value;  /* in force now */
  const char* source; /* "default" or "environment" */
} onebitSetting_t;

/**
 * Writes row `index` of the table of settings: the library's own, then those of its transports,
 * including those of every plugin found, which is opened to read them. `onebit_info` prints all
 * rows.
 *
 * @param setting Receives texts with static storage.
 * @return onebitInvalidArgument  also: there is no such row, which ends an enumeration.
 * @return onebitInvalidUsage     a setting (ONEBIT_*) does not parse, or the log file cannot be
 *                                opened.
 *
 * Thread safety: any thread. Reads settings once; an unknown ONEBIT_* is a warning in the log.
 */
ONEBIT_API onebitResult_t onebitGetSetting(int index, onebitSetting_t* setting);

/**
 * Writes the name of transport `index`: those that are linked in, then those whose plugin is found
 * in ONEBIT_PLUGIN_PATH or in the folder of the library. Does not test whether a plugin can be
 * opened.
 *
 * @param name Receives a text with static storage.
 * @return onebitInvalidArgument  also: there is no such transport, which ends an enumeration.
 * @return onebitInvalidUsage     as for onebitGetSetting.
 *
 * Thread safety: any thread. The folders are read once, at first use.
 */
ONEBIT_API onebitResult_t onebitGetTransport(int index, const char** name);

/** Structures that begin with their size. */
typedef enum {
  onebitStructConfig = 0,           /* onebitConfig_t */
  onebitStructCommStats = 1,        /* onebitCommStats_t */
  onebitStructCompressorConfig = 2, /* onebitCompressorConfig_t */
  onebitStructCompressorStats = 3,  /* onebitCompressorStats_t */
  onebitStructSyncSchedule = 4,     /* onebitSyncSchedule_t */
  onebitStructPolicyConfig = 5,     /* onebitPolicyConfig_t */
  onebitStructStepPlan = 6,         /* onebitStepPlan_t */
  onebitStructSegment = 7,          /* onebitSegment_t */
  onebitStructOptimizerConfig = 8,  /* onebitOptimizerConfig_t */
  onebitStructStepResult = 9,       /* onebitStepResult_t */
  onebitStructOptimizerStats = 10,  /* onebitOptimizerStats_t */
  onebitStructTrustRatio = 11       /* onebitTrustRatio_t */
} onebitStruct_t;

/**
 * Fills a structure as its initialiser macro does, and a stats structure with its size and zeros.
 * For languages that cannot use macros. It also tells them whether their layout of the structure
 * matches the library's.
 *
 * @param kind      The structure's type.
 * @param structure Receives `size` bytes; of any alignment.
 * @param size      Bytes that the caller's structure has.
 * @return onebitInvalidArgument  also: the library knows no structure of this kind and size; the
 *                                text has the size that it knows.
 *
 * Thread safety: any thread.
 */
ONEBIT_API onebitResult_t onebitStructInit(onebitStruct_t kind, void* structure, size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SETTING_H_ */
