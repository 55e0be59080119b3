// format: numbers as people read them, aligned tables, JSON.
#include "print.h"
#include "common.h" // complain, exit codes

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- numbers

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

// Where the path's last `parts` names begin, and where they end: slashes at the end do not count.
static size_t tail_of(const char *path, size_t parts, size_t *end) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') --n;
  *end = n;
  for (size_t part = 0; part < parts && n; ++part) {
    n -= part > 0; // the slash before the names so far
    while (n && path[n - 1] != '/') --n;
  }
  return n;
}

// What does not fit loses its beginning: names that go on from each other differ at their ends.
static struct text tail_text(const char *path, size_t parts) {
  struct text t;
  size_t end, begin = tail_of(path, parts, &end), most = sizeof t.text - 1;
  bool whole = end - begin <= most;
  if (!whole) begin = end - (most - 3);
  while (!whole && ((unsigned char)path[begin] & 0xc0) == 0x80) ++begin; // cuts between characters
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

// ---------------------------------------------------------------- tables

// Columns that UTF-8 text takes, near enough: its characters.
static size_t text_width(const char *text) {
  size_t width = 0;
  for (; *text; ++text) width += ((unsigned char)*text & 0xc0) != 0x80; // all but continuation bytes
  return width;
}

void table_begin(struct table *table, const char *align) { *table = (struct table){.align = align}; }

// Cuts between characters.
static void set_cell(char cell[TABLE_CELL], const char *text) {
  size_t length = strlen(text);
  if (length >= TABLE_CELL)
    for (length = TABLE_CELL - 1; length && ((unsigned char)text[length] & 0xc0) == 0x80;) --length;
  memcpy(cell, text, length);
  cell[length] = 0;
  text_clean(cell);
}

void table_row(struct table *table, ...) {
  size_t columns = strlen(table->align);
  if (table->rows == table->capacity) {
    table->capacity = 2 * table->capacity + 8;
    table->cells = must_resize(table->cells, table->capacity * columns * sizeof *table->cells);
  }
  va_list args;
  va_start(args, table);
  for (size_t i = 0; i < columns; ++i) set_cell(table->cells[table->rows * columns + i], va_arg(args, const char *));
  va_end(args);
  ++table->rows;
}

static void print_row(const struct table *table, const char (*cells)[TABLE_CELL], const size_t *widths, int indent) {
  size_t columns = strlen(table->align);
  while (columns && !cells[columns - 1][0]) --columns; // no blanks at the end
  printf("%*s", indent, "");
  for (size_t i = 0; i < columns; ++i) {
    int pad = (int)(widths[i] - text_width(cells[i]));
    bool last = i + 1 == columns;
    if (table->align[i] == 'r')
      printf("%*s%s", pad, "", cells[i]);
    else
      printf("%s%*s", cells[i], last ? 0 : pad, "");
    printf(last ? "\n" : "  ");
  }
}

void table_end(struct table *table, int indent) {
  size_t columns = strlen(table->align), widths[TABLE_COLUMNS] = {0};
  const char(*cells)[TABLE_CELL] = (const char(*)[TABLE_CELL])table->cells;
  for (size_t i = 0; i < table->rows * columns; ++i) {
    size_t width = text_width(cells[i]);
    if (width > widths[i % columns]) widths[i % columns] = width;
  }
  for (size_t row = 0; row < table->rows; ++row) print_row(table, cells + row * columns, widths, indent);
  free(table->cells);
  *table = (struct table){0};
}

// ---------------------------------------------------------------- JSON

json_t *number_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *text_json(const char *text) {
  json_t *string = json_string(text);
  return string ? string : json_null();
}

int json_finish(json_t *object) {
  if (!object) return complain(EXIT_FAILED, "out of memory: the JSON output could not be built");
  bool written = !json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  json_decref(object);
  putchar('\n');
  return written ? EXIT_OK : complain_output();
}
