// delta_matrix_load.glsl: eight neighbouring numbers of qkv as f16 in 16 bytes. The blocks qkv, qkv4, qkv8 are one
// tensor; with ACT_F16 it is f16, and four and eight are uvec2 and uvec4, else f32.
#ifdef ACT_F16
#define NUMBER float16_t
#define FOUR uvec2
#define EIGHT uvec4
uvec2 halves(uvec2 x) { return x; }
uvec4 halves(uvec4 x) { return x; }
#else
struct eight {
  vec4 low, high;
};
#define NUMBER float
#define FOUR vec4
#define EIGHT eight
uvec2 halves(vec4 x) { return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw)); }
uvec4 halves(eight x) { return uvec4(halves(x.low), halves(x.high)); }
#endif
#ifdef ACT_F16
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv_block { uint qkv2[]; }; // two numbers
#else
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv_block { float qkv[]; };
#endif
layout(set = 0, binding = QKV_BINDING + 1) restrict readonly buffer qkv4_block { FOUR qkv4[]; };
layout(set = 0, binding = QKV_BINDING + 2) restrict readonly buffer qkv8_block { EIGHT qkv8[]; };

// Numbers at ... at + 7, of which `count` exist: at least one, and the rest are zeros. unit divides at and count.
// Selected, not skipped: branches would keep the loads from being in flight together.
uvec4 load8(uint at, uint count, uint unit) {
  if (unit == 8) return halves(qkv8[at / 8]);
  if (unit == 4) {
    uvec2 high = halves(qkv4[at / 4 + (count > 4 ? 1 : 0)]);
    return uvec4(halves(qkv4[at / 4]), count > 4 ? high : uvec2(0));
  }
  uvec4 x;
#ifdef ACT_F16
  uint words[5], last = (at + min(count, 8) - 1) / 2; // of two numbers each, the first where `at` is even
  [[unroll]] for (uint i = 0; i < 5; i++) words[i] = qkv2[min(at / 2 + i, last)];
  [[unroll]] for (uint i = 0; i < 4; i++) {
    uint two = (at & 1) == 0 ? words[i] : words[i] >> 16 | words[i + 1] << 16;
    x[i] = 2 * i + 1 < count ? two : 2 * i < count ? two & 0xffff : 0;
  }
#else
  [[unroll]] for (uint i = 0; i < 4; i++) {
    vec2 two = vec2(qkv[at + min(2 * i, count - 1)], qkv[at + min(2 * i + 1, count - 1)]);
    x[i] = packHalf2x16(vec2(2 * i < count ? two.x : 0.0, 2 * i + 1 < count ? two.y : 0.0));
  }
#endif
  return x;
}

// The same from column d of a row of n numbers; zeros from n on.
uvec4 load8_of(uint row, uint d, uint n, uint unit, bool edges) {
  if (!edges) return load8(row + d, 8, unit);
  uvec4 x = load8(row + (d < n ? d : 0), d < n ? n - d : 8, unit);
  return d < n ? x : uvec4(0);
}
