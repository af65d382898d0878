/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The settings and transports that the library knows. Part of onebit.h, which includes it.
 */
#ifndef ONEBIT_SETTING_H_
#define ONEBIT_SETTING_H_

#include "onebit/onebit.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One environment variable the library understands. */
typedef struct {
  const char* name; /* ONEBIT_... */
  const char* type; /* what its value may be */
  const char* defaultValue;
  const char* help;   /* one sentence */
  const char* value;  /* in force now */
  const char* source; /* "default" or "environment" */
} onebitSetting_t;

/**
 * Row `index` of the settings table: the library's own, then those of its transports, plugins that
 * are found included, which are opened for that. `onebit_info` prints them all.
 *
 * @param setting receives texts with static storage.
 * @return onebitInvalidArgument  `setting` is NULL, or there is no such row: that ends an
 *                                enumeration.
 * @return onebitInvalidUsage     the environment holds an unknown ONEBIT_* variable or a bad value,
 *                                or the log file cannot be opened.
 *
 * Thread safety: any thread. Settings are read once, at first use.
 */
ONEBIT_API onebitResult_t onebitGetSetting(int index, onebitSetting_t* setting);

/**
 * Name of transport `index`: those that are linked in, then those whose plugin is found, in
 * ONEBIT_PLUGIN_PATH or beside the library. Whether a plugin can be opened is not tried.
 *
 * @param name receives a text with static storage.
 * @return onebitInvalidArgument  `name` is NULL, or there is no such transport: that ends an
 *                                enumeration.
 * @return onebitInvalidUsage     as of onebitGetSetting.
 *
 * Thread safety: any thread. The folders are read once, at first use.
 */
ONEBIT_API onebitResult_t onebitGetTransport(int index, const char** name);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_SETTING_H_ */
