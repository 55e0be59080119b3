// names_qwen.h: the names of tensors of Qwen3.5 and Qwen3-Next. The row maps of a kind of layer read its mixer's spec.
#ifndef NAMES_QWEN_H
#define NAMES_QWEN_H
#include "names.h"

extern const struct names names_qwen;           // outside the mixers
extern const struct names names_qwen_delta;     // delta layers of Qwen3.5
extern const struct names names_qwen_next;      // delta layers of Qwen3-Next
extern const struct names names_qwen_attention; // attention layers of both
// The same of Qwen3.5's text model alone, whose usual prefix differs.
extern const struct names names_qwen_text, names_qwen_text_delta, names_qwen_text_attention;
// The same in GGUF files.
extern const struct names names_qwen_gguf, names_qwen_gguf_delta, names_qwen_gguf_next, names_qwen_gguf_attention;
#endif
