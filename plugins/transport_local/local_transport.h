// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local`: the ranks are threads of one process.
#pragma once

#include <onebit/transport.h>

namespace onebit::local {

const onebitTransport* Functions();

}  // namespace onebit::local
