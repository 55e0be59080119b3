// interface.h: what lets one header be the contract of a kernel in GLSL and in C.
//
// A contract header x.h defines, for the kernel x.comp: X_BINDINGS and a number per binding (with shape and dtype in a
// comment), X_SPEC_... ids of specialization constants with X_SPECS their count, and `struct x_args`, the push
// constants, of 4-byte scalars only, or of structs of these, STRUCT(name) (std430 and C then agree), closed by
// ARGS(x_args): in GLSL the push constant block named `args`, in C a check of its size. Count in elements, never bytes.
//
// A kernel that reads or writes a buffer in more than one unit declares one block for each, all with the buffer's
// binding: x[] and x4[] are numbers and fours of the same tensor. A view that is written is `restrict` only where a
// pipeline uses no other view of that buffer.
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
