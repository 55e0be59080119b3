// delta_matrix_load.glsl: reads eight adjacent elements of qkv as f16 in 16 bytes. qkv, qkv4 and qkv8 are views of one
// tensor. With ACT_F16 it is f16, and vectors of four and eight are uvec2 and uvec4; else f32.
#include "delta_matrix_number.glsl"
#ifdef ACT_F16
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv_block { uint qkv2[]; }; // two elements
#else
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv_block { float qkv[]; };
#endif
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv4_block { FOUR qkv4[]; };
layout(set = 0, binding = QKV_BINDING) restrict readonly buffer qkv8_block { EIGHT qkv8[]; };

// Elements at ... at + 7, of which `count` exist: at least one; the rest become zeros. unit divides at and count. In
// two steps, so that a fetch ahead is not waited for: fetch8() only loads, finish8() shifts and selects.
struct fetched8 {
  uvec4 x;
  uint next; // with single elements: the word after x
};

fetched8 fetch8(uint at, uint count, uint unit) {
  fetched8 f = fetched8(uvec4(0), 0);
  if (unit == 8) {
    f.x = halves(qkv8[at / 8]);
  } else if (unit == 4) {
    f.x = uvec4(halves(qkv4[at / 4]), halves(qkv4[at / 4 + (count > 4 ? 1 : 0)]));
  } else {
#ifdef ACT_F16
    uint last = (at + min(count, 8) - 1) / 2; // word of two elements
    [[unroll]] for (uint i = 0; i < 4; i++) f.x[i] = qkv2[min(at / 2 + i, last)];
    f.next = qkv2[min(at / 2 + 4, last)];
#else
    [[unroll]] for (uint i = 0; i < 4; i++)
      f.x[i] = packHalf2x16(vec2(qkv[at + min(2 * i, count - 1)], qkv[at + min(2 * i + 1, count - 1)]));
#endif
  }
  return f;
}

uvec4 finish8(fetched8 f, uint at, uint count, uint unit) {
  if (unit == 8) return f.x;
  if (unit == 4) return uvec4(f.x.xy, count > 4 ? f.x.zw : uvec2(0));
#ifdef ACT_F16
  f.x = (at & 1) == 0 ? f.x : f.x >> 16 | uvec4(f.x.yzw, f.next) << 16;
#endif
  [[unroll]] for (uint i = 0; i < 4; i++) f.x[i] = 2 * i + 1 < count ? f.x[i] : 2 * i < count ? f.x[i] & 0xffff : 0;
  return f.x;
}

// The same from column d of a row of n elements; zeros from n on.
fetched8 fetch8_of(uint row, uint d, uint n, uint unit, bool edges) {
  if (!edges) return fetch8(row + d, 8, unit);
  return fetch8(row + (d < n ? d : 0), d < n ? n - d : n, unit);
}

uvec4 finish8_of(fetched8 f, uint row, uint d, uint n, uint unit, bool edges) {
  if (!edges) return finish8(f, row + d, 8, unit);
  uvec4 x = finish8(f, row + d, n - d, unit);
  return d < n ? x : uvec4(0);
}
