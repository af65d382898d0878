# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Rules of `cmake --install`, and the symbols that libonebit.so exports.

include(CMakePackageConfigHelpers)

set_target_properties(onebit PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/onebit.map
  # The interface is C11: a program that includes onebit.h needs no C++ compiler.
  INTERFACE_COMPILE_FEATURES "")
target_link_options(onebit PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/onebit.map)

add_dependencies(onebit_installed onebit)
install(TARGETS onebit EXPORT onebitTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/onebit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onebit)
install(EXPORT onebitTargets NAMESPACE onebit:: DESTINATION ${package_dir})
configure_package_config_file(cmake/onebitConfig.cmake.in
  ${PROJECT_BINARY_DIR}/onebitConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break; from 1.0 on this becomes SameMajorVersion, like the SONAME.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/onebitConfig.cmake ${PROJECT_BINARY_DIR}/onebitConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH ONEBIT_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/onebit.pc.in onebit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onebit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
