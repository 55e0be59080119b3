# library: makes a library of rooms that shows nothing but the names of include/.
#
# All is compiled with hidden visibility, so a shared library exports what DELTAIC_API marks. An archive has no such
# border: where the linker and objcopy can, its files become one object whose other names are local, so that none can
# clash with a program's (DELTAIC_LOCALIZE). Elsewhere it is a plain archive.
set(localize OFF)
if(CMAKE_EXECUTABLE_FORMAT STREQUAL ELF AND CMAKE_LINKER AND CMAKE_OBJCOPY)
  set(localize ON)
endif()
option(DELTAIC_LOCALIZE "Hide the inner names of static libraries (ld -r, objcopy)" ${localize})
get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)

# deltaic_library(NAME ROOMS ROOM... NEEDS LIBRARY...): libNAME, shared or static as BUILD_SHARED_LIBS says; deltaic::NAME.
function(deltaic_library name)
  cmake_parse_arguments(PARSE_ARGV 1 IS "" "" "ROOMS;NEEDS")
  list(TRANSFORM IS_ROOMS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  if(BUILD_SHARED_LIBS)
    add_library(${name} SHARED ${objects})
    # Before 1.0 the second number says what fits together (deltaic.h).
    set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  elseif(DELTAIC_LOCALIZE AND NOT multi_config)
    set(whole ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(
      OUTPUT ${whole}
      COMMAND ${CMAKE_LINKER} -r -o ${whole} ${objects}
      COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=deltaic_*" ${whole}
      DEPENDS deltaic_inside # is of the same objects; as files of other targets make would not know how to make them
      COMMAND_EXPAND_LISTS
      VERBATIM)
    add_library(${name} STATIC ${whole})
  else()
    add_library(${name} STATIC ${objects})
  endif()
  add_library(deltaic::${name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${TOP}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${name} PRIVATE ${IS_NEEDS})
endfunction()
