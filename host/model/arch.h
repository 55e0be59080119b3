// arch.h: from config.json and the tensors' names and shapes to a description of the model: which mixer every layer has
// and with what sizes. One file arch_*.c for a family, one line in arch.c's table.
//
// Adding an architecture touches arch_new.c and the table; adding a mixer, mixer_new.c, whose spec only that file and
// the families that use it know.
#ifndef ARCH_H
#define ARCH_H
#include "json.h"
#include "names.h"
#include "ops.h"

struct mixer; // mixer.h
struct ffn;   // ffn.h

// Each spec is its table's own, one malloc'ed block without pointers, freed by model_spec_free.
struct layer_spec {
  const struct mixer *mixer;
  void *spec;
  const struct ffn *ffn; // NULL: the layer is a mixer alone
  void *ffn_spec;
};

struct model_spec {
  char architecture[64];     // model_type
  const struct names *names; // of the family
  uint32_t D, V, L;          // width, vocabulary, layers
  float norm_eps;            // of every RMSNorm but the one below
  float ffn_norm_eps;        // older checkpoints: 1e-5, else norm_eps
  bool tied;                 // the head is the embedding
  int32_t bos, eos;          // -1: none
  uint64_t config_hash;      // of config.json's bytes: two configs over the same tensors are two models
  struct layer_spec *layers; // L of them
};

// Reads folder/config.json and matches it with the checkpoint: defaults, derived sizes, refusals, older layouts, sizes
// that the tensors correct (docs/models.md). On failure *out needs no free.
deltaic_status model_spec_read(const char *folder, struct checkpoint *checkpoint, struct model_spec *out);
// The same from memory (tests, fuzzing). `file` is named in messages.
deltaic_status model_spec_parse(const char *file, const char *text, size_t bytes, struct checkpoint *checkpoint,
                                struct model_spec *out);
void model_spec_free(struct model_spec *spec);
// A config's text as JSON, to be freed; NULL without memory. Python writes infinities, which JSON does not have.
char *config_without_infinity(const char *text, size_t bytes);

// After everything is bound: fails (UNSUPPORTED) with the name of a tensor that nobody used, because a model that holds
// more than this library computes would run wrongly. Tensors known to be without effect are passed over.
deltaic_status model_leftovers(struct checkpoint *checkpoint, const struct model_spec *spec);

struct arch {
  const char *model_type;
  // config: the file's object. Fills everything but `architecture`; the reader keeps the first error.
  deltaic_status (*read)(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                         struct model_spec *out);
};
#endif
