# Build helpers. Every target of the tree goes through llorch_library / llorch_executable / llorch_test,
# so that warnings, floating-point rules and sanitizers are the same everywhere.

find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json url)
find_package(GTest REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(PostgreSQL REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(CLI11 REQUIRED)
find_library(LLORCH_RAPIDCHECK rapidcheck REQUIRED)

find_program(LLORCH_CCACHE ccache)
if(LLORCH_CCACHE)
  # ccache leaves units with a precompiled header alone unless it may trust that nobody edits it within the second of a build.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LLORCH_CCACHE})
endif()

add_library(llorch_options INTERFACE)
target_include_directories(llorch_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: g++ fuses multiply-add otherwise, and the bits of a result are part of the contract.
# Everywhere, as the precompiled headers are: a unit and its header have the same macros.
target_compile_definitions(llorch_options INTERFACE
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS> $<TARGET_PROPERTY:Boost::json,INTERFACE_COMPILE_DEFINITIONS>)
target_compile_options(llorch_options INTERFACE
  # Designated initialisers name what differs from the defaults; the rest is meant.
  -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -ffp-contract=off -fno-omit-frame-pointer
  # A failed assertion names its file within the tree: two checkouts compile to the same bytes.
  -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports the first two inside libstdc++ and Boost headers at -O2 (GCC bugs 105329, 105593), and the third of a source that
  # is compiled with others as if it were a header.
  target_compile_options(llorch_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-subobject-linkage)
  # g++ collects its garbage from 128 MB of heap on; a unit of ours has 600 to 1,000 and a tenth of its time went into that.
  target_compile_options(llorch_options INTERFACE "SHELL:--param ggc-min-heapsize=400000")
endif()
# base::build_id() reads it; receipts name the exact binary by it.
target_link_options(llorch_options INTERFACE -Wl,--build-id=sha1)
if(LLORCH_SANITIZE)
  target_compile_options(llorch_options INTERFACE -fsanitize=${LLORCH_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(llorch_options INTERFACE -fsanitize=${LLORCH_SANITIZE})
  if(LLORCH_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(llorch_options INTERFACE -Wno-tsan)
  endif()
endif()

if(LLORCH_FUZZERS)
  # Coverage feedback from the libraries too: without it a fuzzer sees only its own main file.
  target_compile_options(llorch_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(llorch_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Twelve sources of a target (16 of a cold one) are one translation unit: most of a unit's time goes into headers and templates
# that the next one needs as well, so the whole takes a third of the time. What it asks of a source: names without linkage are
# its target's own. OFF shows a missing #include.
option(CMAKE_UNITY_BUILD "Compile sources of a target together" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
# llorch_separate(a.cpp ...): each is a translation unit of its own. For sources that are alike and name their parts alike.
function(llorch_separate)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Parsing the standard library, fmt and Boost.JSON takes a third of a unit's time. g++ takes a precompiled header only under the
# flags it was made with, so each level of optimisation has its own.
function(llorch_precompiled_header name header)
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/owner.cpp)
  target_link_libraries(${name} PRIVATE llorch_options ${ARGN})
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${header})
endfunction()
llorch_precompiled_header(llorch_common_header common.h fmt::fmt tl::expected Boost::json)
llorch_precompiled_header(llorch_cold_header common.h fmt::fmt tl::expected Boost::json)
target_compile_options(llorch_cold_header PRIVATE $<$<CONFIG:Release>:-Og>)
llorch_precompiled_header(llorch_test_header test.h fmt::fmt tl::expected Boost::json GTest::gmock)
target_compile_options(llorch_test_header PRIVATE $<$<CONFIG:Release>:-O0>)

# llorch_library(NAME [COLD | TEST] SOURCES a.cpp ... DEPS llorch_base ...)
# COLD: nothing here runs per token or per byte of a model, or shows in the CPU time of a job (`bench/serve/compare`); -Og compiles
# it in three fifths of the time. TEST: what tests share, compiled as they are.
function(llorch_library name)
  cmake_parse_arguments(ARG "COLD;TEST" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC llorch_options ${ARG_DEPS})
  if(ARG_COLD)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
    target_precompile_headers(${name} REUSE_FROM llorch_cold_header)
  elseif(ARG_TEST)
    llorch_unoptimised(${name})
  else()
    target_precompile_headers(${name} REUSE_FROM llorch_common_header)
  endif()
  set_property(GLOBAL APPEND PROPERTY LLORCH_LIBRARIES ${name})
endfunction()

# Programs that measure: built with this target or by name, by `make nightly` lest they rot.
add_custom_target(benchmarks)

# llorch_program(NAME DIRECTORY bench [UNOPTIMISED] [ON_REQUEST] SOURCES main.cpp ... DEPS ...): a program in that directory of the
# build. ON_REQUEST: it is one of the benchmarks.
function(llorch_program name)
  cmake_parse_arguments(ARG "UNOPTIMISED;ON_REQUEST" "DIRECTORY" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE llorch_options ${ARG_DEPS})
  if(ARG_UNOPTIMISED)
    llorch_unoptimised(${name})
  else()
    target_precompile_headers(${name} REUSE_FROM llorch_common_header)
  endif()
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${ARG_DIRECTORY} EXCLUDE_FROM_ALL ${ARG_ON_REQUEST})
  if(ARG_ON_REQUEST)
    add_dependencies(benchmarks ${name})
  endif()
endfunction()

# What users run; `make build` stops here and leaves the tests to `make test`.
add_custom_target(binaries)

# llorch_executable(NAME SOURCES main.cpp ... DEPS ...): NAME is the binary's name under build/<preset>/bin.
function(llorch_executable name)
  llorch_program(${name} DIRECTORY bin ${ARGN})
  add_dependencies(binaries ${name})
endfunction()

# The libraries under test are optimised; what drives them is compiled in half the time without.
function(llorch_unoptimised name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0> $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
  target_precompile_headers(${name} REUSE_FROM llorch_test_header)
endfunction()

# llorch_test(NAME [SECONDS n] SOURCES x_test.cpp ... DEPS ...): one GoogleTest binary per library, its long cases apart. CTest
# begins with those that take the most SECONDS, lest one runs alone at the end.
function(llorch_test name)
  cmake_parse_arguments(ARG "" "SECONDS" "SOURCES;DEPS" ${ARGN})
  llorch_program(${name} DIRECTORY test UNOPTIMISED SOURCES ${ARG_SOURCES}
    DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main ${LLORCH_RAPIDCHECK})
  target_compile_definitions(${name} PRIVATE LLORCH_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  if(ARG_SECONDS)
    set_tests_properties(${name} PROPERTIES COST ${ARG_SECONDS})
  endif()
endfunction()

# All fuzzers: what a build with LLORCH_FUZZERS is made for. g++ builds the rest.
add_custom_target(fuzzers)

# llorch_fuzzer(NAME SOURCES x_fuzz.cpp DEPS ... CORPUS dir)
# The source defines LLVMFuzzerTestOneInput. With LLORCH_FUZZERS (clang) it becomes a libFuzzer binary; in every other
# build the same source is linked with a driver that replays the corpus, so the seeds are tests everywhere.
function(llorch_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  if(LLORCH_FUZZERS)
    add_executable(${name} ${ARG_SOURCES})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE llorch_options ${ARG_DEPS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  else()
    llorch_program(${name} DIRECTORY fuzz UNOPTIMISED SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} llorch_fuzz_replay)
    add_test(NAME ${name}_replay COMMAND ${name} ${ARG_CORPUS})
  endif()
  add_dependencies(fuzzers ${name})
endfunction()
