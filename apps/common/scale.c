// scale: computes ranges, ticks and tick labels of axes.
#include "scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool scale_takes(const struct axis *axis, double value) { return isfinite(value) && (!axis->log || value > 0); }

void scale_include(const struct axis *axis, double value, double *least, double *most) {
  if (!scale_takes(axis, value)) return;
  if (axis->log) value = log10(value);
  *least = fmin(*least, value);
  *most = fmax(*most, value);
}

static double nice_step(double span, int about) {
  double raw = span / about, power = pow(10, floor(log10(raw))), part = raw / power;
  return power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
}

static void linear_ticks(struct scale *s, int about, bool whole) {
  s->step = nice_step(s->most - s->least, about);
  if (whole) s->step = fmax(s->step, 1);
  for (double i = ceil(s->least / s->step - 1e-6); i * s->step <= s->most + 1e-6 * s->step && s->count < SCALE_TICKS;
       ++i)
    s->ticks[s->count++] = i * s->step;
}

// Places ticks at decades, or at 1, 2 and 5 of each decade if there are few.
static void log_ticks(struct scale *s, int about) {
  static const double parts[] = {1, 2, 5};
  int decades = (int)(s->most - s->least) + 1, every = 1 + decades / (about + 1), each = decades <= 2 ? 3 : 1;
  for (int d = (int)floor(s->least); d <= s->most + 1e-9; ++d)
    for (int i = 0; i < each; ++i) {
      double at = d + log10(parts[i]);
      if (at < s->least - 1e-9 || at > s->most + 1e-9 || s->count == SCALE_TICKS) continue;
      if (each > 1 || d % every == 0) s->ticks[s->count++] = at;
    }
}

struct scale scale_make(const struct axis *axis, double least, double most, double margin, double from, double to) {
  struct scale s = {.log = axis->log, .from = from, .to = to};
  if (axis->least != 0 || axis->most != 0) {
    least = axis->log ? log10(axis->least) : axis->least;
    most = axis->log ? log10(axis->most) : axis->most;
    margin = 0;
  }
  if (!(least <= most)) least = 0, most = 1;
  double span = most - least, pad = span > 0 ? margin * span : fmax(0.05 * fabs(least), axis->log ? 0.3 : 1e-3);
  const double short_of = s.log && margin > 0 ? 0.8 - (span + 2 * pad) : 0; // 0.8 decades always hold two ticks
  if (short_of > 0) pad += short_of / 2;
  s.least = least - pad;
  s.most = most + pad;
  int about = fabs(to - from) < 250 ? 5 : 8;
  if (s.log)
    log_ticks(&s, about);
  else
    linear_ticks(&s, about, axis->whole);
  return s;
}

struct scale scale_of_cells(size_t count, double first, double step, double from, double to) {
  struct scale s = {.least = first - 0.5 * step, .most = first + ((double)count - 0.5) * step, .from = from, .to = to};
  s.step = fmax(step, nice_step((double)count * step, fabs(to - from) < 250 ? 5 : 10));
  s.step = ceil(s.step - 1e-9);
  for (double i = ceil(s.least / s.step); i * s.step <= s.most && s.count < SCALE_TICKS; ++i)
    s.ticks[s.count++] = i * s.step;
  return s;
}

double scale_place(const struct scale *s, double value) {
  if (s->log) value = log10(value);
  return s->from + (value - s->least) / (s->most - s->least) * (s->to - s->from);
}

double scale_place_tick(const struct scale *s, int i) {
  return s->from + (s->ticks[i] - s->least) / (s->most - s->least) * (s->to - s->from);
}

// ---------------------------------------------------------------- numbers

static int decimals(const struct scale *s) { return s->step >= 1 ? 0 : (int)ceil(-log10(s->step) - 1e-9); }

static bool is_plain(const struct scale *s, double tick) {
  if (s->log) return tick > -3 - 1e-9 && tick < 6 - 1e-9;
  return fabs(tick) < 1e6 && decimals(s) <= 4;
}

// Writes 2e6 instead of C's 2e+06, with enough digits to distinguish adjacent ticks.
static void power_text(const struct scale *s, double value, char text[SCALE_TEXT]) {
  double most = fmax(fabs(s->ticks[0]), fabs(s->ticks[s->count - 1]));
  int digits = s->log ? 0 : (int)floor(log10(most) + 1e-9) - (int)floor(log10(s->step) + 1e-9), power = 0;
  snprintf(text, SCALE_TEXT, "%.*e", digits > 0 ? digits : 0, value);
  char *e = strchr(text, 'e');
  sscanf(e + 1, "%d", &power);
  snprintf(e + 1, SCALE_TEXT - (size_t)(e + 1 - text), "%d", power);
}

void scale_text(const struct scale *s, int tick, char text[SCALE_TEXT]) {
  bool plain = true;
  double value = s->ticks[tick];
  for (int i = 0; i < s->count; ++i) plain &= is_plain(s, s->ticks[i]);
  if (!s->log && fabs(value) < 1e-9 * s->step) value = 0;
  if (s->log) value = pow(10, value);
  if (!plain && value != 0)
    power_text(s, value, text);
  else if (s->log)
    snprintf(text, SCALE_TEXT, "%g", value);
  else
    snprintf(text, SCALE_TEXT, "%.*f", plain ? decimals(s) : 0, value);
}
