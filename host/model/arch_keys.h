// arch_keys.h: config keys of the families in the layout of Hugging Face's transformers. Such a config may have no key
// that is unknown here: it might change what the model computes.
#ifndef ARCH_KEYS_H
#define ARCH_KEYS_H
#include "arch_common.h"

// Refuses a key of `object` that is neither in `known` (ended by NULL; '*' stands for any text) nor without effect in
// every model. Values that are null, false or empty are accepted. where: NULL, or the key of the object.
deltaic_status arch_check_keys(const struct json_reader *r, const json_t *object, const char *const *known,
                               const char *where);

// Reads what these models have outside their layers' mixers: arch_read_ends() with rms_norm_eps and without default
// ids, and the gated MLPs. Refuses keys that are not in `known`.
deltaic_status arch_read_strictly(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  const struct names *names, const char *const *known, struct model_spec *out);

struct arch_default {
  const char *key;
  int64_t value;
};
// A copy of `config` in which missing and null keys have these values (ended by a NULL key). The caller releases it.
// NULL: out of memory, which the reader keeps.
json_t *arch_with_defaults(struct json_reader *r, const json_t *config, const struct arch_default *defaults);

// Whether layer i is a softmax-attention layer: layer_types says "full_attention" or "linear_attention" of each;
// without it, every `every`-th layer is.
bool arch_is_attention(struct json_reader *r, const json_t *config, uint32_t L, uint32_t every, uint32_t i);

// Positions: rope_parameters, or under their older names rope_scaling, rope_theta and partial_rotary_factor.
struct arch_rope {
  double theta;   // 0: none is given
  double rotated; // fraction of a head
};
deltaic_status arch_read_rope(struct json_reader *r, const json_t *config, double rotated, struct arch_rope *out);

// Checks that the value heads of a delta-rule layer are a multiple of its key heads.
struct delta_spec;
deltaic_status arch_check_value_heads(const struct json_reader *r, const struct delta_spec *s);
// Checks and fills the sizes of heads that are in `s` and the part of them that is rotated.
struct attention_spec;
deltaic_status arch_check_heads(const struct json_reader *r, const struct arch_rope *rope, struct attention_spec *s);
#endif
