# cleave_add_library(name SOURCES... PCH header DEPENDS tablegen-targets
#                    LINK libraries)
#
# One library per folder, as objects of libcleave-compiler.so: a second copy of
# them in a process would have other TypeIDs. The target `name` is what others
# link: the shared library, and the headers and flags of what is under LINK,
# which check-layers compares with the includes. LLVM is linked shared, once,
# and never mixed with the static archives. Exceptions are off, as in LLVM; a
# library that needs exceptions (Config) says EXCEPTIONS. PCH is the precompiled
# header (see below): `operations` unless said otherwise.
add_library(cleave-compiler SHARED ${CMAKE_SOURCE_DIR}/cmake/pch/empty.cpp)
set_target_properties(cleave-compiler PROPERTIES VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_link_libraries(cleave-compiler PUBLIC MLIR LLVM)
if(NOT CLEAVE_SANITIZE) # whose runtime is in the executable alone
  target_link_options(cleave-compiler PRIVATE -Wl,-z,defs)
endif()
# Static, without LLVM; what the compiler needs of them is in its library.
set(CLEAVE_RUNTIME_LIBRARIES cleaveBase cleaveIO cleaveKernels cleaveProgram cleaveRuntime
                             cleaveTrainer)
# What is linked against the library need not be linked again when it changes.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

function(cleave_add_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "PCH" "DEPENDS;LINK" ${ARGN})
  set(objects ${name}Objects)
  add_library(${objects} OBJECT ${ARG_UNPARSED_ARGUMENTS})
  cleave_llvm_target(${objects} ${ARG_EXCEPTIONS})
  if(NOT ARG_PCH)
    set(ARG_PCH operations)
  endif()
  if(NOT ARG_EXCEPTIONS)
    cleave_precompile(${objects} ${ARG_PCH})
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${objects} ${ARG_DEPENDS})
  endif()
  target_sources(cleave-compiler PRIVATE $<TARGET_OBJECTS:${objects}>)
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE cleave-compiler)
  target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include
                                               ${CMAKE_SOURCE_DIR}/runtime/include)
  foreach(library ${ARG_LINK})
    if(library IN_LIST CLEAVE_RUNTIME_LIBRARIES)
      target_link_libraries(${objects} PRIVATE ${library})
      target_link_libraries(cleave-compiler PRIVATE ${library})
    elseif(library MATCHES "^cleave")
      target_link_libraries(${name} INTERFACE ${library})
    else() # of Debian
      target_link_libraries(${objects} PRIVATE ${library})
      target_link_libraries(cleave-compiler PRIVATE ${library})
    endif()
  endforeach()
endfunction()

# cleave_add_test_library(name SOURCES... LINK libraries): what tests share.
function(cleave_add_test_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  cleave_llvm_target(${name} FALSE)
  cleave_precompile(${name} operations)
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
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
  # What the library has of the runtime must not be linked again from the static
  # libraries, so it comes first; options precede all libraries.
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_link_options(${name} PRIVATE $<TARGET_FILE:cleave-compiler>)
    add_dependencies(${name} cleave-compiler)
  endif()
  target_link_libraries(${name} PUBLIC MLIR LLVM)
  add_dependencies(${name} cleave-headers)
endfunction()

# Of the compiler's precompiled headers `mlir` is for what is below the
# operations; the others hold these, too.
cleave_precompiled_header(mlir)
cleave_precompiled_header(operations)
cleave_precompiled_header(codegen)
foreach(header mlir operations codegen)
  cleave_llvm_target(cleave-pch-${header} FALSE)
endforeach()
