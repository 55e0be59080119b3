// rounded.glsl: rounds to f16, to the nearest, half to even: packHalf2x16 alone may truncate. What lies outside f16's
// range becomes infinite, so that it is found.
float nearest(float v) {
  uint bits = floatBitsToUint(v);
  float r = uintBitsToFloat(bits + 0xfffu + (bits >> 13 & 1u) & 0xffffe000u);
  return abs(v) < 65520.0 ? r : v * 1e38; // also keeps a NaN
}
uint rounded(float low, float high) { return packHalf2x16(vec2(nearest(low), nearest(high))); }
uvec2 rounded4(vec4 v) { return uvec2(rounded(v.x, v.y), rounded(v.z, v.w)); }
