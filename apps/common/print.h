// print.h: prints aligned tables and JSON.
#ifndef PRINT_H
#define PRINT_H
#include "print_numbers.h"

#include <jansson.h>

// A table of text cells. Each column is as wide as its widest cell.
enum { TABLE_COLUMNS = 12, TABLE_CELL = 64 };
struct table {
  const char *align; // "lrr": left, right, right; its length is the number of columns
  size_t rows, capacity;
  char (*cells)[TABLE_CELL]; // (rows, columns)
};
void table_begin(struct table *table, const char *align);
// Adds a row with one text per column; longer texts are truncated.
void table_row(struct table *table, ...);
// Prints the table with `indent` spaces before each row and frees it.
void table_end(struct table *table, int indent);

// These return JSON null for infinities and for text that is not UTF-8, which JSON cannot hold.
json_t *number_json(double value);
json_t *text_json(const char *text);
// Writes the object and a newline to standard output and frees it. It returns an exit code.
int json_finish(json_t *object);
#endif
