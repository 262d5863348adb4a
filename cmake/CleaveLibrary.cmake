# cleave_add_library(name SOURCES... PCH header DEPENDS tablegen-targets
#                    LINK libraries)
#
# One library per folder. LLVM is linked shared, once, and never mixed with the
# static archives. Exceptions are off, as in LLVM; a library that needs
# exceptions (Config) says EXCEPTIONS. PCH is the precompiled header (see
# below): `operations` unless said otherwise.
function(cleave_add_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "PCH" "DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  cleave_llvm_target(${name} ${ARG_EXCEPTIONS})
  if(NOT ARG_PCH)
    set(ARG_PCH operations)
  endif()
  if(NOT ARG_EXCEPTIONS)
    cleave_precompile(${name} ${ARG_PCH})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# Includes and flags for a target that uses LLVM and MLIR headers.
function(cleave_llvm_target name)
  target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include
                                            ${CMAKE_SOURCE_DIR}/runtime/include)
  target_compile_definitions(${name} PUBLIC __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS
                                            __STDC_LIMIT_MACROS _GNU_SOURCE)
  if("TRUE" IN_LIST ARGN)
    target_compile_options(${name} PRIVATE -fexceptions)
  else()
    target_compile_options(${name} PRIVATE -fno-exceptions)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O2) # as LLVM itself; -O3 compiles a tenth longer
  endif()
  target_link_libraries(${name} PUBLIC MLIR LLVM)
  add_dependencies(${name} cleave-headers)
endfunction()

# Of the compiler's precompiled headers `mlir` is for what lies below the
# operations; the others hold these, too.
cleave_precompiled_header(mlir)
cleave_precompiled_header(operations)
cleave_precompiled_header(codegen)
foreach(header mlir operations codegen)
  cleave_llvm_target(cleave-pch-${header} FALSE)
endforeach()
