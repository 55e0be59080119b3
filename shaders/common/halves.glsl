// halves.glsl: converts eight stored weights (weights.glsl) to f16. A bf16 weight between 2^-17 and 65280 stays exact;
// smaller ones change by at most 3e-8. Weights of blocks are rounded, and in
// sixteens also their factor and addend. Matrices with values beyond the range of f16 use
// other kernels (tensor.h, wide).
//
// STAGED: what an invocation converts at once, STAGED_EIGHTS groups of 8.
#ifdef W_BLOCKS
#define STAGED_EIGHTS 2
#define STAGED PACKED16
#define STAGED_ZERO PACKED16_ZERO
#define STAGED_AT packed16
#else
#define STAGED_EIGHTS 1
#define STAGED PACKED8
#define STAGED_ZERO PACKED8_ZERO
#define STAGED_AT packed8
#endif

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

#ifdef W_BLOCKS
// 0x4400 + n are the bits of 4 + n / 256 in f16, up to n = 1023. So an integer over 256 is exact, and so is 256 times a
// factor that f16 has not as a normal number. LESS: what is subtracted, twice; 128 makes signed bytes of unsigned ones.
const bool SIGNED = EIGHT || IQ4;
const uint LESS = 0x44004400 + 0x10001 * (FORMAT == FORMAT_Q4_0   ? 8
                                          : FORMAT == FORMAT_Q5_0 ? 16
                                          : SIX                   ? 32
                                          : SIGNED                ? 128
                                                                  : 0);
const float MOST_FACTOR = 255.0; // times 256, f16 has it

// Four bytes, times a factor that is rounded to f16, plus an addend: one more rounding.
uvec2 halves4(uint bytes, f16vec2 factor, f16vec2 addend) {
  if (SIGNED) bytes ^= 0x80808080;
  f16vec2 even = unpackFloat2x16(bytes & 0x00ff00ff | 0x44004400) - unpackFloat2x16(LESS);
  f16vec2 odd = unpackFloat2x16(bytes >> 8 & 0x00ff00ff | 0x44004400) - unpackFloat2x16(LESS);
  even = fma(even, factor, addend);
  odd = fma(odd, factor, addend);
  return uvec2(packFloat2x16(f16vec2(even.x, odd.x)), packFloat2x16(f16vec2(even.y, odd.y)));
}

void staged_halves(PACKED16 w, out uvec4 first, out uvec4 second) {
  vec2 scale = decode_scales(w.s, w.half_);
  uvec2 out_[4];
  if (abs(scale.x) > MOST_FACTOR) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      vec4 v = widen(integers(w.low[i], w.high, 4 * w.half_ + i)) * scale.x + scale.y;
      out_[i] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
    }
  } else {
    f16vec2 factor = f16vec2(float16_t(256.0 * scale.x)), addend = f16vec2(IS_K ? float16_t(scale.y) : float16_t(0.0));
    [[unroll]] for (uint i = 0; i < 4; i++) out_[i] =
        halves4(integers(w.low[i], w.high, 4 * w.half_ + i), factor, addend);
  }
  first = uvec4(out_[0], out_[1]);
  second = uvec4(out_[2], out_[3]);
}
#endif
