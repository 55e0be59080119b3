// print_numbers.h: formats numbers and file names for people.
#ifndef PRINT_NUMBERS_H
#define PRINT_NUMBERS_H
#include <stddef.h>
#include <stdint.h>

// A short text that is returned by value: printf("%s", text_bytes(n).text).
struct text {
  char text[48];
};
struct text text_bytes(uint64_t bytes);    // "12.6 MiB"
struct text text_count(uint64_t count);    // "489,123"
struct text text_short(double count);      // "6.59 M"
struct text text_seconds(double seconds);  // "840 ms", "12.4 s", "3 min 05 s"
struct text text_rate(double per_second);  // "92.4", "7,120": at least three digits
struct text text_percent(double fraction); // "41%", "0.3%"; "-" if it is NaN
struct text text_giga(double per_second);  // "11.3", in units of 10^9; "-" for 0
struct text text_name(const char *path);   // "novelist" of "models/novelist/"
// Sets the names of several paths, with as many parent folders as distinguish them: "a/hf" and "b/hf".
void text_names(struct text *names, const char *const *paths, size_t count);
#endif
