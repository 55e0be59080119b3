// rounded.glsl: rounds to f16. What lies outside its range becomes infinite, whatever the device's rounding is, so that
// it is found.
float with_range(float v) { return abs(v) > 65504.0 ? v * 1e38 : v; }
uint rounded(float low, float high) { return packHalf2x16(vec2(with_range(low), with_range(high))); }
