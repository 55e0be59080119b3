# For CMake: the compiler of mingw-w64, and what tests/windows/libraries has built.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_Fortran_COMPILER x86_64-w64-mingw32-gfortran-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# Printing as in C11, whose formats this compiler does not check. The assembler replaces aligned moves of vectors, as this compiler does not align the stack for them
# (gcc.gnu.org/PR54412). The libraries are static.
set(CMAKE_C_FLAGS_INIT "-D__USE_MINGW_ANSI_STDIO=1 -D_WIN32_WINNT=0x0A00 -DPCRE2_STATIC -DUTF8PROC_STATIC -Wno-format -Wa,-muse-unaligned-vector-move")
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -static)
set(CMAKE_FIND_ROOT_PATH ${DELTAIC_WINDOWS_PREFIX})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DELTAIC_WINDOWS_PREFIX)
set(ENV{PKG_CONFIG_LIBDIR} ${DELTAIC_WINDOWS_PREFIX}/lib/pkgconfig)
