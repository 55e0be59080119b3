// weights.glsl: the only place that knows how weights are stored. Before including it, define WEIGHTS_BINDING,
// WEIGHTS_SPEC_FORMAT, and one of W_F32, W_F16, W_BF16, W_BLOCKS for the whole module. Rows start at multiples of 8
// elements and of a tile, and end with zeros, so a group of 8 is always aligned and inside the buffer. PACKED8 holds a
// group as it was loaded.
layout(constant_id = WEIGHTS_SPEC_FORMAT) const uint FORMAT = 0; // dtype of the weights (format.h); with W_BLOCKS
#if defined(W_F32)
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { vec4 weights[]; };
#define PACKED8 mat2x4
#define PACKED8_ZERO mat2x4(0.0)

PACKED8 packed8(uint group) { return PACKED8(weights[2 * group], weights[2 * group + 1]); }

void widen8(PACKED8 w, out vec4 low, out vec4 high) {
  low = w[0];
  high = w[1];
}
#elif defined(W_BLOCKS)
#include "blocks.glsl"
#else
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { uvec4 weights[]; };
#define PACKED8 uvec4
#define PACKED8_ZERO uvec4(0)

PACKED8 packed8(uint group) { return weights[group]; }

#if defined(W_F16)
vec4 widen(uvec2 w) { return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)); }
#elif defined(W_BF16)
// A bfloat16 is the upper half of the f32 with the same value.
vec4 widen(uvec2 w) {
  return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
}
#else
#error "W_F32, W_F16, W_BF16 or W_BLOCKS"
#endif

void widen8(PACKED8 w, out vec4 low, out vec4 high) {
  low = widen(w.xy);
  high = widen(w.zw);
}
#endif

void weight8(uint group, out vec4 low, out vec4 high) { widen8(packed8(group), low, high); }
