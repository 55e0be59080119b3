// volk: compiles volk, which finds the Vulkan loader's entry points at run time.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wcast-function-type"
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#define VOLK_IMPLEMENTATION
#include <volk.h>
