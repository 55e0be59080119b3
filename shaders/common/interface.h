// interface.h: macros that let one header be the contract of a kernel in GLSL and in C.
//
// The contract header x.h of the kernel x.comp defines: X_BINDINGS and a number per binding (with shape and dtype in a
// comment); X_SPEC_..., the ids of the specialization constants, and X_SPECS, their count; and `struct x_args`, the
// push constants. That struct has only 4-byte scalars, or structs of these as STRUCT(name), so that std430 and C agree.
// ARGS(x_args) ends the header: in GLSL it declares the push constant block `args`, in C it checks the size. Counts are
// in elements, never bytes.
//
// A kernel that accesses a buffer in several units declares one block for each, all with the buffer's binding: x[] and
// x4[] are elements and vectors of four of the same tensor. A view that is written is `restrict` only if the pipeline
// uses no other view of that buffer.
#ifndef INTERFACE_H
#define INTERFACE_H

#ifdef GL_core_profile
#define IS_GLSL 1
#elif defined(VULKAN)
#define IS_GLSL 1
#endif

#ifdef IS_GLSL
#define STRUCT(type) type
#define ARGS(type)                                                                                                     \
  layout(push_constant) uniform args_block { type args; };
#else
#include <assert.h>
#include <stdint.h>
typedef uint32_t uint;
#define STRUCT(type) struct type
#define ARGS(type) static_assert(sizeof(struct type) <= 128, "push constants: 128 bytes are all that Vulkan promises");
#endif
#endif
