// adapter: see adapter.h.
#include "adapter.h"

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
  const char *folder; // while it opens
  struct checkpoint *file;
  struct change *changes; // as many as the file has tensors
  size_t count;
  int64_t rank; // of all A and B; 0: not given
  double alpha;
  bool root; // s is alpha / sqrt(rank)
};

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
  a->rank = json_int(&r, root, "r", 0, 0, 1 << 20);
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

static deltaic_status take(struct adapter *a, struct checkpoint *base, const struct file_tensor *from, const char *name,
                           struct change c) {
  struct file_tensor *t = checkpoint_find(base, name);
  if (!t)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s is for no tensor of %s", a->folder, from->name,
                checkpoint_path(base));
  if (t->changed_by) return fail(DELTAIC_BAD_FILE, "%s: changes tensor %.200s twice", a->folder, name);
  if (t->dtype > FILE_BF16)
    return fail(DELTAIC_UNSUPPORTED,
                "%s: tensor %.200s of %s has the format %.20s; adapters need weights of 16 or 32 bits", a->folder, name,
                checkpoint_path(base), t->dtype_name);
  const bool fits =
      (!c.whole || elements(c.whole) == elements(t)) &&
      (!c.A || (t->rank == 2 && c.A->rank == 2 && c.B->rank == 2 && c.A->shape[1] == t->shape[c.swapped ? 0 : 1] &&
                c.B->shape[0] == t->shape[c.swapped ? 1 : 0] && c.A->shape[0] == c.B->shape[1] && c.A->shape[0]));
  const bool floats =
      (!c.whole || c.whole->dtype <= FILE_BF16) && (!c.A || (c.A->dtype <= FILE_BF16 && c.B->dtype <= FILE_BF16));
  if (!fits || !floats)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s does not fit tensor %.200s of %s", a->folder, from->name,
                name, checkpoint_path(base));
  if (c.A && a->rank && c.A->shape[0] != (uint64_t)a->rank)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %.200s has rank %llu, and r of adapter_config.json is %lld",
                a->folder, from->name, (unsigned long long)c.A->shape[0], (long long)a->rank);
  if (c.A) c.s = (float)(a->alpha / (a->root ? sqrt((double)c.A->shape[0]) : (double)c.A->shape[0]));
  a->changes[a->count] = c;
  t->changed_by = &a->changes[a->count++];
  t->change = apply;
  t->data = NULL; // so that it is read, and then changed
  return DELTAIC_OK;
}

static const struct file_tensor *find(struct adapter *a, const char *module, const char *end) {
  char name[NAME + sizeof WEIGHT_END];
  snprintf(name, sizeof name, "%s%s", module, end);
  return checkpoint_find(a->file, name);
}

// module: with PEFT's prefix. PEFT also stores the weight of an embedding that it adapts.
static deltaic_status take_pair(struct adapter *a, struct checkpoint *base, const struct file_tensor *A, char *module,
                                const struct pair *pair) {
  const struct change c = {A, find(a, module, pair->B), find(a, module, WEIGHT_END), pair->swapped, 0};
  if (!c.B) return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is without its B, %s", a->folder, A->name, pair->B + 1);
  strcat(module, ".weight");
  return take(a, base, A, module + strlen(PREFIX), c);
}

static deltaic_status take_tensor(struct adapter *a, struct checkpoint *base, const struct file_tensor *t) {
  const size_t prefix = strlen(PREFIX);
  bool known = false;
  char name[NAME];
  if (strncmp(t->name, PREFIX, prefix) || strlen(t->name) >= NAME)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has no name as PEFT gives them", a->folder, t->name);
  strcpy(name, t->name);
  for (int i = 0; i < PAIRS; i++) {
    if (strip_end(name, pairs[i].A)) return take_pair(a, base, t, name, &pairs[i]);
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
  return take(a, base, t, name + prefix, (struct change){.whole = t});
}

static deltaic_status open_files(struct adapter *a, struct checkpoint *base, const char *config, const char *tensors) {
  deltaic_status status = read_config(a, config);
  if (!status) status = checkpoint_open(tensors, &a->file);
  if (!status && !(a->changes = calloc(checkpoint_count(a->file) + 1, sizeof *a->changes)))
    status = fail_memory("adapters", checkpoint_count(a->file) * sizeof *a->changes);
  for (uint64_t i = 0; !status && i < checkpoint_count(a->file); i++)
    status = take_tensor(a, base, checkpoint_at(a->file, i));
  return status;
}

deltaic_status adapter_open(const char *folder, struct checkpoint *base, struct adapter **out) {
  struct adapter *a = calloc(1, sizeof *a);
  char *config = path_join(folder, "adapter_config.json"), *tensors = path_join(folder, "adapter_model.safetensors");
  deltaic_status status = a && config && tensors ? DELTAIC_OK : fail_memory("adapters", sizeof *a);
  if (!status && checkpoint_keys(base))
    status = fail(DELTAIC_UNSUPPORTED, "%s: is a GGUF file; adapters need a model's folder", checkpoint_path(base));
  if (!status) {
    a->folder = folder;
    status = open_files(a, base, config, tensors);
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
