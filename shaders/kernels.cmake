# kernels: compiles shaders to SPIR-V, or takes them compiled (DELTAIC_SPIRV), and makes the tables of kernels.
#
# DELTAIC_SPIRV: a folder spv/ of an earlier build, whose shaders were the same. A source package has one, so that building
# from it needs no shader compiler.
#
# deltaic_kernel(NAME [CHECKED] [NEEDS EXTENSION] [CONTRACT HEADER] [SUFFIX=MACRO[,MACRO...]...]): the kernel
# shaders/KERNEL_FOLDER/NAME.comp, which may include what is in its own folder and in shaders/common.
# Each SUFFIX is a variant: the module NAME_SUFFIX, compiled with those macros. Without any there is one module, NAME.
# CHECKED: the driver is asked to check every access of these modules against what is bound.
# NEEDS: where the compiler does not know this extension of GLSL, the modules are empty.
# CONTRACT: the contract is HEADER.h instead of NAME.h. The contract of a module is the longest X of that
# header's X_BINDINGS with which the module's name begins; ARGS() there, or in what it includes first, names the push
# constants. A suffix that ends in one of FORMATS makes the module that variant of its family (host/ops/vulkan/kernels.h).
include(${CMAKE_CURRENT_LIST_DIR}/shader_hash.cmake)
set(packaged)
if(EXISTS ${TOP}/spirv/sources.txt)
  set(packaged ${TOP}/spirv)
endif()
set(DELTAIC_SPIRV "${packaged}" CACHE PATH "Compiled shaders; empty: compile them")
set(SPV ${CMAKE_CURRENT_BINARY_DIR}/spv)
set(FORMATS f32 f16 bf16 blocks) # as enum dtype names them
set(SHADERS ${TOP}/shaders)
set(SHADER_FOLDERS common token linear experts delta mamba2 attention backward)
list(TRANSFORM SHADER_FOLDERS PREPEND ${SHADERS}/)
set(SPV_HEADERS)
set(TABLE_HEADERS) # SPV_HEADERS of the table in hand
set(PACKED_HEADERS)
set(CONTRACTS)
set(FAMILIES)
set(KERNELS)
set(KERNEL_VARIANTS)
set(MODULES) # of all modules what they are compiled from
set(EMPTY_MODULES)
set(NEEDING_MODULES) # which need an extension
function(deltaic_kernel name)
  cmake_parse_arguments(PARSE_ARGV 1 IS "CHECKED" "NEEDS;CONTRACT" "")
  set(variants ${IS_UNPARSED_ARGUMENTS})
  if(NOT variants)
    set(variants "=")
  endif()
  set(target vulkan1.1)
  if(IS_NEEDS MATCHES "cooperative_matrix")
    set(target vulkan1.3)
  endif()
  set(contract ${name})
  if(IS_CONTRACT)
    set(contract ${IS_CONTRACT})
  endif()
  deltaic_contract_read(${SHADERS}/${KERNEL_FOLDER} ${contract} names push)
  string(TOLOWER ${IS_CHECKED} checked)
  foreach(variant ${variants})
    string(REGEX MATCH "^([^=]*)=(.*)$" matched ${variant})
    set(macros ${CMAKE_MATCH_2})
    string(REGEX REPLACE "_$" "" module ${name}_${CMAKE_MATCH_1})
    if(IS_NEEDS)
      list(APPEND NEEDING_MODULES ${module})
    endif()
    string(APPEND MODULES "${module} ${KERNEL_FOLDER}/${name} ${target} ${macros}\n")
    if(DELTAIC_SPIRV)
      deltaic_module_take(${module})
    else()
      deltaic_module_compile(${name} ${module} ${target} "${macros}" "${IS_NEEDS}")
    endif()
    string(TOUPPER ${module}_ capitals)
    set(bindings)
    foreach(x ${names})
      if(capitals MATCHES "^${x}_")
        set(bindings ${x})
      endif()
    endforeach()
    if(NOT bindings)
      message(FATAL_ERROR "${contract}.h has no ..._BINDINGS for ${module}")
    endif()
    string(APPEND KERNELS " \\\n  X(${module}, ${bindings}, ${push}, ${checked})")
    string(REPLACE ";" "|" formats "${FORMATS}")
    if(module MATCHES "^(.*)_(${formats})$")
      list(APPEND FAMILIES ${CMAKE_MATCH_1})
      string(TOUPPER ${CMAKE_MATCH_2} format)
      string(APPEND KERNEL_VARIANTS " \\\n  X(${CMAKE_MATCH_1}, ${format}, ${module})")
    endif()
  endforeach()
  list(APPEND CONTRACTS ${contract}.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               ${SHADERS}/${KERNEL_FOLDER}/${contract}.h)
  foreach(list SPV_HEADERS TABLE_HEADERS CONTRACTS FAMILIES KERNELS KERNEL_VARIANTS MODULES EMPTY_MODULES NEEDING_MODULES)
    set(${list} ${${list}} PARENT_SCOPE)
  endforeach()
endfunction()

# names: every X of X_BINDINGS in FOLDER/CONTRACT.h, each after those it begins with; push: the struct of ARGS().
function(deltaic_contract_read folder contract names push)
  file(READ ${folder}/${contract}.h text)
  string(REGEX MATCHALL "#define [A-Z0-9_]+_BINDINGS" found "${text}")
  list(TRANSFORM found REPLACE "#define (.*)_BINDINGS" "\\1")
  list(SORT found)
  set(${names} ${found} PARENT_SCOPE)
  while(NOT text MATCHES "\nARGS\\(([a-z0-9_]+)\\)")
    if(NOT text MATCHES "\n#include \"([a-z0-9_]+\\.h)\"")
      message(FATAL_ERROR "${contract}.h has no ARGS()")
    endif()
    file(READ ${folder}/${CMAKE_MATCH_1} text)
  endwhile()
  set(${push} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# DELTAIC_SPIRV/MODULE.spv.h, which an earlier build has made.
macro(deltaic_module_take module)
  set(header ${DELTAIC_SPIRV}/${module}.spv.h)
  if(NOT EXISTS ${header})
    message(FATAL_ERROR "DELTAIC_SPIRV has no ${module}.spv.h: ${DELTAIC_SPIRV}")
  endif()
  file(READ ${header} there LIMIT 200)
  if(there STREQUAL "const uint32_t spv_${module}[] = {0};\n")
    list(APPEND EMPTY_MODULES ${module})
  endif()
  list(APPEND SPV_HEADERS ${header})
  list(APPEND TABLE_HEADERS ${header})
endmacro()

# spv/MODULE.spv.h with the array spv_MODULE.
macro(deltaic_module_compile name module target macros needs)
  set(header ${SPV}/${module}.spv.h)
  set(empty "const uint32_t spv_${module}[] = {0};\n")
  set(there)
  if(EXISTS ${header})
    file(READ ${header} there LIMIT 200)
  endif()
  list(APPEND SPV_HEADERS ${header})
  list(APPEND TABLE_HEADERS ${header})
  if(NOT "${needs}" STREQUAL "" AND NOT KNOWS_${needs})
    list(APPEND EMPTY_MODULES ${module})
    if(NOT there STREQUAL empty)
      file(WRITE ${header} "${empty}")
    endif()
  else()
    if(there STREQUAL empty)
      file(REMOVE ${header}) # of a compiler that did not know
    endif()
    set(flags)
    if(NOT "${macros}" STREQUAL "")
      string(REPLACE "," ";-D" flags "-D${macros}")
    endif()
    add_custom_command(
      OUTPUT ${header}
      COMMAND ${DELTAIC_GLSLANG} --quiet -V -g0 --target-env ${target} -I${SHADERS}/common -I${SHADERS}/${KERNEL_FOLDER}
              ${flags} --vn spv_${module} --depfile ${header}.d -o ${header} ${SHADERS}/${KERNEL_FOLDER}/${name}.comp
      DEPENDS ${SHADERS}/${KERNEL_FOLDER}/${name}.comp
      DEPFILE ${header}.d
      COMMENT "shader ${module}"
      VERBATIM)
  endif()
endmacro()

# KNOWS_EXTENSION, asked each time, for DELTAIC_GLSLANG may be another.
if(NOT DELTAIC_SPIRV)
  find_program(DELTAIC_GLSLANG NAMES glslangValidator glslang REQUIRED)
  foreach(extension GL_KHR_cooperative_matrix GL_NV_cooperative_matrix2 GL_EXT_integer_dot_product)
    set(probe ${SPV}/${extension}.comp)
    file(WRITE ${probe} "#version 450\n#extension ${extension} : require\nvoid main() {}\n")
    execute_process(COMMAND ${DELTAIC_GLSLANG} --quiet -V --target-env vulkan1.3 -o ${probe}.spv ${probe}
                    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      set(KNOWS_${extension} OFF)
    else()
      set(KNOWS_${extension} ON)
    endif()
  endforeach()
endif()

# DELTAIC_SPIRV was made of these shaders.
function(deltaic_spirv_check)
  deltaic_shader_hash(hash ${SHADERS} "${MODULES}")
  set(made)
  if(EXISTS ${DELTAIC_SPIRV}/sources.txt)
    file(READ ${DELTAIC_SPIRV}/sources.txt made)
  endif()
  if(NOT made STREQUAL hash)
    message(FATAL_ERROR "${DELTAIC_SPIRV} was not compiled from the shaders in ${SHADERS}. "
                        "-DDELTAIC_SPIRV= compiles them, with glslang")
  endif()
endfunction()

# A build without kernels for matrix units must not come about unseen.
function(deltaic_warn_of_slow_build)
  set(why)
  if("matmul_matrix_x32_f16" IN_LIST EMPTY_MODULES)
    set(why "the shader compiler ${DELTAIC_GLSLANG} does not know GL_KHR_cooperative_matrix (glslang 13 does)")
    if(DELTAIC_SPIRV)
      set(why "they were left out of ${DELTAIC_SPIRV}")
    endif()
  else()
    file(STRINGS ${DELTAIC_VULKAN_HEADERS}/vulkan/vulkan_core.h known REGEX "define VK_KHR_cooperative_matrix " LIMIT_COUNT 1)
    if(NOT known)
      set(why "the Vulkan headers in ${DELTAIC_VULKAN_HEADERS} do not know VK_KHR_cooperative_matrix (1.3.255 do)")
    endif()
  endif()
  if(why)
    message(WARNING "This build has no kernels for matrix units (cooperative matrices): ${why}. Prompts then run 5.4 times "
                    "slower on an NVIDIA H200: 16,100 tokens/s instead of 87,109. docs/building.md says what to do.")
  elseif(EMPTY_MODULES)
    message(STATUS "The shader compiler does not know all extensions; left out: ${EMPTY_MODULES}")
  endif()
endfunction()

# deltaic_pack(OUT HEADER...): the header OUT with the packed modules of all HEADERs (pack.cmake).
function(deltaic_pack out)
  list(JOIN ARGN "\n" headers)
  file(GENERATE OUTPUT ${out}.txt CONTENT "${headers}\n")
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DLIST=${out}.txt -DOUT=${out} -P ${TOP}/shaders/pack.cmake
    DEPENDS ${ARGN} ${out}.txt ${TOP}/shaders/pack.cmake
    VERBATIM)
endfunction()

# deltaic_kernel_table(NAME): the kernels since the last table are a table: spv/NAME_list.h has its rows, NAME_modules.h what
# they name. A C file includes both (host/ops/vulkan/kernels.c, host/backward/vulkan/backward_kernels.c).
function(deltaic_kernel_table name)
  list(REMOVE_DUPLICATES FAMILIES)
  list(REMOVE_DUPLICATES CONTRACTS)
  list(TRANSFORM FAMILIES REPLACE "(.+)" " \\\\\n  X(\\1)" OUTPUT_VARIABLE families)
  list(TRANSFORM CONTRACTS REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE contracts)
  string(CONCAT families ${families})
  string(CONCAT contracts ${contracts})
  string(TOUPPER ${name} capitals)
  set(text "// Made by CMakeLists.txt.\n#define ${capitals}S(X)${KERNELS}\n")
  if(FAMILIES)
    string(APPEND text "#define ${capitals}_FAMILIES(X)${families}\n#define ${capitals}_VARIANTS(X)${KERNEL_VARIANTS}\n")
  endif()
  file(GENERATE OUTPUT ${SPV}/${name}_list.h CONTENT "${text}")
  file(GENERATE OUTPUT ${SPV}/${name}_modules.h CONTENT "// Made by CMakeLists.txt.\n${contracts}#include \"${name}_packed.h\"\n")
  deltaic_pack(${SPV}/${name}_packed.h ${TABLE_HEADERS})
  set(PACKED_HEADERS ${PACKED_HEADERS} ${SPV}/${name}_packed.h PARENT_SCOPE)
  foreach(list TABLE_HEADERS CONTRACTS FAMILIES KERNELS KERNEL_VARIANTS)
    set(${list} PARENT_SCOPE)
  endforeach()
endfunction()

# After the last table: the target deltaic_spv.
function(deltaic_kernels_end)
  if(DELTAIC_SPIRV)
    deltaic_spirv_check()
    add_custom_target(deltaic_spv DEPENDS ${PACKED_HEADERS})
  else()
    file(WRITE ${SPV}/modules.txt "${MODULES}")
    add_custom_command(
      OUTPUT ${SPV}/sources.txt
      COMMAND ${CMAKE_COMMAND} -DSHADERS=${SHADERS} -DMODULES=${SPV}/modules.txt -DOUT=${SPV}/sources.txt
              -P ${TOP}/shaders/shader_hash.cmake
      DEPENDS ${SPV_HEADERS} ${SPV}/modules.txt
      VERBATIM)
    add_custom_target(deltaic_spv DEPENDS ${SPV_HEADERS} ${PACKED_HEADERS} ${SPV}/sources.txt)
  endif()
  deltaic_warn_of_slow_build()
endfunction()
