// print_numbers: formats numbers and file names for people.
#include "print_numbers.h"
#include "platform.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct text text_bytes(uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  struct text out;
  double value = (double)bytes / 1024;
  size_t unit = 0;
  if (bytes < 1024) {
    snprintf(out.text, sizeof out.text, "%u bytes", (unsigned)bytes);
    return out;
  }
  for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; ++unit) value /= 1024;
  snprintf(out.text, sizeof out.text, value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return out;
}

struct text text_count(uint64_t count) {
  char digits[24];
  struct text out;
  size_t n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)count), used = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i && (n - i) % 3 == 0) out.text[used++] = ',';
    out.text[used++] = digits[i];
  }
  out.text[used] = 0;
  return out;
}

struct text text_short(double count) {
  static const char *const units[] = {"", " k", " M", " G", " T"};
  struct text out;
  size_t unit = 0;
  for (; count >= 999.5 && unit + 1 < sizeof units / sizeof *units; ++unit) count /= 1000;
  snprintf(out.text, sizeof out.text, "%.3g%s", count, units[unit]);
  return out;
}

struct text text_seconds(double seconds) {
  struct text out;
  uint64_t whole = (uint64_t)(seconds + 0.5);
  unsigned minutes = (unsigned)(whole / 60 % 60), rest = (unsigned)(whole % 60);
  if (seconds < 99.95e-6)
    snprintf(out.text, sizeof out.text, "%.3g us", seconds * 1e6);
  else if (seconds < 0.001)
    snprintf(out.text, sizeof out.text, "%.0f us", seconds * 1e6);
  else if (seconds < 0.9995)
    snprintf(out.text, sizeof out.text, "%.3g ms", seconds * 1e3);
  else if (seconds < 59.95)
    snprintf(out.text, sizeof out.text, "%.1f s", seconds);
  else if (whole < 3600)
    snprintf(out.text, sizeof out.text, "%u min %02u s", minutes, rest);
  else
    snprintf(out.text, sizeof out.text, "%llu h %02u min", (unsigned long long)(whole / 3600), minutes);
  return out;
}

struct text text_rate(double per_second) {
  struct text out;
  if (per_second >= 999.5) return text_count((uint64_t)(per_second + 0.5));
  snprintf(out.text, sizeof out.text, "%.*f", per_second >= 99.95 ? 0 : per_second >= 9.995 ? 1 : 2, per_second);
  return out;
}

struct text text_percent(double fraction) {
  struct text out;
  if (!isfinite(fraction))
    snprintf(out.text, sizeof out.text, "-");
  else
    snprintf(out.text, sizeof out.text, fraction < 0.0995 ? "%.1f%%" : "%.0f%%", fraction * 100);
  return out;
}

struct text text_giga(double per_second) {
  struct text out;
  if (per_second > 0 && isfinite(per_second)) return text_rate(per_second * 1e-9);
  snprintf(out.text, sizeof out.text, "-");
  return out;
}

// Finds the beginning and the end of the path's last `parts` names; trailing slashes are ignored.
static size_t tail_of(const char *path, size_t parts, size_t *end) {
  size_t n = strlen(path);
  while (n > 1 && platform_separator(path[n - 1])) --n;
  *end = n;
  for (size_t part = 0; part < parts && n; ++part) {
    n -= part > 0; // the slash before the names found so far
    while (n && !platform_separator(path[n - 1])) --n;
  }
  return n;
}

// Copies a name. If it does not fit, its beginning is removed, because similar names differ at their ends.
static struct text tail_text(const char *path, size_t parts) {
  struct text t;
  size_t end, begin = tail_of(path, parts, &end), most = sizeof t.text - 1;
  bool whole = end - begin <= most;
  if (!whole) begin = end - (most - 3);
  while (!whole && ((unsigned char)path[begin] & 0xc0) == 0x80) ++begin; // cut between characters
  snprintf(t.text, sizeof t.text, "%s%.*s", whole ? "" : "...", (int)(end - begin), path + begin);
  return t;
}

struct text text_name(const char *path) {
  return tail_text(path, 1);
}

static bool same_tail(const char *a, const char *b, size_t parts) {
  size_t end_a, end_b, begin_a = tail_of(a, parts, &end_a), begin_b = tail_of(b, parts, &end_b);
  return end_a - begin_a == end_b - begin_b && !memcmp(a + begin_a, b + begin_b, end_a - begin_a);
}

void text_names(struct text *names, const char *const *paths, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    size_t parts = 1, end;
    for (size_t j = 0; j < count; ++j)
      while (!same_tail(paths[i], paths[j], SIZE_MAX) && same_tail(paths[i], paths[j], parts) &&
             tail_of(paths[i], parts, &end))
        ++parts;
    names[i] = tail_text(paths[i], parts);
  }
}
