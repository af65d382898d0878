// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx`: the ranks are processes on one or more hosts, joined by UCX.
#pragma once

#include <onebit/transport.h>

extern "C" [[gnu::visibility("default")]] const onebitTransport* onebitTransportGet(void);
