/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Settings: lists the environment variables and the transports that the library knows. Included by
 * onebit.h.
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
 * including the plugins that are found, which are opened for that. `onebit_info` prints all rows.
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
 * in ONEBIT_PLUGIN_PATH or beside the library. Does not try whether a plugin can be opened.
 *
 * @param name Receives a text with static storage.
 * @return onebitInvalidArgument  also: there is no such transport, which ends an enumeration.
 * @return onebitInvalidUsage     as for onebitGetSetting.
 *
 * Thread safety: any thread. The folders are read once, at first use.
 */
ONEBIT_API onebitResult_t onebitGetTransport(int index, const char** name);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SETTING_H_ */
