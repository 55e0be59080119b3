// print: prints aligned tables and JSON.
#include "print.h"
#include "common.h" // complain, exit codes

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tables

// Returns the approximate number of columns of UTF-8 text: its number of characters.
static size_t text_width(const char *text) {
  size_t width = 0;
  for (; *text; ++text) width += ((unsigned char)*text & 0xc0) != 0x80; // counts all but continuation bytes
  return width;
}

void table_begin(struct table *table, const char *align) { *table = (struct table){.align = align}; }

// Truncates between characters.
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
  while (columns && !cells[columns - 1][0]) --columns; // no trailing blanks
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
