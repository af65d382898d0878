// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Embeds the image of the kernels in this plugin.
#include "plugins/device_cuda/cuda_kernels.h"

// The driver reads the image in units of 8 bytes and more, so it is aligned.
__asm__(
    ".pushsection .rodata.onebit_kernel_image, \"a\"\n"
    ".balign 64\n"
    ".hidden onebit_kernel_image_begin\n"
    ".hidden onebit_kernel_image_end\n"
    ".global onebit_kernel_image_begin\n"
    ".global onebit_kernel_image_end\n"
    "onebit_kernel_image_begin:\n"
#if defined(ONEBIT_KERNEL_IMAGE)
    ".incbin \"" ONEBIT_KERNEL_IMAGE
    "\"\n"
#else
    ".long 0xba55ed50\n"  // an image without kernels, for ONEBIT_DEVICE_CODE=OFF
#endif
    "onebit_kernel_image_end:\n"
    ".balign 64\n"
    ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte onebit_kernel_image_begin[];
[[gnu::visibility("hidden")]] extern const std::byte onebit_kernel_image_end[];
}

namespace onebit::device_cuda {

std::span<const std::byte> KernelImage() {
  return {onebit_kernel_image_begin, onebit_kernel_image_end};
}

}  // namespace onebit::device_cuda
