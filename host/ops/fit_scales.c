// fit_scales: see fit_scales.h. For a scale, the best g are the nearest ones. For given g, the best scale is
// sum(x g) / sum(g^2). The search starts from scales that put the largest number near an end of the grid, takes the g
// of each, then the best scale of these g, and keeps the scale of the least error. Formats with a scale a group round
// those to whole numbers times the scale of the block; the neighbours of a rounded scale are tried too.
#include "fit_scales.h"

#include <math.h>

// n is a constant in callers, which makes loops vector code.
#define INLINE inline __attribute__((always_inline))

enum { TRIES = 6 };

static float f16(float x) { return f16_to_f32(f32_to_f16(x)); }

// A block's scale as it is stored: 0 only if it is 0.
static float block_scale(float x) { return f16(x) == 0 && x != 0 ? copysignf(0x1p-24f, x) : f16(x); }

// The grid points nearest to (x + less) / scale, n <= GROUP_MOST. This loop and those of sums are vector code.
static INLINE void points(const struct grid *g, const float *x, int n, float scale, float less, float *q) {
  const float factor = inverse(scale), low = g->least, high = g->most;
  if (g->table) {
    for (int i = 0; i < n; i++) q[i] = low;
    for (int t = 1; t < GRID_TABLE; t++) { // a step from each point to the next
      const float middle = (g->table[t - 1] + g->table[t]) / 2, step = g->table[t] - g->table[t - 1];
      for (int i = 0; i < n; i++) q[i] += (x[i] + less) * factor > middle ? step : 0;
    }
    return;
  }
  for (int i = 0; i < n; i++) {
    const float v = (x[i] + less) * factor, least = v > low ? v : low;
    q[i] = whole(least < high ? least : high);
  }
}

enum { LANES = 8 }; // of a sum; n is a multiple

static float sum_of(const float lanes[LANES]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static INLINE float product(const float *a, const float *b, int n) {
  float sum[LANES] = {0};
  for (int i = 0; i < n; i += LANES)
    for (int k = 0; k < LANES; k++) sum[k] += a[i + k] * b[i + k];
  return sum_of(sum);
}

// The sum of squares of x + less - scale * g, each g the nearest.
static INLINE float error_of(const struct grid *g, const float *x, int n, float scale, float less) {
  float d[GROUP_MOST];
  points(g, x, n, scale, less, d);
  for (int i = 0; i < n; i++) d[i] = x[i] + less - scale * d[i];
  return product(d, d, n);
}

// ---------------------------------------------------------------- one scale

static float same(float x) { return x; }

// The best scale for the grid points that the scale `start` gives. *gain: by how much these make the error less than
// that of zeros.
static INLINE float refit(const struct grid *g, const float *x, int n, float start, float *gain) {
  float q[GROUP_MOST];
  points(g, x, n, start, 0, q);
  const float xg = product(x, q, n), square = product(q, q, n);
  *gain = square > 0 ? xg * xg / square : 0;
  return square > 0 ? xg / square : 0;
}

// round: how scales are stored.
static INLINE float find_scale(const struct grid *g, const float *x, int n, float (*round)(float)) {
  float largest = 0, most = 0, best = 0;
  for (int i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
  for (int end = 0; end < (g->table ? 2 : 1); end++) // whole numbers are the same on both sides
    for (int k = -TRIES; k <= TRIES && largest != 0; k++) {
      float gain;
      const float scale = refit(g, x, n, largest / ((end ? g->most : g->least) + (float)k * g->step), &gain);
      if (gain <= most) continue;
      best = scale;
      most = gain;
    }
  float gain;
  const float plain = round(largest / g->least), found = round(refit(g, x, n, best, &gain));
  return error_of(g, x, n, found, 0) < error_of(g, x, n, plain, 0) ? found : plain;
}

float fit_scale(const struct grid *g, const float *x) { return find_scale(g, x, GROUP_MOST, f16); }

// ---------------------------------------------------------------- a scale a group

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

// The scale of each group as a whole number from low to high, for the block's d.
static float round_scales(const struct grid *g, const float *x, int group, const float *wanted, struct scaled *s,
                          float low, float high) {
  float error = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    const float middle = s->d ? whole(clamp(wanted[j] / s->d, low, high)) : 0;
    float least = INFINITY;
    for (float q = clamp(middle - 1, low, high); q <= clamp(middle + 1, low, high); q++) {
      const float here = error_of(g, x + j * group, group, s->d * q, 0);
      if (here >= least) continue;
      least = here;
      s->scales[j] = q;
    }
    error += least;
  }
  return error;
}

// The best d for the groups' scales and the grid points that these give.
static float refit_block(const struct grid *g, const float *x, int group, const struct scaled *s) {
  float xg = 0, gg = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    const float factor = inverse(s->d * s->scales[j]);
    for (int i = 0; i < group; i++) {
      const float v = x[j * group + i], q = s->scales[j] * grid_nearest(g, v * factor);
      xg += v * q;
      gg += q * q;
    }
  }
  return gg > 0 ? xg / gg : 0;
}

struct scaled fit_scales(const struct grid *g, const float *x, int group, float low, float high) {
  float wanted[16], largest = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    wanted[j] = find_scale(g, x + j * group, group, same);
    if (fabsf(wanted[j]) > fabsf(largest)) largest = wanted[j];
  }
  struct scaled best = {.d = block_scale(largest / low)};
  float least = round_scales(g, x, group, wanted, &best, low, high);
  for (int k = 0; k < 2; k++) {
    struct scaled s = {.d = f16(refit_block(g, x, group, &best))};
    const float error = round_scales(g, x, group, wanted, &s, low, high);
    if (error >= least) break;
    best = s;
    least = error;
  }
  return best;
}

// ---------------------------------------------------------------- a scale and a minimum a group

// The best line for the grid points that `start` gives. *error: the sum of squares, less that of x.
static struct line refit_line(const struct grid *g, const float *x, struct line start, float *error) {
  const float n = GROUP_MOST;
  float q[GROUP_MOST], ones[GROUP_MOST];
  for (int i = 0; i < GROUP_MOST; i++) ones[i] = 1;
  points(g, x, GROUP_MOST, start.scale, start.less, q);
  const float sx = product(x, ones, GROUP_MOST), sq = product(q, ones, GROUP_MOST);
  const float sxq = product(x, q, GROUP_MOST), sqq = product(q, q, GROUP_MOST), area = n * sqq - sq * sq;
  struct line fit = {area > 0 ? (n * sxq - sx * sq) / area : 0, 0};
  fit.less = (fit.scale * sq - sx) / n;
  if (fit.less < 0 || fit.scale <= 0) fit = (struct line){sqq > 0 && sxq > 0 ? sxq / sqq : 0, 0};
  *error = fit.less * (2 * sx + n * fit.less) + fit.scale * (fit.scale * sqq - 2 * sxq - 2 * fit.less * sq);
  return fit;
}

static struct line find_line(const struct grid *g, const float *x) {
  float low = 0, high = 0, least = INFINITY;
  for (int i = 0; i < GROUP_MOST; i++) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
  }
  struct line best = {0, 0};
  for (int k = -TRIES; k <= TRIES && high > low; k++) {
    float error;
    const struct line start = {(high - low) / (g->most + ((float)k - 2) * g->step), -low};
    const struct line fit = refit_line(g, x, start, &error);
    if (error >= least) continue;
    best = fit;
    least = error;
  }
  const struct line plain = {(high - low) / g->most, -low};
  return error_of(g, x, GROUP_MOST, best.scale, best.less) < error_of(g, x, GROUP_MOST, plain.scale, plain.less)
             ? best
             : plain;
}

static float round_line(const struct grid *g, const float *x, struct line d, struct line wanted, struct line *out) {
  const float scale = d.scale ? whole(clamp(wanted.scale / d.scale, 0, 63)) : 0;
  const float less = d.less ? whole(clamp(wanted.less / d.less, 0, 63)) : 0;
  float least = INFINITY;
  for (float s = clamp(scale - 1, 0, 63); s <= clamp(scale + 1, 0, 63); s++)
    for (float m = clamp(less - 1, 0, 63); m <= clamp(less + 1, 0, 63); m++) {
      const float error = error_of(g, x, GROUP_MOST, d.scale * s, d.less * m);
      if (error >= least) continue;
      least = error;
      *out = (struct line){s, m};
    }
  return least;
}

static float round_lines(const struct grid *g, const float *x, const struct line *wanted, struct lines *l) {
  float error = 0;
  for (int j = 0; j < GROUPS; j++) error += round_line(g, x + j * GROUP_MOST, l->d, wanted[j], &l->each[j]);
  return error;
}

// The best d for the groups' whole numbers and the grid points that these give: x is about d.scale u - d.less m.
static struct line refit_lines(const struct grid *g, const float *x, const struct lines *l) {
  float uu = 0, um = 0, mm = 0, xu = 0, xm = 0;
  for (int j = 0; j < GROUPS; j++) {
    const float m = l->each[j].less, less = l->d.less * m, factor = inverse(l->d.scale * l->each[j].scale);
    for (int i = 0; i < GROUP_MOST; i++) {
      const float v = x[j * GROUP_MOST + i], u = l->each[j].scale * grid_nearest(g, (v + less) * factor);
      uu += u * u;
      um += u * m;
      mm += m * m;
      xu += v * u;
      xm += v * m;
    }
  }
  const float area = uu * mm - um * um;
  if (area <= 0) return (struct line){uu > 0 ? xu / uu : 0, 0};
  return (struct line){(xu * mm - xm * um) / area, (xu * um - xm * uu) / area};
}

struct lines fit_lines(const struct grid *g, const float *x) {
  struct line wanted[GROUPS], most = {0, 0};
  for (int j = 0; j < GROUPS; j++) {
    wanted[j] = find_line(g, x + j * GROUP_MOST);
    most = (struct line){fmaxf(most.scale, wanted[j].scale), fmaxf(most.less, wanted[j].less)};
  }
  struct lines best = {.d = {block_scale(most.scale / 63), block_scale(most.less / 63)}};
  float least = round_lines(g, x, wanted, &best);
  for (int k = 0; k < 2; k++) {
    const struct line d = refit_lines(g, x, &best);
    struct lines l = {.d = {f16(d.scale), f16(d.less)}};
    if (l.d.scale <= 0 || l.d.less < 0) break;
    const float error = round_lines(g, x, wanted, &l);
    if (error >= least) break;
    best = l;
    least = error;
  }
  return best;
}
