# install: what cmake --install and cpack take: libraries, headers, and what find_package() and pkg-config read.
set(CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/deltaic)

# deltaic_install(NAME HEADER ABOUT LINKED USES REQUIRES): USES: packages of pkg-config whose headers or functions a user
# of the library sees; REQUIRES: those that it needs itself; LINKED: what the linker needs besides. A static library is
# linked with what it needs, so pkg-config names that without --static.
function(deltaic_install name header about linked uses requires)
  # The package may be moved, except where the folder of libraries is an absolute path.
  set(libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(prefix "${CMAKE_INSTALL_PREFIX}")
    set(libdir "${CMAKE_INSTALL_LIBDIR}")
  else()
    file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    set(prefix "\${pcfiledir}/${up}")
  endif()
  if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(includedir "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  if(BUILD_SHARED_LIBS)
    set(needs "\nRequires: ${uses}") # Requires.private would ask for headers that nobody includes
  else()
    set(needs "${linked}\nRequires: ${uses} ${requires}")
  endif()
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc "prefix=${prefix}
includedir=${includedir}
libdir=${libdir}
Name: ${name}
Description: ${about}
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -l${name} ${needs}
")
  install(TARGETS ${name} EXPORT ${name}Targets)
  install(EXPORT ${name}Targets NAMESPACE deltaic:: DESTINATION ${CONFIG_FOLDER})
  install(FILES ${TOP}/include/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

include(CMakePackageConfigHelpers)
set(STATIC_PACKAGE ON)
if(BUILD_SHARED_LIBS)
  set(STATIC_PACKAGE OFF)
endif()
configure_file(${TOP}/include/package/deltaicConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/deltaicConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/deltaicConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/deltaicConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/deltaicConfigVersion.cmake
        DESTINATION ${CONFIG_FOLDER})

set(SYSTEM_LIBRARIES -lpthread)
foreach(library ${CMAKE_DL_LIBS}) # none on Windows
  string(APPEND SYSTEM_LIBRARIES " -l${library}")
endforeach()
deltaic_install(deltaic deltaic.h "runs delta-rule language models on any GPU through Vulkan" "${SYSTEM_LIBRARIES} -lm" ""
                "jansson libpcre2-8 libutf8proc")
if(DELTAIC_PRUNER)
  deltaic_install(deltaic_prune deltaic_prune.h "shrinks the states of delta-rule language models" "-lm" deltaic
                  "jansson lapacke openblas")
  install(FILES ${TOP}/include/deltaic_tune.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(DELTAIC_PROGRAM)
  install(TARGETS deltaic_program)
endif()
if(DELTAIC_PROGRAM AND DELTAIC_PRUNER)
  install(TARGETS deltaic_commands LIBRARY DESTINATION ${PLUGINS})
endif()
if(DELTAIC_HTTP_FOUND)
  install(TARGETS deltaic_serve LIBRARY DESTINATION ${PLUGINS})
endif()
if(MANUAL)
  install(FILES ${MANUAL} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${COMPLETION} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME deltaic)
endif()
