// weights.glsl: the only place that knows how weights are stored. Define WEIGHTS_BINDING before including it and one of
// W_F32, W_F16, W_BF16 for the whole module. Rows start at multiples of 8 elements with zeros after their last one, so
// a group of 8 is always aligned and inside the buffer.
#if defined(W_F32)
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { vec4 weights[]; };

void weight8(uint group, out vec4 low, out vec4 high) {
  low = weights[2 * group];
  high = weights[2 * group + 1];
}
#else
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { uvec4 weights[]; };

#if defined(W_F16)
vec4 widen(uvec2 w) { return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)); }
#elif defined(W_BF16)
// A bfloat16 is the upper half of the f32 with the same value.
vec4 widen(uvec2 w) {
  return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
}
#else
#error "W_F32, W_F16 or W_BF16"
#endif

void weight8(uint group, out vec4 low, out vec4 high) {
  uvec4 w = weights[group];
  low = widen(w.xy);
  high = widen(w.zw);
}
#endif
