// eval_text.h: text as Python's str sees it, for the rules of lm-evaluation-harness. All texts are UTF-8.
#ifndef EVAL_TEXT_H
#define EVAL_TEXT_H
#include <stddef.h>

// The offset of the first byte that is not UTF-8, or `bytes`.
size_t utf8_error(const char *text, size_t bytes);
size_t utf8_characters(const char *text, size_t bytes);

// Of str.isspace(), which is also re's \s: where the white space at the end begins, where that at the beginning ends.
size_t space_at_end(const char *text, size_t bytes);
size_t space_at_begin(const char *text, size_t bytes);
// len(re.split(r"\s+", text))
size_t split_words(const char *text, size_t bytes);

// All of these return text to free().
char *text_copy(const char *text, size_t bytes);
char *text_strip(const char *text);      // str.strip()
char *text_capitalize(const char *text); // str.capitalize()
char *text_replace(const char *text, const char *from, const char *to);
// WikiText's spaces around punctuation taken back, as the harness does.
char *text_detokenize(const char *text);
// HellaSwag's preprocess().
char *text_wikihow(const char *text);
#endif
