// eval_text.h: declares operations on UTF-8 text with the results of Python's str, as lm-evaluation-harness needs.
#ifndef EVAL_TEXT_H
#define EVAL_TEXT_H
#include <stddef.h>

// Returns the offset of the first byte that is not UTF-8, or `bytes`.
size_t utf8_error(const char *text, size_t bytes);
size_t utf8_characters(const char *text, size_t bytes);

// Return where trailing white space begins and where leading white space ends, by str.isspace(), which equals re's \s.
size_t space_at_end(const char *text, size_t bytes);
size_t space_at_begin(const char *text, size_t bytes);
// Returns len(re.split(r"\s+", text)).
size_t split_words(const char *text, size_t bytes);

// These return text that the caller frees.
char *text_copy(const char *text, size_t bytes);
char *text_strip(const char *text);      // str.strip()
char *text_capitalize(const char *text); // str.capitalize()
char *text_replace(const char *text, const char *from, const char *to);
// Removes WikiText's spaces around punctuation like the harness.
char *text_detokenize(const char *text);
// Does HellaSwag's preprocess().
char *text_wikihow(const char *text);
#endif
