// quant_plan: lists the tensors of the file that is to be written. Those of a family that llama.cpp knows get its names
// (quant_qwen.c); all others keep their names and shapes.
#include "quantize.h"

#include "model.h"
#include "quant_qwen.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tensors that keep their names

static bool find_role(const struct quant *q, struct quant_tensor *t) {
  static const enum role roles[] = {ROLE_EMBEDDING,
                                    ROLE_HEAD,
                                    ROLE_FFN_GATE,
                                    ROLE_FFN_UP,
                                    ROLE_FFN_DOWN,
                                    ROLE_EXPERTS_GATE_UP,
                                    ROLE_EXPERTS_GATE,
                                    ROLE_EXPERTS_UP,
                                    ROLE_EXPERTS_DOWN,
                                    ROLE_SHARED_GATE,
                                    ROLE_SHARED_UP,
                                    ROLE_SHARED_DOWN,
                                    ROLE_Q,
                                    ROLE_K,
                                    ROLE_V,
                                    ROLE_GATE,
                                    ROLE_BETA,
                                    ROLE_DECAY,
                                    ROLE_MASK,
                                    ROLE_Z,
                                    ROLE_XBC,
                                    ROLE_DT,
                                    ROLE_OUTPUT};
  const struct names *before = NULL;
  for (uint32_t i = 0; i < q->spec.L; i++) {
    const struct names *names = layer_names(&q->spec, i);
    uint32_t layer = 0;
    if (names != before && names_match(names, t->name, roles, sizeof roles / sizeof *roles, &t->role, &layer) &&
        layer < q->spec.L && layer_names(&q->spec, layer) == names) {
      t->layer = layer;
      return true;
    }
    before = names;
  }
  return false;
}

// Whether it belongs to a layer after the last one of a GGUF file, which predicts a second token.
static bool is_beyond(const struct quant *q, const char *name) {
  return checkpoint_keys(q->checkpoint) && !strncmp(name, "blk.", 4) && strtoul(name + 4, NULL, 10) >= q->spec.L;
}

static deltaic_status list_one(struct quant *q, struct file_tensor *from) {
  deltaic_status status;
  if (from->rank < 1 || from->rank > GGUF_RANK)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has %d dimensions; GGUF has from 1 to %d", q->path, from->name,
                from->rank, GGUF_RANK);
  struct quant_tensor *t = quant_add(q, from->name, &status);
  if (!t) return status;
  t->rank = from->rank;
  t->source = from;
  memcpy(t->shape, from->shape, sizeof t->shape);
  t->known = find_role(q, t);
  t->raw = is_beyond(q, from->name) ? gguf_type_named(from->dtype_name) : NULL;
  if (t->raw || from->dtype <= FILE_BLOCKS_LAST) return DELTAIC_OK;
  return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has dtype %.40s, which is not supported for weights", q->path,
              from->name, from->dtype_name);
}

// A head that is a copy of the embedding is left out.
static bool is_copy(const struct quant *q, const char *name) {
  char head[64];
  names_write(layer_names(&q->spec, 0), 0, ROLE_HEAD, head, sizeof head);
  return q->spec.tied && !strcmp(name, head);
}

static deltaic_status list_all(struct quant *q) {
  deltaic_status status = DELTAIC_OK;
  for (uint64_t i = 0; i < checkpoint_count(q->checkpoint) && !status; i++) {
    struct file_tensor *from = checkpoint_at(q->checkpoint, i);
    if (!names_ignored(q->spec.names, from->name) && !is_copy(q, from->name)) status = list_one(q, from);
  }
  return status;
}

// Counts what names_ignored() leaves out, and keeps the first name.
static deltaic_status count_left_out(struct quant *q) {
  for (uint64_t i = 0; i < checkpoint_count(q->checkpoint); i++) {
    const char *name = checkpoint_at(q->checkpoint, i)->name;
    if (!names_ignored(q->spec.names, name)) continue;
    if (!q->left_out++) q->left_out_first = strdup(name);
    if (!q->left_out_first) return fail_memory("a name", strlen(name) + 1);
  }
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- the plan

// Refuses what could not be run: a missing tensor, a wrong shape, a tensor that no layer uses.
static deltaic_status check_model(const char *path, const char *adapter) {
  struct deltaic_model m = {0};
  const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_status status = model_declare(&m, NULL, path, &o);
  model_clear(&m);
  return status;
}

deltaic_status quant_open(const char *path, const char *adapter, const struct quant_type *type, struct quant *q) {
  *q = (struct quant){.path = path, .type = type};
  deltaic_status status = adapter ? adapter_check_merged(path) : DELTAIC_OK;
  if (!status) status = check_model(path, adapter);
  if (!status) status = checkpoint_open_folder(path, &q->checkpoint);
  if (!status && adapter) status = adapter_open(adapter, q->checkpoint, &q->adapter);
  if (!status) status = model_spec_read(path, q->checkpoint, &q->spec);
  if (status) return status;
  if (!checkpoint_keys(q->checkpoint)) q->family = quant_family_of(&q->spec);
  status = count_left_out(q);
  if (!status) status = q->family ? quant_list_family(q) : list_all(q);
  if (!status) quant_choose(q);
  return status;
}

void quant_close_files(struct quant *q) {
  for (size_t i = 0; i < q->count; i++) q->tensors[i].source = NULL;
  if (q->spec.layers) model_spec_free(&q->spec);
  adapter_close(q->adapter);
  checkpoint_close(q->checkpoint);
  q->adapter = NULL;
  q->checkpoint = NULL;
}

void quant_close(struct quant *q) {
  quant_close_files(q);
  for (size_t i = 0; i < q->count; i++) free(q->tensors[i].name);
  free(q->tensors);
  free(q->left_out_first);
  *q = (struct quant){0};
}
