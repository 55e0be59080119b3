// mamba2_load.glsl: reads x, B or C of a token in vectors of four. Needs xBC, xBC4 and ALIGNED.

// Elements d ... d + 3 of the n at i; zeros past the end.
vec4 load4(uint i, uint d, uint n) {
  if (d >= n) return vec4(0.0);
  if (ALIGNED != 0) return xBC4[(i + d) / 4];
  uint left = n - d;
  i += d;
  return vec4(xBC[i], left > 1 ? xBC[i + 1] : 0.0, left > 2 ? xBC[i + 2] : 0.0, left > 3 ? xBC[i + 3] : 0.0);
}
