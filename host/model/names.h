// names.h: the names of a family's tensors, and where the rows of each role lie. Layers ask for roles; each family has
// one table.
#ifndef NAMES_H
#define NAMES_H
#include "checkpoint.h"

enum role {
  // of the model
  ROLE_EMBEDDING,
  ROLE_FINAL_NORM,
  ROLE_HEAD,
  // of every layer
  ROLE_MIXER_NORM,
  ROLE_FFN_NORM,
  ROLE_FFN_GATE, // gate, or gate's rows and then up's if there is no ROLE_FFN_UP
  ROLE_FFN_UP,
  ROLE_FFN_DOWN,
  // of mixtures of experts
  ROLE_ROUTER,
  ROLE_EXPERTS_GATE_UP, // of all experts, of each gate's rows and then up's
  ROLE_EXPERTS_GATE,    // of all experts, or a list of tensors
  ROLE_EXPERTS_UP,
  ROLE_EXPERTS_DOWN,
  ROLE_SHARED_SCALE, // the row whose sigmoid scales the shared expert
  ROLE_SHARED_GATE,
  ROLE_SHARED_UP,
  ROLE_SHARED_DOWN,
  // of attention and the delta rule
  ROLE_Q,
  ROLE_K,
  ROLE_V,
  ROLE_Q_BIAS,
  ROLE_K_BIAS,
  ROLE_V_BIAS,
  ROLE_Q_NORM,
  ROLE_K_NORM,
  ROLE_Q_CONV,
  ROLE_K_CONV,
  ROLE_V_CONV,
  ROLE_Q_CONV_BIAS,
  ROLE_K_CONV_BIAS,
  ROLE_V_CONV_BIAS,
  ROLE_GATE, // of the output
  ROLE_GATE_BIAS,
  ROLE_BETA,
  ROLE_DECAY,
  ROLE_MASK,       // Head-in-Head: the projection that computes masks
  ROLE_MASK_BIAS,  // bias of that projection
  ROLE_MASK_FIXED, // a mask that is a parameter
  // of Mamba-2
  ROLE_Z,
  ROLE_XBC,
  ROLE_DT,
  ROLE_Z_BIAS,
  ROLE_XBC_BIAS,
  ROLE_DT_BIAS,
  ROLE_CONV,
  ROLE_CONV_BIAS,
  ROLE_SKIP,
  // of several
  ROLE_A_LOG,
  ROLE_STEP_BIAS, // dt_bias: added to the logits of the decay
  ROLE_OUTPUT_NORM,
  ROLE_OUTPUT,
  ROLE_OUTPUT_BIAS,
};

// Whether op_linear() reads the role's matrix.
bool role_is_projection(enum role role);

struct layer_spec; // arch.h

// Where a role's rows lie in a tensor that also holds other roles, or holds the rows in another order.
struct row_map {
  uint64_t (*count)(const struct layer_spec *layer);            // rows of the tensor
  uint64_t (*at)(const struct layer_spec *layer, uint32_t row); // the tensor's row that is the role's `row`
};
static inline uint64_t row_mapped(const struct row_map *map, const struct layer_spec *layer, uint64_t row) {
  return map ? map->at(layer, (uint32_t)row) : row;
}

// pattern: '*' stands for the model's prefix, '#' for the layer's index, and '@' for the index of an item if the role
// is a list of tensors.
struct tensor_name {
  enum role role;
  const char *pattern;
  const struct row_map *rows; // NULL: the tensor's rows are the role's
  float plus;                 // added to every element of a vector: 1 where a norm is stored as its weight minus 1
  bool minus_exp;             // elements x of the vector are stored as -exp(x)
  // Of a GGUF file: from a row or column of the role in the file to that in the model's folder; NULL: the same. `count`
  // is not used.
  const struct row_map *row_order, *column_order;
};

#define NAMED(name, text)                                                                                              \
  { .role = ROLE_##name, .pattern = text }
#define CENTRED(name, text)                                                                                            \
  { .role = ROLE_##name, .pattern = text, .plus = 1 }
#define MAPPED(name, text, map)                                                                                        \
  { .role = ROLE_##name, .pattern = text, .rows = map }

struct names {
  const char *prefixes[3];           // prefixes in the family's files, the usual one first; NULL ends them
  const struct tensor_name *tensors; // a role's usual name first, then older ones; ended by a NULL pattern
  const char *const *ignored;        // patterns (text_like) of names that have no effect, ended by NULL; or NULL
  const struct names *base;          // names to try after the family's own; or NULL
  const struct names *folder;        // of a GGUF file: the names in the model's folder; NULL: these
};

struct named_tensor {
  struct file_tensor *tensor; // NULL: not in the checkpoint
  const struct row_map *rows;
  float plus;
  bool minus_exp;
  const struct row_map *row_order, *column_order;
};

// The tensor of the role, if one tensor has all its items. checkpoint: may be NULL.
struct named_tensor names_find(const struct names *names, struct checkpoint *checkpoint, uint32_t layer, enum role role)
    INSIDE(names_find);
// Item m of a role that is a list of tensors.
struct named_tensor names_item(const struct names *names, struct checkpoint *checkpoint, uint32_t layer, enum role role,
                               uint32_t m) INSIDE(names_item);
// The same, with `look` to find a tensor by its name. item < 0: as names_find(), else as names_item().
typedef struct file_tensor *(*names_lookup)(void *context, const char *name);
struct named_tensor names_look(const struct names *names, names_lookup look, void *context, uint32_t layer,
                               enum role role, int64_t item);
// The usual tensor of a role; NULL: the family has none.
const struct tensor_name *names_usual(const struct names *names, enum role role);
// Writes the name of a role's usual tensor.
void names_write(const struct names *names, uint32_t layer, enum role role, char *text, size_t capacity)
    INSIDE(names_write);
// The reverse: whether a tensor of this name has one of `roles`, and in which layer.
bool names_match(const struct names *names, const char *name, const enum role *roles, size_t count, enum role *role,
                 uint32_t *layer) INSIDE(names_match);
bool names_ignored(const struct names *names, const char *name);
#endif
