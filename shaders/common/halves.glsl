// halves.glsl: converts eight stored weights, W_F16 or W_BF16, to f16. A bf16 weight between 2^-17 and 65280 stays
// exact; smaller ones change by at most 3e-8. Matrices with larger ones use other kernels (tensor.h, wide).
#if defined(W_F16)
uvec4 halves(uvec4 w) { return w; }
#elif defined(W_BF16)
uint pair(uint w) { return packHalf2x16(vec2(uintBitsToFloat(w << 16), uintBitsToFloat(w & 0xffff0000u))); }
uvec4 halves(uvec4 w) { return uvec4(pair(w.x), pair(w.y), pair(w.z), pair(w.w)); }
#else
#error "W_F16 or W_BF16"
#endif
