// arch_common.h: what the families' files (arch_*.c) share: reading everything outside the linear-attention layers, and
// sizes that the tensors correct.
#ifndef ARCH_COMMON_H
#define ARCH_COMMON_H
#include "arch.h"

// Limits on what files may ask for: far above any model, low enough that products of them fit into 32 bits.
enum {
  LIMIT_WIDTH = 1 << 20,
  LIMIT_VOCABULARY = 1 << 24,
  LIMIT_LAYERS = 1 << 12,
  LIMIT_HEADS = 1 << 12,
  LIMIT_HEAD_SIZE = 1 << 14,
  LIMIT_CONV = 1 << 8,
};

// Reads what all models have outside their layers, and makes room for the layers.
deltaic_status arch_read_ends(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                              const struct names *names, uint32_t default_layers, double default_eps,
                              struct model_spec *out);

// Refuses config keys that change the function computed and that no family implements, then reads the keys that all
// families with gated MLPs have: fills *out but for `architecture`, and the layers that `attn` lists or
// `mixers` names as others than the family's own. Those' mixer stays NULL for the family to fill.
deltaic_status arch_read_outside(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 uint32_t default_layers, struct model_spec *out);

// Gives layer i its mixer and a copy of the mixer's spec.
deltaic_status arch_set_layer(struct model_spec *out, uint32_t i, const struct mixer *mixer, const void *spec,
                              size_t bytes);

// Gives every layer a gated MLP (ffn_dense.h) as the config says: intermediate_size or hidden_ratio, and hidden_act.
deltaic_status arch_read_mlp(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                             struct model_spec *out);

// What softmax-attention layers are told, by `attn` or by a transformer's own keys.
struct attention_spec;
deltaic_status arch_read_attention(struct json_reader *r, const json_t *keys, uint32_t default_heads, uint32_t D,
                                   struct attention_spec *out);

// Makes layer i a Mamba-2 layer, as the object says (arch_mamba2.c); NULL: all defaults.
deltaic_status arch_set_mamba2(struct json_reader *r, const json_t *object, struct checkpoint *checkpoint, uint32_t i,
                               struct model_spec *out);

// What hybrids call the tensors of their Mamba-2 layers (arch_mamba2.c).
extern const struct names names_mamba2_mixer;

// A size that the rows of a tensor tell: rows / parts.
struct arch_rows {
  enum role role;
  uint32_t layer, parts;
  const char *what; // the parts, as "num_heads", for messages
  uint64_t limit;
  bool items; // the role is a list of tensors, of equal rows
};
// *size = rows of the tensor / parts when the checkpoint has it, else *size stays; then *size must be from 1 to limit.
// A size of 0 from the config means that it gives no whole number. Where the tensor holds other roles too, *size stays.
deltaic_status arch_rows(const struct json_reader *r, struct checkpoint *checkpoint, const struct names *names,
                         struct arch_rows ask, uint32_t *size);
// *size = the last dimension of the layer's tensor when the checkpoint has it, else *size stays.
deltaic_status arch_columns(struct checkpoint *checkpoint, const struct names *names, uint32_t layer, enum role role,
                            uint64_t limit, uint32_t *size);

// The index of the key's text in `choices` (ended by NULL), 0 when it is missing; anything else is UNSUPPORTED.
int arch_choice(struct json_reader *r, const json_t *config, const char *key, const char *const *choices);
#endif
