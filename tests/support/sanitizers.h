// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// True if the program runs under a sanitizer that replaces malloc and similar functions.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ONEBIT_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ONEBIT_HAS_SANITIZER 1
#endif
#endif
#ifndef ONEBIT_HAS_SANITIZER
#define ONEBIT_HAS_SANITIZER 0
#endif
