// stored.glsl: the storage format of a kernel's activations: f32, or with -DF16 f16, clamped to its range; with
// -DROUNDED too, to the nearest, and infinite outside the range. Include it first, since extensions must come before
// everything else.
#ifdef F16
#extension GL_EXT_shader_16bit_storage : require
#define stored float16_t
#define stored4 uvec2 // four elements at a multiple of four
#ifdef ROUNDED
#include "rounded.glsl"
#define STORED(value) float16_t(nearest(value))
#define STORED4(value) rounded4(value)
#else
#define STORED(value) float16_t(clamp(value, -65504.0, 65504.0))
#define STORED4(value) stored_four(clamp(value, -65504.0, 65504.0))
uvec2 stored_four(vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
#endif
#define LOADED4(v) vec4(unpackHalf2x16((v).x), unpackHalf2x16((v).y))
#else
#define stored float
#define STORED(value) (value)
#define stored4 vec4
#define STORED4(value) (value)
#define LOADED4(v) (v)
#endif
