// accurate.glsl: e^x, logarithms and 1 / sqrt x with an error of about one ulp on every device. It uses only sums,
// products and bits, and `precise` where fusing or reordering would break exactness. A device's own exp may be wrong by
// 3 + 2 |x| ulp and its log by 2^-21 near 1, and they are: a gate's softplus by 37,000 ulp on an H200. Largest errors
// (tests/runtime/test_accurate.c on lavapipe and an H200): e^x 1.0 ulp, ln x 0.9, ln (1 + e) 1.4, 1 / sqrt x 1.0; with them
// sigmoid 2.6, silu 3.0, softplus 1.7. Kernels that store f16 (stored.glsl) use the device's own functions.
#if defined(F16) || defined(X_F16)
float accurate_exp(float x) { return exp(x); }
float accurate_log(float x) { return log(x); }
float accurate_inversesqrt(float x) { return 1.0 / sqrt(x); }

// With w = 1 + e rounded, ln(w) e / (w - 1) keeps the digits of e that rounding removes (Kahan's log1p).
float accurate_log1p(float e) {
  float w = 1.0 + e;
  return e < 1e-6 ? e : log(w) * (e / (w - 1.0));
}
#else

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2; the upper part of ln 2 has 9 bits, so that its product with n is exact. The
// polynomial is Cephes's (Moshier), evaluated in pairs, since kernels of one token wait for it. 2^n is two factors,
// since it may be subnormal or overflow. NaN is detected by its bits: a compiler may assume that there is none.
float accurate_exp(float x) {
  float limited = clamp(x, -105.0, 90.0);
  float n = roundEven(limited * 1.44269504);
  precise float r = (limited - n * 0.693359375) + n * 2.12194440e-4;
  float square = r * r;
  float p = (5.0000001201e-1 + 1.6666665459e-1 * r) + square * (4.1665795894e-2 + 8.3334519073e-3 * r) +
            square * square * (1.3981999507e-3 + 1.9875691500e-4 * r);
  precise float y = 1.0 + (r + square * p);
  int whole = int(n), upper = whole >> 1;
  y = y * intBitsToFloat(upper + 127 << 23) * intBitsToFloat(whole - upper + 127 << 23);
  return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u ? x : y;
}

// ln(1 + f) + n ln 2 for f in [sqrt(1/2) - 1, sqrt 2 - 1]: f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f) (FreeBSD's
// log1pf, Sun Microsystems 1993). Only a twentieth of the quotient's error reaches the result.
float accurate_log_of(float f, float n) {
  float s = f / (2.0 + f), z = s * s, w = z * z;
  float R = z * (0.66666662693 + w * 0.28498786688) + w * (0.40000972152 + w * 0.24279078841);
  precise float half_square = 0.5 * f * f;
  precise float y = n * 0.693145751953125 - ((half_square - (s * (half_square + R) + n * 1.42860682e-6)) - f);
  return y;
}

// ln(1 + e) for e in [0, 1].
float accurate_log1p(float e) {
  return e < 0.41421356 ? accurate_log_of(e, 0.0) : accurate_log_of(0.5 * e - 0.5, 1.0);
}

// ln x of a positive normal number.
float accurate_log(float x) {
  int bits = floatBitsToInt(x) - 0x3f3504f3, n = bits >> 23; // 0x3f3504f3 is sqrt(1/2)
  return accurate_log_of(intBitsToFloat((bits & 0x7fffff) + 0x3f3504f3) - 1.0, float(n));
}

// 1 / sqrt x, x > 0: a norm's factor, whose error a whole row shares. A Newton step with the residual 1 - x r^2, which
// has double precision where fma() is fused and does no harm where it is not. 0 for infinity.
float accurate_inversesqrt(float x) {
  float r = inversesqrt(x);
  precise float product = x * r, rest = fma(x, r, -product);
  precise float residual = fma(-product, r, 1.0) - rest * r;
  precise float y = r + 0.5 * r * residual;
  return abs(residual) < 1.0 ? y : r;
}
#endif
