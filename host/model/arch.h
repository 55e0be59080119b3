// arch.h: reads config.json and the tensors' names and shapes into a description of the model: the mixer of every layer
// and its sizes. Each family has a file arch_*.c and a line in arch.c's table.
//
// A new architecture needs arch_new.c and a line in the table. A new mixer needs mixer_new.c; only that file and the
// families that use the mixer know its spec.
#ifndef ARCH_H
#define ARCH_H
#include "generation.h"
#include "names.h"
#include "ops.h"

struct mixer; // mixer.h
struct ffn;   // ffn.h

// Each spec has the type that its table of functions expects. It is one malloc'ed block without pointers, which
// model_spec_free() frees.
struct layer_spec {
  const struct mixer *mixer;
  void *spec;
  const struct ffn *ffn; // NULL: the layer has only a mixer
  void *ffn_spec;
  const struct names *names; // of the layer's tensors; NULL: the model's
  bool norms_after;          // the norms follow the mixer and the FFN, before their outputs are added
};

struct model_spec {
  char architecture[64];     // model_type
  const struct names *names; // of the family
  uint32_t D, V, L;          // width, vocabulary, layers
  float norm_eps;            // of every RMSNorm except the FFN's
  float ffn_norm_eps;        // norm_eps, except in older checkpoints: 1e-5
  bool tied;                 // the output head is the embedding
  int32_t bos, eos;          // -1: none; eos is the first of the ends
  uint32_t context;          // tokens of the longest texts it was made for; 0: not known
  struct generation generation;
  uint64_t config_hash;      // of config.json's bytes: the same tensors with two configs are two models
  struct layer_spec *layers; // L of them
};

// Reads folder/config.json and compares it with the checkpoint: defaults, derived sizes, unsupported keys, older
// layouts, and sizes that the tensors correct (docs/models.md). After a failure *out needs no free.
deltaic_status model_spec_read(const char *folder, struct checkpoint *checkpoint, struct model_spec *out)
    INSIDE(model_spec_read);
// The same from memory (tests, fuzzing). Messages name `file`.
deltaic_status model_spec_parse(const char *file, const char *text, size_t bytes, struct checkpoint *checkpoint,
                                struct model_spec *out) INSIDE(model_spec_parse);
// The same from the keys of a GGUF file (arch_gguf.c), but *out needs model_spec_free() after a failure too.
deltaic_status model_spec_of_gguf(struct checkpoint *checkpoint, struct model_spec *out);
// Keys of a GGUF file of a family that llama.cpp does not have: the texts of config.json and generation_config.json.
// Its tensors have the names and shapes of the folder's.
#define KEY_CONFIG "deltaic.config"
#define KEY_GENERATION "deltaic.generation_config"
void model_spec_free(struct model_spec *spec) INSIDE(model_spec_free);
// The names of the tensors of a layer; those of layer 0 include what lies outside the layers.
static inline const struct names *layer_names(const struct model_spec *spec, uint32_t layer) {
  return spec->layers[layer].names ? spec->layers[layer].names : spec->names;
}
// A config's text as JSON, since Python may write Infinity, which JSON does not have. The caller frees it; NULL: out of
// memory.
char *config_without_infinity(const char *text, size_t bytes) INSIDE(config_without_infinity);

// Called after everything is bound. Fails (UNSUPPORTED) with the name of a tensor that nothing uses: such a model needs
// more than this library computes. Ignores tensors that are known to have no effect.
deltaic_status model_leftovers(struct checkpoint *checkpoint, const struct model_spec *spec);

struct arch {
  const char *model_type;
  // config: the file's object. Fills everything except `architecture`; the reader keeps the first error.
  deltaic_status (*read)(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                         struct model_spec *out);
};
#endif
