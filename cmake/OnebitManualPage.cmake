# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# cmake -DHELP2MAN= -DEMULATOR= -DPROGRAM= -DNAME= -DTITLE= -DVERSION= -DPAGE= -P OnebitManualPage.cmake
# The manual page of a program that is installed as NAME. What it says about itself has the name that it was
# built with.
cmake_path(GET PROGRAM FILENAME built_name)
set(command ${PROGRAM})
if(EMULATOR)
  list(JOIN EMULATOR " " emulator)
  set(command "${emulator} ${PROGRAM}")
endif()
execute_process(
  COMMAND ${HELP2MAN} --no-info --no-discard-stderr --section 1 --manual "User Commands" --source "onebit ${VERSION}"
    --version-string ${VERSION} --name ${TITLE} ${command}
  OUTPUT_VARIABLE text RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "help2man cannot make the manual page of ${NAME}: ${errors}")
endif()
if(NOT NAME STREQUAL built_name)
  string(REPLACE "${built_name}" "${NAME}" text "${text}")
  string(TOUPPER "${built_name}" built_title)
  string(TOUPPER "${NAME}" title)
  string(REPLACE "${built_title}" "${title}" text "${text}")
endif()
file(WRITE ${PAGE} "${text}")
