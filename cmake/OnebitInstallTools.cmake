# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Lets `cmake --install` put programs, their manual pages, documents and examples beside the library.

# Manual pages consist of what programs say about themselves (`--help`), so programs must run here.
find_program(ONEBIT_HELP2MAN help2man)
mark_as_advanced(ONEBIT_HELP2MAN)
set(ONEBIT_HAVE_MANUAL_PAGES OFF)
if(NOT ONEBIT_HELP2MAN)
  onebit_feature("manual pages" OFF "help2man not found")
elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  onebit_feature("manual pages" OFF "programs do not run here: CMAKE_CROSSCOMPILING_EMULATOR is not set")
else()
  set(ONEBIT_HAVE_MANUAL_PAGES ON)
  onebit_feature("manual pages" ON "")
endif()

# onebit_install_tool(<target> <name> <title>): the program of a target under this name, and its manual page.
# A build of a few targets can be installed as well: the installation names the programs that it lacks.
function(onebit_install_tool target name title)
  if(NOT TARGET ${target})
    return()
  endif()
  add_dependencies(onebit_installed ${target})
  file(RELATIVE_PATH to_libdir /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libdir}")
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
    message(STATUS \"Not installed, because it is not built: ${name}\")
  endif()")
  if(NOT name STREQUAL target)
    # CMake renames files, and no targets, whose run-time path it adapts.
    set(folder "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}")
    install(CODE "if(EXISTS \"${folder}/${target}\")
      file(RENAME \"${folder}/${target}\" \"${folder}/${name}\")
    endif()")
  endif()
  if(NOT ONEBIT_HAVE_MANUAL_PAGES)
    return()
  endif()
  set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -DHELP2MAN=${ONEBIT_HELP2MAN} -DEMULATOR=${CMAKE_CROSSCOMPILING_EMULATOR}
      -DPROGRAM=$<TARGET_FILE:${target}> -DNAME=${name} -DTITLE=${title} -DVERSION=${PROJECT_VERSION}
      -DPAGE=${page} -P ${PROJECT_SOURCE_DIR}/cmake/OnebitManualPage.cmake
    DEPENDS ${target} ${PROJECT_SOURCE_DIR}/cmake/OnebitManualPage.cmake
    COMMENT "Manual page of ${name}"
    VERBATIM)
  add_custom_target(${target}_manual ALL DEPENDS ${page})
  add_dependencies(onebit_installed ${target}_manual)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endfunction()

onebit_install_tool(onebit_info onebit_info "lists the settings, transports and devices of onebit")
onebit_install_tool(onebit_run onebit_run "starts the ranks of a job on this host or on several")
onebit_install_tool(onebit_schedule onebit_schedule "tells what each step of a compressed optimizer sends")
onebit_install_tool(codec_perf onebit_codec_perf "times the kernels of onebit")
# Sweeps have a prefix, because those of nccl-tests have the same names.
foreach(collective all_gather all_reduce alltoall alltoallv broadcast group reduce_scatter sendrecv)
  onebit_install_tool(${collective}_perf onebit_${collective}_perf "times and checks ${collective} of onebit")
endforeach()

set(documents ${CMAKE_INSTALL_DATAROOTDIR}/doc/onebit)
install(FILES LICENSE src/codec/FORMAT.md src/comm/SECURITY.md src/state/STATE.md
  src/optim/DEEPSPEED.md DESTINATION ${documents})
# Programs and sources name pages and each other by their paths in this project.
install(DIRECTORY docs DESTINATION ${documents} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY perf/examples DESTINATION ${documents}/examples/perf FILES_MATCHING PATTERN "*.cc" PATTERN "*.h"
  PATTERN "*.py")
install(DIRECTORY bindings/python/examples/ DESTINATION ${documents}/examples/python FILES_MATCHING PATTERN "*.py")
