// oplist.h: the list of operations that layers record, and the values between them. A list is recorded, run by a
// backend (backend.h), and cleared. Recording returns no errors: the list keeps the first error, and running the list
// reports it.
//
// A tensor of an operation is either memory with an owner (weights, states) or a value, which one operation writes and
// later ones read. Running the list places each value in the scratch buffer. A value belongs to a scope; when the scope
// ends, later scopes reuse its memory. Within a scope, the first output of add, delta_inputs, gated_norm and
// rope_append takes the memory of its input, if nothing reads that input afterwards. Other values of a scope share no
// memory.
#ifndef OPLIST_H
#define OPLIST_H
#include "ops.h"

enum delta_form { DELTA_AUTO, DELTA_RECURRENT, DELTA_CHUNK, DELTA_F32 };
// Whether operands may be rounded to f16 so that cooperative matrices (coopmat) can be used. PLAIN: without the coopmat
// features that only some vendors have.
enum matrices { MATRICES_NONE, MATRICES_PLAIN, MATRICES_BEST };

struct value {
  uint32_t rows, cols;
  enum dtype dtype; // storage format: f32, or what the backend chose
  uint32_t stored;  // columns in that format, padding included
  uint32_t scope;
  uint32_t place;      // index of the value whose memory it shares; its own index if none
  uint32_t last_read;  // index of the last operation that reads it; 0: none
  uint64_t room;       // least bytes for its memory, set by the backend
  struct tensor bound; // memory that the value must use; absent: any
  uint64_t offset;     // of its memory in the scratch buffer
};

struct scope {
  uint32_t parent; // 0: the outermost scope
  uint64_t used;   // bytes of its values and of those of the enclosing scopes
};

struct recorder;
struct oplist {
  // Settings of the call, set by oplist_begin() or after it.
  enum matrices matrices; // NONE: f32 throughout; long sums are added up in pieces, for less rounding error
  enum delta_form form;   // form of the delta rule and of Mamba-2; AUTO: the device's plan decides; F32: delta rule: as
                          // AUTO, but without cooperative matrices; no list with Mamba-2 uses it
  uint32_t longest;       // tokens of the longest sequence; 0: unknown
  bool plain;             // no operations are joined (for tests)
  bool keep;              // for a walk in reverse: every value keeps its memory until the list is cleared, with room for
                          // f32. It is f32, unless a norm or gated unit wrote it for products alone that take f16
  // Zeroed memory (backend.parts_bytes) in which the workgroups of one output tile add their partial sums; or absent.
  struct tensor parts;
  struct tensor scratch; // (1, n) f32: memory for the values and for the operations' own scratch
  // Called at OP_PROBE: runs what is recorded so far, reads the tensor and passes it on.
  void (*look)(void *context, struct recorder *c, const struct probed *p);
  void *look_context;
  uint32_t kinds; // bits of the deltaic_probe_kind values that are wanted

  struct op *ops;
  size_t count, capacity;
  struct value *values;
  size_t value_count, value_capacity;
  struct scope *scopes;
  size_t scope_count, scope_capacity;
  uint32_t scope;        // the open scope
  deltaic_status status; // first error
};

void oplist_begin(struct oplist *l) INSIDE(oplist_begin); // forgets the operations, keeps the allocated memory
void oplist_free(struct oplist *l) INSIDE(oplist_free);   // accepts a zeroed list

void oplist_scope_begin(struct oplist *l);
void oplist_scope_end(struct oplist *l);
// A new value of the open scope: (rows, cols) of f32, or of f16 where the product or rule that reads it in the end
// rounds to f16 anyway.
struct tensor oplist_value(struct oplist *l, uint32_t rows, uint32_t cols) INSIDE(oplist_value);
// The value t is stored at `at`. Inputs whose memory t takes over are stored there too.
void oplist_bind(struct oplist *l, struct tensor t, struct tensor at) INSIDE(oplist_bind);

// Each function records an operation. The tensors are those of the operation's struct, in its order.
// If table.low is set, this appends several operations, and x must be a value of the open scope.
void op_embed(struct oplist *l, struct tensor x, struct tensor table, struct tensor tokens) INSIDE(op_embed);
void op_mark(struct oplist *l, struct tensor seen, struct tensor tokens, struct tensor sequences);
void op_norm(struct oplist *l, struct tensor y, struct tensor x, struct tensor weight, struct tensor last, float eps)
    INSIDE(op_norm);
// If w.low is set, this appends several operations, and y, if it is a value, must belong to the open scope.
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
void op_route(struct oplist *l, const struct route *route);
void op_group(struct oplist *l, struct tensor order, struct tensor starts, struct tensor ids);
void op_experts(struct oplist *l, const struct experts *experts);
void op_mix(struct oplist *l, const struct mix *mix);
void op_sample(struct oplist *l, const struct sample *sample);
void op_copy(struct oplist *l, struct tensor to, struct tensor from) INSIDE(op_copy);
void op_scatter(struct oplist *l, struct tensor to, struct tensor from, struct tensor sequences);
void op_score(struct oplist *l, struct tensor scores, struct tensor logits, struct tensor targets, uint32_t first);
// Records nothing if no caller wants tensors of this kind, or if t is absent. rows x cols: t's shape as the caller sees
// it. layer: the sizes that are passed on with it.
void op_probe(struct oplist *l, deltaic_probe_kind kind, struct tensor t, size_t rows, size_t cols,
              const deltaic_probed *layer);

// ---------------------------------------------------------------- for backends

struct op_shape {
  const char *name;
  uint32_t writes, updates, reads; // numbers of tensors, in this order
};
extern const struct op_shape op_shapes[OP_KINDS];
static inline uint32_t op_tensors(enum op_kind kind) {
  return op_shapes[kind].writes + op_shapes[kind].updates + op_shapes[kind].reads;
}

static inline bool tensor_present(struct tensor t) { return t.buffer || t.value; }
static inline bool same_value(struct tensor a, struct tensor b) { return a.value && a.value == b.value; }
// Index of the only operation after `after` that reads the value t, and reads all of it. 0: several read it, or one
// reads a view.
uint32_t oplist_reader(const struct oplist *l, struct tensor t, uint32_t after);
// Which tensors of operation i, as bits, read values that nothing reads after it. Of several of one value the first.
uint32_t oplist_last_reads(const struct oplist *l, uint32_t i) INSIDE(oplist_last_reads);
// Bits of the tensors of operation i that are tiles: the views through which the list reads their value do not overlap,
// and together they are all of its columns.
uint32_t oplist_tiles(const struct oplist *l, uint32_t i) INSIDE(oplist_tiles);
// Whether the gradients of t and other, the terms of sum i (OP_ADD), can share memory: from the operation that writes t
// up to the sum, that one included, no operation is a sum, reads t, or reads or writes other.
bool oplist_is_own_term(const struct oplist *l, uint32_t i, struct tensor t, struct tensor other)
    INSIDE(oplist_is_own_term);
// All of the value that t is a view of.
struct tensor oplist_whole(const struct oplist *l, struct tensor t) INSIDE(oplist_whole);
// Decides which outputs reuse their inputs' memory, and places every value. Returns the bytes of scratch that the list
// needs, including own_bytes(b, l, op) for each operation by itself. *largest: bytes of the largest tensor.
struct backend;
typedef uint64_t (*oplist_bytes)(const struct backend *b, const struct oplist *l, const struct op *op);
uint64_t oplist_plan(struct oplist *l, const struct backend *b, oplist_bytes own_bytes, uint64_t *largest);
// The list's error, or DELTAIC_INTERNAL if its scratch is smaller than this.
deltaic_status oplist_check(const struct oplist *l, uint64_t bytes);
// The tensor, with a value replaced by its memory.
struct tensor oplist_tensor(const struct oplist *l, struct tensor t) INSIDE(oplist_tensor);
// Operation i, with values replaced by their memory.
struct op oplist_op(const struct oplist *l, uint32_t i) INSIDE(oplist_op);
// The own scratch of operation i: (1, bytes / 4); absent if it has none.
struct tensor oplist_own_scratch(const struct oplist *l, uint32_t i, uint64_t bytes);
#endif
