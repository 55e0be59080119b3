// quant_qwen: see quant_qwen.h. In the file norms are stored as their weight, A_log as -exp(A_log), q, k and v of all
// heads one after the other, and the value heads of Qwen3.5 tiled: (i, key head) in place of (key head, i). Which rows
// a role has in a tensor, in the folder and in the file, is in the tables of names (names_qwen.c).
#include "quant_qwen.h"

#include "ffn_dense.h"
#include "ffn_experts.h"
#include "mixer.h"
#include "mixer_attention.h"
#include "mixer_delta.h"
#include "names_qwen.h"

#include <stdio.h>
#include <string.h>

static const char *const dense_sources[] = {"qwen3_5", "qwen3_5_text", NULL};
static const char *const expert_sources[] = {"qwen3_5_moe", "qwen3_5_moe_text", NULL};
static const char *const next_sources[] = {"qwen3_next", NULL};
#define TABLES(names) .delta = (names), .attention = &names_qwen_gguf_attention
static const struct quant_family families[] = {
    {"qwen35", dense_sources, "qwen35", TABLES(&names_qwen_gguf_delta), .tiled = true, .sections = true},
    {"qwen35moe", expert_sources, "qwen35", TABLES(&names_qwen_gguf_delta), .experts = true, .tiled = true,
     .sections = true},
    {"qwen3next", next_sources, "qwen2", TABLES(&names_qwen_gguf_next), .experts = true},
};

// ---------------------------------------------------------------- whether the model fits

static const void *first_spec(const struct model_spec *spec, bool attention) {
  for (uint32_t i = 0; i < spec->L; i++)
    if ((spec->layers[i].mixer == &mixer_attention) == attention) return spec->layers[i].spec;
  return NULL;
}

static bool same_sizes(const struct delta_spec *a, const struct delta_spec *b) {
  return a->H == b->H && a->Hv == b->Hv && a->Dk == b->Dk && a->Dv == b->Dv && a->W == b->W;
}

// The file has one size for all layers of a kind, no biases, and the same FFN everywhere.
static bool fits(const struct quant_family *f, const struct model_spec *spec) {
  const struct delta_spec *delta = first_spec(spec, false);
  const struct attention_spec *attention = first_spec(spec, true);
  if (!delta || !attention || attention->bias || attention->output_bias) return false;
  for (uint32_t i = 0; i < spec->L; i++) {
    const struct layer_spec *l = &spec->layers[i];
    if (l->mixer != &mixer_attention && !same_sizes(l->spec, delta)) return false;
    if (l->ffn != (f->experts ? &ffn_experts : &ffn_dense)) return false;
    const struct experts_spec *experts = f->experts ? l->ffn_spec : NULL;
    if (experts && (!experts->normalized || !experts->shared)) return false;
  }
  return true;
}

const struct quant_family *quant_family_of(const struct model_spec *spec) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    for (const char *const *name = families[i].sources; *name; name++)
      if (!strcmp(*name, spec->architecture)) return fits(&families[i], spec) ? &families[i] : NULL;
  return NULL;
}

bool quant_family_everywhere(const struct model_spec *spec) {
  const struct delta_spec *delta = first_spec(spec, false);
  return delta->Dk == delta->Dv;
}

// ---------------------------------------------------------------- tensors

static const struct names *names_of(const struct quant *q, uint32_t layer) {
  return q->spec.layers[layer].mixer == &mixer_attention ? q->family->attention : q->family->delta;
}

// A role in the folder: one tensor, a list of them, or half of each expert's rows.
struct found {
  struct named_tensor tensor;
  bool list;
  uint64_t half, halves; // the expert's rows are part `half` of so many
};

static struct found find(const struct quant *q, uint32_t layer, enum role role) {
  const struct names *names = layer_names(&q->spec, layer);
  struct found f = {.tensor = names_find(names, q->checkpoint, layer, role), .halves = 1};
  if (f.tensor.tensor) return f;
  f.tensor = names_item(names, q->checkpoint, layer, role, 0);
  f.list = f.tensor.tensor != NULL;
  if (f.list || (role != ROLE_EXPERTS_GATE && role != ROLE_EXPERTS_UP)) return f;
  f.tensor = names_find(names, q->checkpoint, layer, ROLE_EXPERTS_GATE_UP);
  f.half = role == ROLE_EXPERTS_UP;
  f.halves = 2;
  return f;
}

static bool is_expert(enum role role) {
  return role == ROLE_EXPERTS_GATE || role == ROLE_EXPERTS_UP || role == ROLE_EXPERTS_DOWN;
}

static bool is_vector(enum role role) {
  return role == ROLE_FINAL_NORM || role == ROLE_MIXER_NORM || role == ROLE_FFN_NORM || role == ROLE_Q_NORM ||
         role == ROLE_K_NORM || role == ROLE_A_LOG || role == ROLE_STEP_BIAS || role == ROLE_OUTPUT_NORM ||
         role == ROLE_SHARED_SCALE;
}

// Rows of a role that shares a tensor with others.
static uint64_t role_rows(const struct layer_spec *l, enum role role) {
  if (l->mixer == &mixer_attention) {
    const struct attention_spec *s = l->spec;
    return (uint64_t)s->heads * s->d;
  }
  const struct delta_spec *s = l->spec;
  switch (role) {
  case ROLE_BETA:
  case ROLE_DECAY: return s->Hv;
  case ROLE_Q:
  case ROLE_K:
  case ROLE_Q_CONV:
  case ROLE_K_CONV: return (uint64_t)s->H * s->Dk;
  default: return (uint64_t)s->Hv * s->Dv;
  }
}

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static void shape_of(const struct quant *q, struct quant_tensor *t, const struct tensor_name *name, struct found f) {
  const struct layer_spec *l = &q->spec.layers[t->layer];
  const struct file_tensor *from = f.tensor.tensor;
  if (is_vector(t->role)) {
    t->rank = 1;
    t->shape[0] = elements(from);
  } else if (is_expert(t->role)) {
    const struct experts_spec *s = l->ffn_spec;
    t->rank = 3;
    t->shape[0] = s->E;
    t->shape[1] = t->role == ROLE_EXPERTS_DOWN ? q->spec.D : s->F;
    t->shape[2] = t->role == ROLE_EXPERTS_DOWN ? s->F : q->spec.D;
  } else {
    const uint64_t columns = elements(from) / from->shape[0];
    t->rank = 2;
    t->shape[0] = name->rows ? name->rows->count(l) : f.tensor.rows ? role_rows(l, t->role) : from->shape[0];
    t->shape[1] = columns;
  }
}

static bool reordered(const struct quant *q, uint32_t layer) {
  const struct delta_spec *s = q->spec.layers[layer].spec;
  return q->family->tiled && q->spec.layers[layer].mixer != &mixer_attention && s->H != s->Hv;
}

// The tensor is in the file as it is in the folder, but for its shape and what is added.
static bool is_plain(const struct quant *q, const struct quant_tensor *t, const struct tensor_name *name,
                     struct found f) {
  return !f.list && f.halves == 1 && !name->rows && !f.tensor.rows && !(name->row_order && reordered(q, t->layer));
}

static const struct quant_tensor *listed(const struct quant *q, const char *name) {
  for (size_t i = q->count; i-- > 0;)
    if (!strcmp(q->tensors[i].name, name)) return &q->tensors[i];
  return NULL;
}

static void name_of(const struct tensor_name *n, uint32_t layer, char *text, size_t capacity) {
  const char *mark = strchr(n->pattern, '#');
  if (mark)
    snprintf(text, capacity, "%.*s%u%s", (int)(mark - n->pattern), n->pattern, layer, mark + 1);
  else
    snprintf(text, capacity, "%s", n->pattern);
}

static deltaic_status fail_rows(const struct quant *q, const struct file_tensor *t) {
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %.200s does not have the shape that the config gives it", q->path,
              t->name);
}

static deltaic_status check_type(const struct quant *q, const struct file_tensor *t) {
  if (t->dtype > FILE_BLOCKS_LAST)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has dtype %.40s, which is not supported for weights", q->path,
                t->name, t->dtype_name);
  if (t->rank >= 1 && elements(t)) return DELTAIC_OK;
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %.200s is empty", q->path, t->name);
}

static deltaic_status list_role(struct quant *q, uint32_t layer, const struct tensor_name *name) {
  char text[64];
  deltaic_status status;
  const struct found f = find(q, layer, name->role);
  name_of(name, layer, text, sizeof text);
  if (!f.tensor.tensor || (name->role == ROLE_HEAD && q->spec.tied) || listed(q, text)) return DELTAIC_OK;
  status = check_type(q, f.tensor.tensor);
  struct quant_tensor *t = status ? NULL : quant_add(q, text, &status);
  if (!t) return status;
  t->known = true;
  t->role = name->role;
  t->layer = layer;
  t->plus = f.tensor.plus - name->plus;
  t->minus_exp = name->minus_exp;
  shape_of(q, t, name, f);
  if (is_plain(q, t, name, f)) t->source = f.tensor.tensor;
  if (t->source && elements(t->source) != quant_rows(t) * quant_columns(t)) return fail_rows(q, t->source);
  if (reordered(q, layer)) t->column_order = name->column_order;
  return DELTAIC_OK;
}

// A role's first name in the chain of tables counts. Gates and ups of experts are written apart.
static deltaic_status list_layer(struct quant *q, uint32_t layer) {
  deltaic_status status = DELTAIC_OK;
  bool done[ROLE_OUTPUT_BIAS + 1] = {[ROLE_EXPERTS_GATE_UP] = true};
  for (const struct names *n = names_of(q, layer); n; n = n->base)
    for (const struct tensor_name *t = n->tensors; t->pattern && !status; t++) {
      const bool inside = strchr(t->pattern, '#') != NULL;
      if (done[t->role] || (!inside && layer)) continue;
      done[t->role] = true;
      status = list_role(q, layer, t);
    }
  return status;
}

deltaic_status quant_list_family(struct quant *q) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < q->spec.L; i++) {
    struct layer_spec *l = &q->spec.layers[i];
    if (l->mixer != &mixer_attention) ((struct delta_spec *)l->spec)->tiled = q->family->tiled;
  }
  for (uint32_t i = 0; i < q->spec.L && !status; i++) status = list_layer(q, i);
  return status;
}

// ---------------------------------------------------------------- rows

static deltaic_status put_row(const struct quant *q, const struct quant_tensor *t, struct file_tensor *from,
                              uint64_t row, struct quant_row *out) {
  const uint64_t columns = t->rank == 1 ? 1 : quant_columns(t);
  *out = (struct quant_row){from, row};
  return elements(from) / columns > row && elements(from) % columns == 0 ? DELTAIC_OK : fail_rows(q, from);
}

static deltaic_status find_expert_rows(const struct quant *q, const struct quant_tensor *t, struct quant_row *rows) {
  const struct found f = find(q, t->layer, t->role);
  deltaic_status status = DELTAIC_OK;
  for (uint64_t e = 0; e < t->shape[0] && !status; e++) {
    struct file_tensor *from = f.tensor.tensor;
    if (f.list)
      from = names_item(layer_names(&q->spec, t->layer), q->checkpoint, t->layer, t->role, (uint32_t)e).tensor;
    if (!from) return fail(DELTAIC_BAD_FILE, "%s: expert %u of layer %u is missing", q->path, (unsigned)e, t->layer);
    status = check_type(q, from);
    for (uint64_t r = 0; r < t->shape[1] && !status; r++) {
      const uint64_t row = f.list ? r : (e * f.halves + f.half) * t->shape[1] + r;
      status = put_row(q, t, from, row, &rows[e * t->shape[1] + r]);
    }
  }
  return status;
}

// The rows of all roles that the table places in this tensor.
deltaic_status quant_find_rows(const struct quant *q, const struct quant_tensor *t, struct quant_row *rows) {
  const struct layer_spec *l = &q->spec.layers[t->layer];
  const uint64_t count = t->rank == 1 ? t->shape[0] : quant_rows(t);
  deltaic_status status = DELTAIC_OK;
  char text[64];
  if (is_expert(t->role)) return find_expert_rows(q, t, rows);
  for (const struct names *n = names_of(q, t->layer); n; n = n->base)
    for (const struct tensor_name *name = n->tensors; name->pattern && !status; name++) {
      name_of(name, t->layer, text, sizeof text);
      if (strcmp(text, t->name)) continue;
      const struct named_tensor from = find(q, t->layer, name->role).tensor;
      const uint64_t all = name->rows || from.rows ? role_rows(l, name->role) : count;
      for (uint64_t r = 0; r < all && from.tensor && !status; r++) {
        const uint64_t to = name->rows ? name->rows->at(l, (uint32_t)r) : r;
        const uint64_t row = row_mapped(name->row_order, l, r);
        status = put_row(q, t, from.tensor, from.rows ? from.rows->at(l, (uint32_t)row) : row, &rows[to]);
      }
    }
  for (uint64_t r = 0; r < count && !status; r++)
    if (!rows[r].tensor) status = fail(DELTAIC_BAD_FILE, "%s: a part of %s is missing", q->path, t->name);
  return status;
}

// ---------------------------------------------------------------- keys

struct prefixed {
  struct gguf_writer *w;
  const char *family;
};

static const char *key(const struct prefixed *p, const char *name, char text[128]) {
  snprintf(text, 128, "%s.%s", p->family, name);
  return text;
}

static void put_u32(const struct prefixed *p, const char *name, uint32_t value) {
  char text[128];
  gguf_key_u32(p->w, key(p, name, text), value);
}

static void put_f32(const struct prefixed *p, const char *name, double value) {
  char text[128];
  gguf_key_f32(p->w, key(p, name, text), (float)value);
}

static void put_list(const struct prefixed *p, const char *name, json_t *list) {
  char text[128];
  if (!list && !p->w->status) p->w->status = fail_memory("a list of layers", 0);
  gguf_key_list(p->w, key(p, name, text), list);
  json_decref(list);
}

// The n of which every n-th layer is attention; or which ones are.
static void put_layers(const struct prefixed *p, const struct model_spec *spec) {
  uint32_t every = 1;
  while (every < spec->L && spec->layers[every - 1].mixer != &mixer_attention) every++;
  bool regular = true;
  json_t *list = json_array();
  for (uint32_t i = 0; i < spec->L; i++) {
    const bool full = spec->layers[i].mixer == &mixer_attention;
    regular &= full == ((i + 1) % every == 0);
    json_array_append_new(list, json_boolean(!full));
  }
  put_u32(p, "full_attention_interval", every);
  if (regular)
    json_decref(list);
  else
    put_list(p, "attention.recurrent_layers", list);
}

static void put_ffn(const struct prefixed *p, const struct model_spec *spec, bool experts) {
  if (!experts) {
    put_u32(p, "feed_forward_length", ((const struct dense_spec *)spec->layers[0].ffn_spec)->F);
    return;
  }
  const struct experts_spec *s = spec->layers[0].ffn_spec;
  put_u32(p, "expert_count", s->E);
  put_u32(p, "expert_used_count", s->k);
  put_u32(p, "expert_feed_forward_length", s->F);
  put_u32(p, "expert_shared_feed_forward_length", s->shared);
}

void quant_family_keys(const struct quant *q, struct gguf_writer *w) {
  const struct model_spec *spec = &q->spec;
  const struct prefixed p = {w, q->family->name};
  const struct delta_spec *d = first_spec(spec, false);
  const struct attention_spec *a = first_spec(spec, true);
  put_u32(&p, "block_count", spec->L);
  put_u32(&p, "context_length", spec->context ? spec->context : 1 << 15);
  put_u32(&p, "embedding_length", spec->D);
  put_u32(&p, "vocab_size", spec->V);
  put_ffn(&p, spec, q->family->experts);
  put_u32(&p, "attention.head_count", a->heads);
  put_u32(&p, "attention.head_count_kv", a->kv_heads);
  put_u32(&p, "attention.key_length", a->d);
  put_u32(&p, "attention.value_length", a->d);
  put_f32(&p, "attention.layer_norm_rms_epsilon", (double)spec->norm_eps);
  put_u32(&p, "rope.dimension_count", a->rotary);
  put_f32(&p, "rope.freq_base", a->rope_theta);
  if (q->family->sections) // of text all sections have equal positions
    put_list(&p, "rope.dimension_sections", json_pack("[i, i, i, i]", (int)(a->rotary / 2), 0, 0, 0));
  put_u32(&p, "ssm.conv_kernel", d->W);
  put_u32(&p, "ssm.state_size", d->Dk);
  put_u32(&p, "ssm.group_count", d->H);
  put_u32(&p, "ssm.time_step_rank", d->Hv);
  put_u32(&p, "ssm.inner_size", d->Hv * d->Dv);
  put_layers(&p, spec);
}
