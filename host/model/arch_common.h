// arch_common.h: what the families' files (arch_*.c) share: reading everything outside the linear-attention layers, and
// correcting sizes by the tensors.
#ifndef ARCH_COMMON_H
#define ARCH_COMMON_H
#include "arch.h"

// Limits on sizes in files: far above any model, low enough that their products fit into 32 bits.
enum {
  LIMIT_WIDTH = 1 << 20,
  LIMIT_VOCABULARY = 1 << 24,
  LIMIT_LAYERS = 1 << 12,
  LIMIT_HEADS = 1 << 12,
  LIMIT_HEAD_SIZE = 1 << 14,
  LIMIT_CONV = 1 << 8,
  LIMIT_EXPERTS = 1 << 11, // of which the smallest shared memory has room for two numbers each
};

// The eps of a norm: 0 to 1, but no denormal number, which a device might take for 0 and the CPU would not.
float arch_eps(struct json_reader *r, const json_t *keys, const char *key, float missing);

// Reads what all models have outside their layers, and allocates the layers.
deltaic_status arch_read_ends(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                              const struct names *names, uint32_t default_layers, float default_eps,
                              struct model_spec *out);

// Refuses config keys that change the computed function and that no family implements. Then reads the keys that all
// families with gated MLPs have: fills *out except `architecture`, and those layers that `attn` or `mixers` assign to
// another mixer than the family's own. The mixer of all other layers stays NULL for the family to fill.
deltaic_status arch_read_outside(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 uint32_t default_layers, struct model_spec *out);

// Marks the tensors of `count` blocks of a GGUF file from block `first` on as used.
void arch_pass_over_blocks(struct checkpoint *checkpoint, uint32_t first, uint32_t count);

// Gives layer i its mixer and a copy of the mixer's spec.
deltaic_status arch_set_layer(struct model_spec *out, uint32_t i, const struct mixer *mixer, const void *spec,
                              size_t bytes);

// Gives layer i another FFN than it has, and a copy of the FFN's spec.
struct ffn;
deltaic_status arch_set_ffn(struct model_spec *out, uint32_t i, const struct ffn *ffn, const void *spec, size_t bytes);

// Gives every layer a gated MLP (ffn_dense.h) as the config says: intermediate_size or hidden_ratio, and hidden_act.
deltaic_status arch_read_mlp(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                             struct model_spec *out);

// Reads the keys of softmax-attention layers, from `attn` or from a transformer's top level.
struct attention_spec;
deltaic_status arch_read_attention(struct json_reader *r, const json_t *keys, uint32_t default_heads, uint32_t D,
                                   struct attention_spec *out);

// Sizes of a delta-rule layer, in `out` as the config says. The tensors decide if they exist: sizes differ between the
// layers of pruned checkpoints, whose configs may be wrong. Refuses sizes that do not fit or are too large.
struct delta_spec;
deltaic_status arch_size_delta(const struct json_reader *r, struct checkpoint *checkpoint, const struct names *names,
                               uint32_t i, struct delta_spec *out);

// Makes layer i a Mamba-2 layer with the object's keys (arch_mamba2.c); NULL: all defaults.
deltaic_status arch_set_mamba2(struct json_reader *r, const json_t *object, struct checkpoint *checkpoint, uint32_t i,
                               struct model_spec *out);

// Names of the tensors of Mamba-2 layers (arch_mamba2.c).
extern const struct tensor_name tensors_of_mamba2_mixer[];

// A size that follows from the number of rows of a tensor: rows / parts.
struct arch_rows {
  enum role role;
  uint32_t layer, parts;
  const char *what; // name of the parts for messages, such as "num_heads"
  uint64_t limit;
  bool items; // the role is a list of tensors with equal rows
};
// If the checkpoint has the tensor, *size = its rows / parts. Otherwise, or if the tensor also holds other roles, *size
// stays; it must then be from 1 to limit, and 0 means that the config gives no whole number.
deltaic_status arch_rows(const struct json_reader *r, struct checkpoint *checkpoint, const struct names *names,
                         struct arch_rows ask, uint32_t *size);
// *size = the last dimension of the layer's tensor; unchanged if the checkpoint does not have it.
deltaic_status arch_columns(struct checkpoint *checkpoint, const struct names *names, uint32_t layer, enum role role,
                            uint64_t limit, uint32_t *size);

// The index of the key's text in `choices` (ended by NULL); 0 if the key is missing. Other texts are UNSUPPORTED.
int arch_choice(struct json_reader *r, const json_t *config, const char *key, const char *const *choices);
#endif
