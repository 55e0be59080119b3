// volk: the Vulkan loader's entry points, found at run time. Compiled here and nowhere else.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wcast-function-type"
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#define VOLK_IMPLEMENTATION
#include <volk.h>
