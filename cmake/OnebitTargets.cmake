# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Properties that every target of the project shares. Nothing here is global: each target asks for them.

# What `cmake --install` takes, without tests, baselines and programs that stay in the build folder.
add_custom_target(onebit_installed)

# onebit_configure_target(<target>): language level, warnings, include root, sanitizers, visibility.
function(onebit_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  # Headers only: the one file that holds {fmt}'s code is src/base/format.cc.
  target_include_directories(${target} SYSTEM PRIVATE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  # -Wno-missing-field-initializers: designated initialisers leave the rest at its default on purpose.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers)
  if(ONEBIT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(ONEBIT_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${ONEBIT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    # A fifth of the time of GCC's build goes into these checks of every access. AddressSanitizer finds null,
    # freed and too short objects as well; preset ubsan has all of them, and looks at alignment.
    if(ONEBIT_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -fno-sanitize=alignment,null,object-size,vptr)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${ONEBIT_SANITIZE})
  endif()
endfunction()
