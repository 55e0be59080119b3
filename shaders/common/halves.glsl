// halves.glsl: converts eight stored weights (weights.glsl) to f16. A bf16 weight between 2^-17 and 65280 stays exact;
// smaller ones change by at most 3e-8. Weights of blocks are rounded. Matrices with values beyond the range of f16 use
// other kernels (tensor.h, wide).
#if defined(W_F16)
uvec4 halves(PACKED8 w) { return w; }
#elif defined(W_BF16) || defined(W_BLOCKS)
uvec4 halves(PACKED8 w) {
  vec4 low, high;
  widen8(w, low, high);
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}
#else
#error "W_F16, W_BF16 or W_BLOCKS"
#endif
