// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA driver functions that load and launch kernels. They only inspect the image and run the host
// build of the same kernels; those of other modules do nothing.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/stand_in_stream.h"

namespace onebit::testing::cuda {
namespace {

using kernels::cuda::Kernel;
using kernels::cuda::kKernelCount;
using kernels::cuda::kKernels;
using kernels::cuda::kWarpsPerCta;

// CTAs of any kernel that one multiprocessor can run at once.
constexpr int kResident = 2;
static_assert(std::all_of(std::begin(kKernels), std::end(kKernels),
                          [](const auto& kernel) {
                            return kernel.param_bytes <= sizeof(KernelOperation::params);
                          }),
              "CUDA refuses to launch a kernel with so many bytes of parameters");
constexpr uint32_t kFatbinMagic = 0xba55ed50;

// CUDA may read a library's options, and write to them, whenever it loads a kernel.
struct Library {
  std::vector<CUjit_option> options;
  void** values = nullptr;
};

// A kernel of a library, represented by a CUkernel or, in one context, by a CUfunction.
struct Code {
  size_t number = 0;
  Context* context = nullptr;  // null for a CUkernel
};

struct ModuleKernel {
  bool is_loaded = false;
};
struct Module {
  std::string text;
  ModuleKernel kernel;  // its only one
};

// Guarded by the world's lock. Handles stay valid for ever, at the cost of some memory.
struct Codes {
  unsigned last_grid = 0;
  const char* late_error = nullptr;  // the compiler's, for the next kernel that is loaded
  std::vector<std::unique_ptr<Library>> libraries;
  std::vector<std::unique_ptr<Code>> codes;
  std::vector<std::unique_ptr<Module>> modules;
};

Codes& TheCodes() {
  static Codes* const codes = new Codes;
  return *codes;
}

// True for memory that is gone when the calling function returns.
bool IsOnStack(const void* memory) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* begin = nullptr;
  size_t bytes = 0;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  return std::less_equal<>()(begin, memory) &&
         std::less<>()(memory, static_cast<const std::byte*>(begin) + bytes);
}

// Writes the compiler's log for the image of all libraries, and its size.
void WriteErrorLog(std::string_view text) {
  for (const auto& library : TheCodes().libraries) {
    char* log = nullptr;
    for (size_t i = 0; i < library->options.size(); ++i) {
      if (library->options[i] == CU_JIT_ERROR_LOG_BUFFER) {
        log = static_cast<char*>(library->values[i]);
      }
      if (library->options[i] != CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES || log == nullptr) continue;
      const auto room = reinterpret_cast<uintptr_t>(library->values[i]);
      const size_t used = std::min(text.size() + 1, room);
      std::snprintf(log, room, "%s", std::string(text).c_str());
      library->values[i] = reinterpret_cast<void*>(used);
    }
  }
}

Code* FindCode(const void* handle) {
  for (const auto& code : TheCodes().codes) {
    if (code.get() == handle) return code.get();
  }
  return nullptr;
}

Code* MakeCode(size_t number, Context* context) {
  for (const auto& code : TheCodes().codes) {
    if (code->number == number && code->context == context) return code.get();
  }
  TheCodes().codes.push_back(std::make_unique<Code>(Code{number, context}));
  return TheCodes().codes.back().get();
}

// Loading is among the operations that captures forbid.
CUresult Load(World& world, Context& context, size_t number) {
  if (context.loaded[number]) return CUDA_SUCCESS;
  ONEBIT_CU_TRY(CheckUnsafe(world));
  context.loaded[number] = true;
  return CUDA_SUCCESS;
}

ModuleKernel* FindModuleKernel(const void* handle) {
  const Lock lock(TheWorld().mutex);
  for (const auto& module : TheCodes().modules) {
    if (&module->kernel == handle) return &module->kernel;
  }
  return nullptr;
}

CUresult LaunchModuleKernel(ModuleKernel& kernel, CUstream handle) {
  const DriverLock driver;  // before the world's, as all calls take them
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  if (!kernel.is_loaded) {
    ONEBIT_CU_TRY(CheckUnsafe(world));
    for (size_t i = 0; i < world.streams.size(); ++i) {
      if (world.streams[i]->context == stream->context) WaitFor(lock, world.streams[i]->tail());
    }
    kernel.is_loaded = true;
  }
  return Enqueue(world, lock, *stream, FunctionOperation{[](void*) {}, nullptr, true});
}

CUresult FindFunction(CUfunction handle, Code** code) {
  *code = FindCode(handle);
  return *code == nullptr || (*code)->context == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace
}  // namespace onebit::testing::cuda

using namespace onebit::testing::cuda;

CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
  ONEBIT_BEGIN(cuLibraryLoadData);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  ONEBIT_CU_TRY(CheckUnsafe(world));
  if (std::memcmp(image, &kFatbinMagic, sizeof kFatbinMagic) != 0) return CUDA_ERROR_INVALID_IMAGE;
  if (IsOnStack(values)) return CUDA_ERROR_INVALID_VALUE;
  auto& libraries = TheCodes().libraries;
  libraries.push_back(std::make_unique<Library>(Library{{options, options + count}, values}));
  *handle = reinterpret_cast<CUlibrary>(libraries.back().get());
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  ONEBIT_BEGIN(cuLibraryUnload);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  const size_t erased = std::erase_if(TheCodes().libraries, [&](const auto& library) {
    return library.get() == reinterpret_cast<Library*>(handle);
  });
  return erased == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary, const char* name) {
  ONEBIT_BEGIN(cuLibraryGetKernel);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  for (size_t i = 0; i < kKernelCount; ++i) {
    if (std::strcmp(kKernels[i].symbol, name) == 0) {
      *handle = reinterpret_cast<CUkernel>(MakeCode(i, nullptr));
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  ONEBIT_BEGIN(cuKernelGetFunction);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  if (TheCodes().late_error != nullptr) {
    WriteErrorLog(std::exchange(TheCodes().late_error, nullptr));
    return CUDA_ERROR_INVALID_PTX;
  }
  const Code* const code = FindCode(kernel);
  if (code == nullptr || code->context != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(MakeCode(code->number, context));
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  ONEBIT_BEGIN(cuModuleLoadData);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  ONEBIT_CU_TRY(CheckUnsafe(world));
  const std::string_view text(static_cast<const char*>(image));
  if (!text.starts_with(".version ")) return CUDA_ERROR_INVALID_PTX;
  TheCodes().modules.push_back(std::make_unique<Module>(Module{std::string(text), {}}));
  *handle = reinterpret_cast<CUmodule>(TheCodes().modules.back().get());
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  ONEBIT_BEGIN(cuModuleGetFunction);
  const Lock lock(TheWorld().mutex);
  for (const auto& module : TheCodes().modules) {
    if (reinterpret_cast<CUmodule>(module.get()) != handle) continue;
    if (module->text.find(".entry " + std::string(name) + "(") == std::string::npos) {
      return CUDA_ERROR_NOT_FOUND;
    }
    *function = reinterpret_cast<CUfunction>(&module->kernel);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  ONEBIT_BEGIN(cuFuncGetAttribute);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Code* code = nullptr;
  ONEBIT_CU_TRY(FindFunction(function, &code));
  ONEBIT_CU_TRY(Load(world, *code->context, code->number));
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) return CUDA_ERROR_NOT_SUPPORTED;
  *value = 32 * static_cast<int>(kWarpsPerCta);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction function, int threads,
                                                     size_t) {
  ONEBIT_BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Code* code = nullptr;
  ONEBIT_CU_TRY(FindFunction(function, &code));
  if (threads != 32 * static_cast<int>(kWarpsPerCta)) return CUDA_ERROR_INVALID_VALUE;
  *count = kResident;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream handle, void** params, void** extra) {
  ONEBIT_BEGIN(cuLaunchKernel);
  if (ModuleKernel* const kernel = FindModuleKernel(function); kernel != nullptr) {
    return LaunchModuleKernel(*kernel, handle);
  }
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  const Code* const code = FindCode(function);
  if (code == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A CUfunction belongs to one context; a CUkernel uses the stream's.
  if (code->context != nullptr && code->context != stream->context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != 32 * kWarpsPerCta || block_y != 1 ||
      block_z != 1 || shared_bytes != 0 || params == nullptr || extra != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!stream->context->loaded[code->number] && stream->capture != nullptr) {
    return Invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  ONEBIT_CU_TRY(Load(world, *stream->context, code->number));
  TheCodes().last_grid = grid_x;
  KernelOperation launch;
  launch.kernel = static_cast<Kernel>(code->number);
  launch.ctas = grid_x;
  std::memcpy(launch.params, params[0], kKernels[code->number].param_bytes);
  return Enqueue(world, lock, *stream, launch);
}

void onebitTestCudaFailCompiler(const char* text) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  TheCodes().late_error = text;
}

unsigned onebitTestCudaLastGrid(void) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  return TheCodes().last_grid;
}
