// The encoders of stored formats, against their decoders: errors, scales, and what is at the edges.
#include "format_encode.h" // before cmocka, whose macro fail() would hide ours

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64 * 256 };

static float uniform(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return ((float)(*state >> 40) + 0.5f) / (float)(1 << 24);
}

static float normal(uint64_t *s) { return sqrtf(-2 * logf(uniform(s))) * cosf(6.2831853f * uniform(s)); }

// Weights as they are; with another size every 32; on one side of zero; a few that are much larger; few values.
enum kind { NORMAL, SIZES, POSITIVE, TAILS, FEW, KINDS };
static const char *const kinds[] = {"normal", "sizes", "positive", "tails", "few"};

static void fill(enum kind kind, float *x) {
  uint64_t s = 7 + (uint64_t)kind;
  float size = 1;
  for (int i = 0; i < N; i++) {
    const float v = 0.02f * normal(&s);
    if (i % 32 == 0) size = 0.1f + uniform(&s);
    x[i] = kind == SIZES ? v * size : kind == POSITIVE ? fabsf(v) : kind == FEW ? 0.02f * roundf(50 * v) : v;
    if (kind == TAILS && uniform(&s) < 0.01f) x[i] *= 10;
  }
}

static double square_error(const float *x, const float *y) {
  double sum = 0;
  for (int i = 0; i < N; i++) sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
  return sum;
}

// ---------------------------------------------------------------- the plain way: scales from the largest, nearest
// numbers

static float f16(float x) { return f16_to_f32(f32_to_f16(x)); }

static float largest_of(const float *x, int n) {
  float largest = 0;
  for (int i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
  return largest;
}

static float snap(float v, float least, float most) { return fminf(fmaxf(nearbyintf(v), least), most); }

static const float iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static float snap_iq4(float v) {
  float best = iq4[0];
  for (int i = 1; i < 16; i++)
    if (fabsf(v - iq4[i]) < fabsf(v - best)) best = iq4[i];
  return best;
}

// least 0: the table.
static void plain_group(const float *x, int n, float scale, float least, float *y) {
  for (int i = 0; i < n; i++) {
    const float v = scale ? x[i] / scale : 0;
    y[i] = scale * (least ? snap(v, least, least == -127 ? 127 : -least - 1) : snap_iq4(v));
  }
}

static void plain_scales(const float *x, int group, float least, float scales, float *y) {
  const float first = least ? least : -127;
  for (int b = 0; b < N; b += 256) {
    const float d = f16(largest_of(x + b, 256) / first / -scales);
    for (int i = b; i < b + 256; i += group) {
      const float q = d ? snap(largest_of(x + i, group) / first / d, -scales, scales - 1) : 0;
      plain_group(x + i, group, d * q, least, y + i);
    }
  }
}

static void plain_lines(const float *x, float most, float *y) {
  for (int b = 0; b < N; b += 256) {
    float low[8] = {0}, high[8] = {0}, scale = 0, less = 0;
    for (int i = 0; i < 256; i++) {
      low[i / 32] = fminf(low[i / 32], x[b + i]);
      high[i / 32] = fmaxf(high[i / 32], x[b + i]);
    }
    for (int j = 0; j < 8; j++) {
      scale = fmaxf(scale, (high[j] - low[j]) / most);
      less = fmaxf(less, -low[j]);
    }
    scale = f16(scale / 63);
    less = f16(less / 63);
    for (int i = 0; i < 256; i++) {
      const int j = i / 32;
      const float s = scale ? scale * snap((high[j] - low[j]) / most / scale, 0, 63) : 0;
      const float m = less ? less * snap(-low[j] / less, 0, 63) : 0;
      y[b + i] = s * (s ? snap((x[b + i] + m) / s, 0, most) : 0) - m;
    }
  }
}

static void plain(enum dtype d, const float *x, float *y) {
  const float least = d == DTYPE_Q8_0 ? -127 : d == DTYPE_Q4_0 ? -8 : d == DTYPE_Q5_0 ? -16 : d == DTYPE_Q6_K ? -32 : 0;
  if (d == DTYPE_Q6_K) {
    plain_scales(x, 16, least, 128, y);
  } else if (d == DTYPE_IQ4_XS) {
    plain_scales(x, 32, least, 32, y);
  } else if (d == DTYPE_Q4_K || d == DTYPE_Q5_K) {
    plain_lines(x, d == DTYPE_Q4_K ? 15 : 31, y);
  } else {
    for (int i = 0; i < N; i += 32)
      plain_group(x + i, 32, f16(largest_of(x + i, 32) / (least ? least : -127)), least, y + i);
  }
}

// ---------------------------------------------------------------- tests

static void there_and_back(enum dtype d, const float *x, uint64_t n, char *blocks, float *y) {
  assert_true(dtype_encodes(d));
  dtype_encode(d, x, n, blocks);
  formats[d].decode(blocks, n / formats[d].elements, y);
}

static char blocks[4 * N];
static float x[N], y[N], z[N];

// Bounds of the root mean square error over that of the numbers, for normal ones: 1.02 to 1.25 times what was found
// (docs/quantize.md).
static void errors_are_those_of_the_format(void **state) {
  static const double bounds[DTYPE_I32] = {
      [DTYPE_F16] = 3e-4,   [DTYPE_BF16] = 2e-3,  [DTYPE_Q8_0] = 0.006, [DTYPE_Q4_0] = 0.09,   [DTYPE_Q5_0] = 0.045,
      [DTYPE_Q4_K] = 0.076, [DTYPE_Q5_K] = 0.038, [DTYPE_Q6_K] = 0.019, [DTYPE_IQ4_NL] = 0.08, [DTYPE_IQ4_XS] = 0.08};
  fill(NORMAL, x);
  double square = 0;
  for (int i = 0; i < N; i++) square += (double)x[i] * (double)x[i];
  for (enum dtype d = DTYPE_F32; d < DTYPE_TILES; d++) {
    there_and_back(d, x, N, blocks, y);
    const double error = sqrt(square_error(x, y) / square);
    if (!(error <= bounds[d])) fail_msg("%s: the error is %g, more than %g", dtype_name(d), error, bounds[d]);
  }
}

static void errors_are_at_most_those_of_the_plain_way(void **state) {
  for (enum kind k = 0; k < KINDS; k++) {
    fill(k, x);
    for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++) {
      there_and_back(d, x, N, blocks, y);
      plain(d, x, z);
      const double found = square_error(x, y), other = square_error(x, z);
      if (!(found <= other)) fail_msg("%s, %s: %g, the plain way %g", dtype_name(d), kinds[k], found, other);
    }
  }
}

static void a_power_of_two_is_only_in_the_scales(void **state) {
  fill(TAILS, x);
  for (int i = 0; i < N; i++) x[i] *= 64; // so that no scale is a denormal number of f16
  for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++)
    for (float factor = 0x1p-3f; factor <= 0x1p6f; factor *= 8) {
      there_and_back(d, x, N, blocks, y);
      for (int i = 0; i < N; i++) z[i] = x[i] * factor;
      there_and_back(d, z, N, blocks, z);
      for (int i = 0; i < N; i++)
        if (z[i] != y[i] * factor) fail_msg("%s: %g, not %g", dtype_name(d), (double)z[i], (double)(y[i] * factor));
    }
}

static void minus_is_minus(void **state) {
  fill(NORMAL, x);
  for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++) {
    if (d == DTYPE_Q4_K || d == DTYPE_Q5_K) continue; // their minima are of one sign
    there_and_back(d, x, N, blocks, y);
    for (int i = 0; i < N; i++) x[i] = -x[i];
    there_and_back(d, x, N, blocks, z);
    const double a = 0.9999, error = square_error(x, z);
    for (int i = 0; i < N; i++) y[i] = -y[i];
    const double other = square_error(x, y);
    assert_true(error > a * other * 0.99 && other > a * error * 0.99);
  }
}

static void zeros_stay_zeros(void **state) {
  memset(x, 0, sizeof x);
  for (enum dtype d = DTYPE_F32; d < DTYPE_TILES; d++) {
    there_and_back(d, x, N, blocks, y);
    for (int i = 0; i < N; i++) assert_true(y[i] == 0);
  }
}

static void blocks_stand_alone(void **state) {
  fill(TAILS, x);
  for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++) {
    char some[512];
    dtype_encode(d, x, N, blocks);
    dtype_encode(d, x + 7 * BLOCK_MOST, BLOCK_MOST, some);
    const uint64_t at = 7 * BLOCK_MOST / formats[d].elements * formats[d].bytes;
    assert_memory_equal(blocks + at, some, BLOCK_MOST / formats[d].elements * formats[d].bytes);
  }
}

// The largest numbers, the smallest, one number among zeros, all equal: finite, and no element further off than the
// largest number.
static void edges_stay_finite(void **state) {
  static const float sizes[] = {ENCODE_MOST, 1, 1e-5f, 1e-8f, 1e-20f, 1e-40f};
  for (enum dtype d = DTYPE_F32; d < DTYPE_TILES; d++)
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
      for (int shape = 0; shape < 4; shape++) {
        uint64_t s = 3;
        for (int i = 0; i < BLOCK_MOST; i++)
          x[i] = shape == 0   ? sizes[k]
                 : shape == 1 ? -sizes[k]
                 : shape == 2 ? (i == 37 ? sizes[k] : 0)
                              : sizes[k] * (2 * uniform(&s) - 1);
        there_and_back(d, x, BLOCK_MOST, blocks, y);
        for (int i = 0; i < BLOCK_MOST; i++)
          if (!isfinite(y[i]) || fabsf(y[i] - x[i]) > sizes[k])
            fail_msg("%s: %g is %g (shape %d)", dtype_name(d), (double)x[i], (double)y[i], shape);
      }
}

// Formats whose grids have these numbers give them back, but for the rounding of scales.
static void what_a_format_has_is_kept(void **state) {
  for (enum dtype d = DTYPE_F32; d < DTYPE_TILES; d++) {
    uint64_t s = 11;
    if (d == DTYPE_Q8_0 || d == DTYPE_Q6_K) continue;
    for (int i = 0; i < BLOCK_MOST; i++) {
      const float q = i % 16 == 0 ? 15 : i % 16 == 1 ? 0 : floorf(16 * uniform(&s));
      const float five = d == DTYPE_Q5_0 || d == DTYPE_Q5_K ? 2 : 1;
      x[i] = (d == DTYPE_Q4_K || d == DTYPE_Q5_K       ? five * q
              : d == DTYPE_IQ4_NL || d == DTYPE_IQ4_XS ? iq4[(int)q]
                                                       : five * (q - 8)) /
             16;
    }
    if (d == DTYPE_Q5_K) x[0] += 1.0f / 16; // 31: the end of the grid
    there_and_back(d, x, BLOCK_MOST, blocks, y);
    for (int i = 0; i < BLOCK_MOST; i++)
      if (fabsf(x[i] - y[i]) > 2e-3f * fmaxf(1, fabsf(x[i])))
        fail_msg("%s: %g is %g", dtype_name(d), (double)x[i], (double)y[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_are_those_of_the_format),
      cmocka_unit_test(errors_are_at_most_those_of_the_plain_way),
      cmocka_unit_test(a_power_of_two_is_only_in_the_scales),
      cmocka_unit_test(minus_is_minus),
      cmocka_unit_test(zeros_stay_zeros),
      cmocka_unit_test(blocks_stand_alone),
      cmocka_unit_test(edges_stay_finite),
      cmocka_unit_test(what_a_format_has_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
