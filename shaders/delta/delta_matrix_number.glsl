// delta_matrix_number.glsl: the elements of qkv and o in memory, f16 with ACT_F16, else f32; single, by four and by
// eight.
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
