// print_numbers.h: numbers and names of files as people read them.
#ifndef PRINT_NUMBERS_H
#define PRINT_NUMBERS_H
#include <stddef.h>
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
#endif
