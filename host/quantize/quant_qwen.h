// quant_qwen.h: Qwen3.5 and Qwen3-Next from a folder, under the names and in the order that llama.cpp reads.
#ifndef QUANT_QWEN_H
#define QUANT_QWEN_H
#include "quantize.h"

struct quant_family {
  const char *name;           // general.architecture
  const char *const *sources; // model_types of folders, ended by NULL
  const char *pre;            // tokenizer.ggml.pre of its models as published
  const struct names *delta, *attention;
  bool experts;
  bool tiled;    // the order of the value heads (mixer_delta.h)
  bool sections; // has rope.dimension_sections
};

// The family of a model that llama.cpp has an architecture for; NULL: it has none, or lacks a part of this model.
const struct quant_family *quant_family_of(const struct model_spec *spec);
// Whether llama.cpp too can run a model of a family: its keys and values have the same length.
bool quant_family_everywhere(const struct model_spec *spec);
// Lists the tensors of the file to be written. First sets `tiled` of q->spec's delta layers to the order of value heads
// in that file.
deltaic_status quant_list_family(struct quant *q);
// Where the rows of a tensor without a source come from: row `row` of so many columns each of `tensor`.
struct quant_row {
  struct file_tensor *tensor;
  uint64_t row;
};
deltaic_status quant_find_rows(const struct quant *q, const struct quant_tensor *t, struct quant_row *rows);
// Writes the keys of the architecture.
void quant_family_keys(const struct quant *q, struct gguf_writer *w);
#endif
