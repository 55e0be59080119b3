// adapter: see adapter.h.
#include "adapter.h"

#include "fingerprint.h"
#include "hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "base_model.model."
#define BIAS_END ".base_layer.bias" // of a layer that has adapters
#define WEIGHT_END ".base_layer.weight"
enum { NAME = 512 };

// The names of A and B. Those of an embedding are the transposes of our B and A: (rank, rows) and (cols, rank).
static const struct pair {
  const char *A, *B;
  bool swapped;
} pairs[] = {{".lora_A.weight", ".lora_B.weight", false}, {".lora_embedding_A", ".lora_embedding_B", true}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

// What changes one tensor of the base: A and B, or a whole tensor, or a whole tensor to which A and B are added.
struct change {
  const struct file_tensor *A, *B, *whole;
  bool swapped;
  float s;
};

struct adapter {
  const char *folder;
  struct checkpoint *base, *file;
  struct change *changes; // of a folder's tensors; as many as the file has tensors
  size_t count;
  int64_t rank; // of all A and B; 0: not given
  double alpha;
  bool root; // s is alpha / sqrt(rank)
};

// Whether the base is a GGUF file, whose layers ask for the adapter's tensors by role; else its tensors are changed.
static bool by_role(const struct adapter *a) { return checkpoint_keys(a->base) != NULL; }

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

void adapter_add(const struct adapter_product *p, float *w) {
  for (uint64_t i = 0; i < p->rows; i++)
    for (uint64_t r = 0; r < p->rank; r++) {
      const float factor = p->s * p->B[i * p->rank + r], *restrict from = p->A + r * p->cols;
      float *restrict to = w + i * p->cols;
      for (uint64_t k = 0; k < p->cols; k++) to[k] += factor * from[k];
    }
}

// ---------------------------------------------------------------- a tensor that is read

static void convert(enum file_dtype dtype, const float *w, uint64_t n, char *out) {
  for (uint64_t i = 0; i < n; i++) {
    const double wide = w[i];
    const uint16_t half = dtype == FILE_F16 ? f32_to_f16(w[i]) : f32_to_bf16(w[i]);
    if (dtype == FILE_F64) memcpy(out + i * 8, &wide, 8);
    if (dtype == FILE_F32) memcpy(out + i * 4, &w[i], 4);
    if (dtype == FILE_F16 || dtype == FILE_BF16) memcpy(out + i * 2, &half, 2);
  }
}

// out (cols, rows): the transpose of a matrix. Its values are read into `room`.
static void read_transposed(const struct file_tensor *t, float *out, float *room) {
  const uint64_t rows = t->shape[0], cols = t->shape[1];
  file_tensor_f32(t, 0, rows * cols, room);
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t k = 0; k < cols; k++) out[k * rows + i] = room[i * cols + k];
}

// room: for A and B, and for as many numbers again if they are swapped.
static void add_product(const struct file_tensor *t, const struct change *c, float *w, float *room) {
  const uint64_t a = elements(c->A), b = elements(c->B);
  float *A = room, *B = room + (c->swapped ? b : a);
  if (c->swapped) {
    read_transposed(c->B, A, room + a + b);
    read_transposed(c->A, B, room + a + b);
  } else {
    file_tensor_f32(c->A, 0, a, A);
    file_tensor_f32(c->B, 0, b, B);
  }
  adapter_add(&(struct adapter_product){t->shape[0], t->shape[1], c->A->shape[0], A, B, c->s}, w);
}

static deltaic_status apply(const struct file_tensor *t, void *data) {
  const struct change *c = t->changed_by;
  const uint64_t n = elements(t), room = c->A ? (c->swapped ? 2 : 1) * (elements(c->A) + elements(c->B)) : 0;
  struct file_tensor read = *t;
  float *w = malloc((size_t)(n + room) * sizeof *w);
  if (!w) return fail_memory(t->name, (n + room) * sizeof *w);
  read.data = data;
  file_tensor_f32(c->whole ? c->whole : &read, 0, n, w);
  if (c->A) add_product(t, c, w, w + n);
  convert(t->dtype, w, n, data);
  free(w);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- opening

// PEFT's first values that also change the model's own weights. A converted adapter has `true`.
static bool changes_model(const json_t *root) {
  const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
  return init && strcmp(init, "gaussian") && strcmp(init, "eva") && strcmp(init, "orthogonal");
}

static deltaic_status read_config(struct adapter *a, const char *path) {
  struct file_view view;
  json_t *root = NULL;
  deltaic_status status = file_map(path, &view);
  if (status) return status;
  status = json_parse(path, view.data, view.bytes, &root);
  if (status) {
    file_unmap(&view);
    return status;
  }
  struct json_reader r = {.file = path};
  const char *type = json_text(&r, root, "peft_type", "LORA");
  a->rank = json_int(&r, root, "r", 0, 1, 1 << 20);
  a->alpha = json_number(&r, root, "lora_alpha", 8, 0, 1e6);
  a->root = json_bool(&r, root, "use_rslora", false);
  const bool other = strcmp(type, "LORA") || json_bool(&r, root, "use_dora", false) ||
                     json_bool(&r, root, "fan_in_fan_out", false) || changes_model(root) ||
                     json_object_size(json_object_get(root, "rank_pattern")) ||
                     json_object_size(json_object_get(root, "alpha_pattern")) ||
                     json_present(root, "alora_invocation_tokens") || json_present(root, "layer_replication");
  status = r.status;
  if (!status && other)
    status =
        fail(DELTAIC_UNSUPPORTED,
             "%s: only plain LoRA is supported: no other peft_type, use_dora, fan_in_fan_out, rank_pattern, "
             "alpha_pattern, alora_invocation_tokens, layer_replication, or init_lora_weights that change the model",
             path);
  json_decref(root);
  file_unmap(&view);
  return status;
}

static bool strip_end(char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  if (length <= tail || strcmp(name + length - tail, end)) return false;
  name[length - tail] = 0;
  return true;
}

static deltaic_status fail_unknown(const struct adapter *a, const struct file_tensor *from) {
  const bool expert = by_role(a) && strstr(from->name, ".experts.");
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s is for no tensor of %s%s", a->folder, from->name,
              checkpoint_path(a->base), expert ? ", where single experts cannot be changed" : "");
}

static deltaic_status fail_twice(const struct adapter *a, const char *name) {
  return fail(DELTAIC_BAD_FILE, "%s: changes tensor %.200s twice", a->folder, name);
}

static deltaic_status fail_fit(const struct adapter *a, const struct file_tensor *from, const char *name) {
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s does not fit tensor %.200s of %s", a->folder, from->name,
              name, checkpoint_path(a->base));
}

// Checks change `c` of tensor `name`, which is (rows, cols), or (rows) if cols is 0, and sets c's scale. The caller
// checks the shape of c->whole.
static deltaic_status check_change(const struct adapter *a, struct change *c, uint64_t rows, uint64_t cols,
                                   const char *name) {
  const struct file_tensor *A = c->A, *B = c->B, *whole = c->whole;
  const uint64_t in = c->swapped ? rows : cols, out = c->swapped ? cols : rows;
  const bool fits = !A || (A->dtype <= FILE_BF16 && B->dtype <= FILE_BF16 && A->rank == 2 && B->rank == 2 && cols &&
                           A->shape[1] == in && B->shape[0] == out && A->shape[0] == B->shape[1] && A->shape[0]);
  if (whole && whole->dtype > FILE_BF16) return fail_fit(a, whole, name);
  if (!fits) return fail_fit(a, A, name);
  if (A && a->rank && A->shape[0] != (uint64_t)a->rank)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s has rank %llu, and r of adapter_config.json is %lld",
                a->folder, A->name, (unsigned long long)A->shape[0], (long long)a->rank);
  if (A) c->s = (float)(a->alpha / (a->root ? sqrt((double)A->shape[0]) : (double)A->shape[0]));
  return DELTAIC_OK;
}

static bool same_shape(const struct file_tensor *x, const struct file_tensor *y) {
  return x->rank == y->rank && !memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
}

static deltaic_status take(struct adapter *a, const struct file_tensor *from, const char *name, struct change c) {
  struct file_tensor *t = checkpoint_find(a->base, name);
  if (!t) return fail_unknown(a, from);
  if (t->changed_by) return fail_twice(a, name);
  if (t->dtype > FILE_BF16)
    return fail(DELTAIC_UNSUPPORTED,
                "%s: tensor %.200s of %s has the format %.20s; adapters need weights of 16 or 32 bits", a->folder, name,
                checkpoint_path(a->base), t->dtype_name);
  if (c.whole && !same_shape(c.whole, t)) return fail_fit(a, c.whole, name);
  const deltaic_status status =
      t->rank == 2 ? check_change(a, &c, t->shape[0], t->shape[1], name) : check_change(a, &c, elements(t), 0, name);
  if (status) return status;
  a->changes[a->count] = c;
  t->changed_by = &a->changes[a->count++];
  t->change = apply;
  t->data = NULL; // so that it is read, and then changed
  return DELTAIC_OK;
}

static struct file_tensor *find(struct adapter *a, const char *module, const char *end) {
  char name[NAME + sizeof WEIGHT_END];
  snprintf(name, sizeof name, "%s%s", module, end);
  return checkpoint_find(a->file, name);
}

// module: with PEFT's prefix. PEFT also stores the weight of an embedding that it adapts.
static deltaic_status take_pair(struct adapter *a, const struct file_tensor *A, char *module, const struct pair *pair) {
  const struct change c = {A, find(a, module, pair->B), find(a, module, WEIGHT_END), pair->swapped, 0};
  if (!c.B) return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is without its B, %s", a->folder, A->name, pair->B + 1);
  strcat(module, ".weight");
  return by_role(a) ? DELTAIC_OK : take(a, A, module + strlen(PREFIX), c);
}

// Checks the tensor's name. If the base is a folder, lets it change the base's tensor.
static deltaic_status take_tensor(struct adapter *a, const struct file_tensor *t) {
  const size_t prefix = strlen(PREFIX);
  bool known = false;
  char name[NAME];
  if (strncmp(t->name, PREFIX, prefix) || strlen(t->name) >= NAME)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has no name as PEFT gives them", a->folder, t->name);
  strcpy(name, t->name);
  for (int i = 0; i < PAIRS; i++) {
    if (strip_end(name, pairs[i].A)) return take_pair(a, t, name, &pairs[i]);
    if (!strip_end(name, pairs[i].B)) continue;
    if (find(a, name, pairs[i].A)) return DELTAIC_OK; // taken with A
    return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is without its A, %s", a->folder, t->name, pairs[i].A + 1);
  }
  if (strip_end(name, WEIGHT_END)) {
    for (int i = 0; i < PAIRS; i++) known |= find(a, name, pairs[i].A) != NULL;
    if (known) return DELTAIC_OK; // taken with A
    strcat(name, ".weight");
  }
  if (strip_end(name, BIAS_END)) strcat(name, ".bias");
  return by_role(a) ? DELTAIC_OK : take(a, t, name + prefix, (struct change){.whole = t});
}

static deltaic_status open_files(struct adapter *a, const char *config, const char *tensors) {
  deltaic_status status = read_config(a, config);
  if (!status) status = checkpoint_open(tensors, &a->file);
  if (!status && !(a->changes = calloc(checkpoint_count(a->file) + 1, sizeof *a->changes)))
    status = fail_memory("adapters", checkpoint_count(a->file) * sizeof *a->changes);
  for (uint64_t i = 0; !status && i < checkpoint_count(a->file); i++)
    status = take_tensor(a, checkpoint_at(a->file, i));
  return status;
}

deltaic_status adapter_open(const char *folder, struct checkpoint *base, struct adapter **out) {
  struct adapter *a = calloc(1, sizeof *a);
  char *config = path_join(folder, "adapter_config.json"), *tensors = path_join(folder, "adapter_model.safetensors");
  deltaic_status status = a && config && tensors ? DELTAIC_OK : fail_memory("adapters", sizeof *a);
  if (!status) {
    a->folder = folder;
    a->base = base;
    status = open_files(a, config, tensors);
  }
  free(config);
  free(tensors);
  if (status) {
    adapter_close(a);
    a = NULL;
  }
  *out = a;
  return status;
}

void adapter_close(struct adapter *a) {
  if (!a) return;
  checkpoint_close(a->file);
  free(a->changes);
  free(a);
}

deltaic_status adapter_check_merged(const char *model) {
  if (!gguf_is_file(model)) return DELTAIC_OK;
  return fail(DELTAIC_UNSUPPORTED, "%s: is a GGUF file; adapters are merged into a model's folder only", model);
}

// ---------------------------------------------------------------- over a GGUF file

struct look {
  struct adapter *a;
  struct file_tensor *whole, *A, *B; // of the name that was found
  bool swapped, twice;               // twice: the tensor is there whole and as a pair
};

// Finds what changes the tensor of this name in the folder.
static struct file_tensor *look_up(void *context, const char *name) {
  struct look *look = context;
  char text[NAME];
  snprintf(text, sizeof text, PREFIX "%s", name);
  struct file_tensor *whole = checkpoint_find(look->a->file, text);
  *look = (struct look){.a = look->a, .whole = whole};
  const bool weight = strip_end(text, ".weight");
  for (int i = 0; weight && i < PAIRS && !look->A; i++) {
    look->A = find(look->a, text, pairs[i].A);
    look->B = find(look->a, text, pairs[i].B);
    look->swapped = pairs[i].swapped;
  }
  look->twice = whole && look->A;
  if (!whole && weight) look->whole = find(look->a, text, WEIGHT_END);
  if (!whole && strip_end(text, ".bias")) look->whole = find(look->a, text, BIAS_END);
  return look->A ? look->A : look->whole;
}

static bool in_order(const struct row_map *map, const struct layer_spec *spec, uint32_t count) {
  for (uint32_t i = 0; map && i < count; i++)
    if (map->at(spec, i) != i) return false;
  return true;
}

deltaic_status adapter_find(struct adapter *a, const struct adapter_ask *ask, struct named_tensor *whole,
                            struct adapter_pair *pair) {
  struct look l = {.a = a};
  *whole = (struct named_tensor){0};
  *pair = (struct adapter_pair){0};
  if (!by_role(a)) return DELTAIC_OK;
  const struct named_tensor *base = ask->base;
  const struct names *names = ask->names->folder ? ask->names->folder : ask->names;
  const struct named_tensor found = names_look(names, look_up, &l, ask->layer, ask->role, ask->item);
  if (!found.tensor) return DELTAIC_OK;
  if (l.twice) return fail_twice(a, base->tensor->name);
  if (l.A && !(l.swapped ? ask->role == ROLE_EMBEDDING : role_is_projection(ask->role)))
    return fail(
        DELTAIC_UNSUPPORTED,
        "%s: tensor %.200s is for tensor %.200s of %s; in a GGUF file A and B change projections and embeddings only",
        a->folder, l.A->name, base->tensor->name, checkpoint_path(a->base));
  struct change c = {.A = l.A, .B = l.B, .whole = l.whole, .swapped = l.swapped};
  const uint64_t rows = found.rows ? found.rows->count(ask->spec) : ask->rows;
  if (l.whole && !file_tensor_is(l.whole, rows, ask->cols)) return fail_fit(a, l.whole, base->tensor->name);
  deltaic_status status = check_change(a, &c, rows, ask->cols, base->tensor->name);
  if (!status && l.whole && !in_order(base->column_order, ask->spec, ask->cols))
    status = fail(DELTAIC_UNSUPPORTED,
                  "%s: tensor %.200s cannot replace tensor %.200s of %s, whose columns have another order", a->folder,
                  l.whole->name, base->tensor->name, checkpoint_path(a->base));
  if (!status && l.A) status = file_tensor_load(l.A);
  if (!status && l.B) status = file_tensor_load(l.B);
  if (status) return status;
  if (l.whole) *whole = found;
  whole->tensor = l.whole;
  whole->row_order = base->row_order;
  if (l.A) *pair = (struct adapter_pair){l.A, l.B, base->row_order, found.rows, base->column_order, c.s, l.swapped};
  struct file_tensor *const used[] = {l.whole, l.A, l.B};
  for (int i = 0; i < 3; i++)
    if (used[i]) used[i]->used = true;
  return DELTAIC_OK;
}

deltaic_status adapter_leftovers(struct adapter *a) {
  for (uint64_t i = 0; by_role(a) && i < checkpoint_count(a->file); i++)
    if (!checkpoint_at(a->file, i)->used) return fail_unknown(a, checkpoint_at(a->file, i));
  return DELTAIC_OK;
}

deltaic_status adapter_fingerprint(struct adapter *a, uint64_t *fingerprint) {
  struct fingerprint f = {0};
  uint64_t hash = 0;
  if (!by_role(a)) return DELTAIC_OK;
  deltaic_status status = fingerprint_begin(&f, a->file, 1);
  if (!status) status = fingerprint_find(&f, &hash);
  fingerprint_end(&f);
  hash = hash_bytes(hash, &a->alpha, sizeof a->alpha);
  *fingerprint = hash_word(hash_word(*fingerprint, hash), a->root);
  return status;
}
