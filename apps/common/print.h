// format.h: numbers as people read them, aligned tables, JSON.
#ifndef FORMAT_H
#define FORMAT_H
#include <jansson.h>
#include <stdint.h>

// A short text by value: printf("%s", text_bytes(n).text).
struct text {
  char text[48];
};
struct text text_bytes(uint64_t bytes);    // "12.6 MiB"
struct text text_count(uint64_t count);    // "489,123"
struct text text_short(double count);      // "6.59 M"
struct text text_seconds(double seconds);  // "840 ms", "12.4 s", "3 min 05 s"
struct text text_rate(double per_second);  // "92.4", "7,120": three digits at least
struct text text_percent(double fraction); // "41%", "0.3%"; "-" when it is no number
struct text text_giga(double per_second);  // "11.3", in 10^9; "-" for 0
struct text text_name(const char *path);   // "novelist" of "models/novelist/"
// The names of several, each with as many folders before it as tell it from the others: "a/hf" and "b/hf".
void text_names(struct text *names, const char *const *paths, size_t count);

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
