// oplist.h: the list of operations that layers record, and the values between them. A list is recorded, run by a
// backend (backend.h), and cleared. It cannot fail visibly: the first error is kept, and running the list reports it.
//
// A tensor of an operation is memory that somebody owns (weights, states), or a value: what one operation writes and
// later ones read. The list gives values their places when it is run, in the buffer of scratch that it is given. Values
// belong to scopes: those of a scope share no place, and a scope that has ended gives its room to the next.
#ifndef OPLIST_H
#define OPLIST_H
#include "ops.h"

enum delta_form { DELTA_AUTO, DELTA_RECURRENT, DELTA_CHUNK };
// Whether operands may be rounded to f16, to use the device's cooperative matrices; PLAIN: without what only some
// vendors' can do.
enum matrices { MATRICES_NONE, MATRICES_PLAIN, MATRICES_BEST };

struct value {
  uint32_t rows, cols;
  enum dtype dtype; // as it is stored: f32, or what the backend chose; the columns then, padding included
  uint32_t stored;
  uint32_t scope;
  uint32_t place;      // index of the value whose place it has: its own, or that of an operation's input
  uint32_t last_read;  // index of the last operation that reads it, 0 when none does
  uint64_t room;       // bytes that its place needs at least, set by the backend
  struct tensor bound; // where it shall be; absent: anywhere
  uint64_t offset;     // of its place in the scratch
};

struct scope {
  uint32_t parent; // 0: the list's own
  uint64_t used;   // bytes of its values and of those around it
};

struct recorder;
struct oplist {
  // What the call is; set by oplist_begin() or after it.
  enum matrices matrices; // without, long sums are sums of short ones too, whose roundings are smaller
  enum delta_form form;   // of rules with a state; AUTO: what the device's plan says
  uint32_t longest;       // most tokens of one sequence; 0: unknown
  bool plain;             // every operation is run by itself (tests)
  struct tensor parts;    // of backend.parts_bytes, zeros, where products share their sums out; or absent
  struct tensor scratch;  // (1, n) f32: room for the values and for what operations need beside
  // Runs what the recorder has, reads the tensor and hands it out (OP_PROBE).
  void (*look)(void *context, struct recorder *c, const struct probed *p);
  void *look_context;
  uint32_t kinds; // deltaic_probe_kind values that are looked at

  struct op *ops;
  size_t count, capacity;
  struct value *values;
  size_t value_count, value_capacity;
  struct scope *scopes;
  size_t scope_count, scope_capacity;
  uint32_t scope;        // the open one
  deltaic_status status; // the first error
};

void oplist_begin(struct oplist *l); // forgets what was recorded, keeps the memory
void oplist_free(struct oplist *l);  // accepts a zeroed one

void oplist_scope_begin(struct oplist *l);
void oplist_scope_end(struct oplist *l);
// A value of the open scope: (rows, cols) of f32, or of f16 where all that read it round to that anyway.
struct tensor oplist_value(struct oplist *l, uint32_t rows, uint32_t cols);
// The value t, and the inputs whose place it takes, shall be where `at` is.
void oplist_bind(struct oplist *l, struct tensor t, struct tensor at);

// Records an operation; the tensors are those of its struct, in its order.
void op_embed(struct oplist *l, struct tensor x, struct tensor table, struct tensor tokens);
void op_mark(struct oplist *l, struct tensor seen, struct tensor tokens, struct tensor sequences);
void op_norm(struct oplist *l, struct tensor y, struct tensor x, struct tensor weight, struct tensor last, float eps);
void op_linear(struct oplist *l, struct tensor y, struct tensor x, struct tensor w, struct tensor bias);
void op_add(struct oplist *l, struct tensor y, struct tensor x, struct tensor z);
void op_conv(struct oplist *l, const struct conv *conv);
void op_glu(struct oplist *l, struct tensor y, struct tensor gate, struct tensor x, enum activation activation);
void op_delta_inputs(struct oplist *l, const struct delta_inputs *inputs);
void op_delta_rule(struct oplist *l, const struct delta_rule *rule);
void op_mamba2_inputs(struct oplist *l, const struct mamba2_inputs *inputs);
void op_mamba2(struct oplist *l, const struct mamba2 *rule);
void op_gated_norm(struct oplist *l, const struct gated_norm *norm);
void op_rope_append(struct oplist *l, const struct rope_append *rope);
void op_attention(struct oplist *l, const struct attention *attention);
void op_sample(struct oplist *l, const struct sample *sample);
void op_copy(struct oplist *l, struct tensor to, struct tensor from);
void op_scatter(struct oplist *l, struct tensor to, struct tensor from, struct tensor sequences);
void op_score(struct oplist *l, struct tensor scores, struct tensor logits, struct tensor targets, uint32_t first);
// Records nothing where nobody looks at such tensors, or t is absent. rows x cols: t's shape as the caller sees it;
// what of layer: the sizes that it is handed with.
void op_probe(struct oplist *l, deltaic_probe_kind kind, struct tensor t, size_t rows, size_t cols,
              const deltaic_probed *layer);

// ---------------------------------------------------------------- for backends

struct op_shape {
  const char *name;
  uint32_t writes, updates, reads; // tensors, in this order
};
extern const struct op_shape op_shapes[OP_KINDS];

static inline bool tensor_present(struct tensor t) { return t.buffer || t.value; }
static inline bool same_value(struct tensor a, struct tensor b) { return a.value && a.value == b.value; }
// Index of the only operation from `after` + 1 on that reads all of the value t, or 0: several do, or it reads a view.
uint32_t oplist_reader(const struct oplist *l, struct tensor t, uint32_t after);
// Chooses which outputs take their inputs' places, and gives every value its own. Returns the bytes of scratch that the
// list takes, with beside(b, l, op) bytes for each operation alone; *largest: of its largest tensor.
struct backend;
typedef uint64_t (*oplist_bytes)(const struct backend *b, const struct oplist *l, const struct op *op);
uint64_t oplist_plan(struct oplist *l, const struct backend *b, oplist_bytes beside, uint64_t *largest);
// The list's error, or INTERNAL where its scratch has less than these bytes.
deltaic_status oplist_check(const struct oplist *l, uint64_t bytes);
// The tensor in memory.
struct tensor oplist_tensor(const struct oplist *l, struct tensor t);
// The operation with its tensors in memory.
struct op oplist_op(const struct oplist *l, uint32_t i);
// What operation i has beside: (1, bytes / 4); absent for none.
struct tensor oplist_beside(const struct oplist *l, uint32_t i, uint64_t bytes);
#endif
