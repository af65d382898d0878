// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local`: the ranks are threads of one process.
#pragma once

#include <onebit/transport.h>

extern "C" const onebitTransport* onebitTransportLocalGet(void);
