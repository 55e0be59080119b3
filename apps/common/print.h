// print.h: aligned tables, JSON.
#ifndef PRINT_H
#define PRINT_H
#include "print_numbers.h"

#include <jansson.h>

// Rows of cells, printed with columns as wide as their widest cell.
enum { TABLE_COLUMNS = 12, TABLE_CELL = 64 };
struct table {
  const char *align; // "lrr": left, right, right; its length is the number of columns
  size_t rows, capacity;
  char (*cells)[TABLE_CELL]; // (rows, columns)
};
void table_begin(struct table *table, const char *align);
// One text for each column; longer ones are cut.
void table_row(struct table *table, ...);
// `indent` spaces before each row. Frees the table.
void table_end(struct table *table, int indent);

// json null for what JSON cannot hold: infinities, text that is not UTF-8.
json_t *number_json(double value);
json_t *text_json(const char *text);
// Writes the object to standard output with a newline and frees it; an exit code.
int json_finish(json_t *object);
#endif
