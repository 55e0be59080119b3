// Any bytes as config.json, with and without a small checkpoint: no crash, and sizes that later products can rely on.
#include "arch.h"
#include "ffn_dense.h"
#include "ffn_experts.h"
#include "mixer_attention.h"
#include "mixer_delta.h"
#include "mixer_mamba2.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok) {
  if (!ok) abort();
}

#define F16(name, shape, from, to)                                                                                     \
  "\"" name "\":{\"dtype\":\"F16\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"
enum { DATA = 1300, FILE_BYTES = 4096 };

// A few tensors of a model of width 8, enough to reach every place where they correct or contradict a config.
static const char *const tensors[] = {
    F16("model.embeddings.weight", "16,8", 0, 256),
    F16("model.layers.0.mlp.gate_proj.weight", "24,8", 256, 640),
    F16("model.layers.0.mlp.norm.weight", "8", 640, 656),
    F16("model.layers.0.attn.q_proj.weight", "6,8", 656, 752),
    F16("model.layers.0.attn.v_proj.weight", "12,8", 752, 944),
    F16("model.layers.0.attn.q_conv1d.weight", "6,1,3", 944, 980),
    F16("model.layers.1.attn.q_proj.weight", "4,8", 980, 1044),
    F16("lm_head.weight", "16,8", 1044, 1300),
};

static struct checkpoint *small_checkpoint(void) {
  static char file[FILE_BYTES];
  char *header = file + 8;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    strcat(header, i ? "," : "{");
    strcat(header, tensors[i]);
  }
  strcat(header, "}");
  uint64_t length = strlen(header);
  struct checkpoint *c;
  memcpy(file, &length, 8);
  check(checkpoint_parse("small.safetensors", file, 8 + length + DATA, &c) == DELTAIC_OK);
  return c;
}

static void check_ffn(const struct layer_spec *layer) {
  const struct dense_spec *mlp = layer->ffn_spec;
  const struct experts_spec *experts = layer->ffn_spec;
  check(!layer->ffn == !layer->ffn_spec);
  if (!layer->ffn) return;
  check(layer->ffn == &ffn_dense || layer->ffn == &ffn_experts);
  if (layer->ffn == &ffn_dense)
    check(mlp->F && 2ull * mlp->F <= INT32_MAX);
  else
    check(experts->k && experts->k <= experts->E && experts->F && 2ull * experts->E * experts->F <= INT32_MAX);
}

static void check_layer(const struct layer_spec *layer) {
  check_ffn(layer);
  if (layer->mixer == &mixer_attention) {
    const struct attention_spec *a = layer->spec;
    check(a->d && a->rotary <= a->d && a->rotary % 2 == 0 && a->kv_heads && a->heads % a->kv_heads == 0);
    check(!a->rotary || a->rope_theta > 0);
    return;
  }
  if (layer->mixer == &mixer_mamba2) {
    const struct mamba2_spec *a = layer->spec;
    check(a->heads && a->P && a->N && a->groups && a->heads % a->groups == 0);
    check((uint64_t)a->heads * a->P * a->N <= INT32_MAX);
    check((uint64_t)a->heads * a->P + 2ull * a->groups * a->N <= INT32_MAX);
    return;
  }
  const struct delta_spec *s = layer->spec;
  check(layer->mixer == &mixer_delta_net || layer->mixer == &mixer_gated_deltanet ||
        layer->mixer == &mixer_delta_product || layer->mixer == &mixer_gated_delta_product);
  check(s->H && s->Hv && s->Dk && s->Dv && s->Hv % s->H == 0);
  check(s->n && s->n <= DELTA_STEPS && s->r && s->r <= HH_MOST && s->Dk % s->r == 0 && (s->n == 1 || s->r == 1));
  check((1ull + s->n) * s->H * s->Dk + (uint64_t)s->n * s->Hv * s->Dv <= INT32_MAX);
  check((uint64_t)s->Hv * s->Dk * s->Dv <= INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct checkpoint *small;
  if (!small) small = small_checkpoint();
  if (size == 0) return 0;
  struct checkpoint *c = data[0] & 1 ? small : NULL;
  struct model_spec m;
  if (model_spec_parse("fuzz", (const char *)data + 1, size - 1, c, &m) != DELTAIC_OK) {
    check(deltaic_last_error()[0] != 0 && !m.layers);
    return 0;
  }
  check(m.D && m.V && m.L && m.layers);
  check(m.bos >= -1 && m.bos < (int64_t)m.V && m.eos >= -1 && m.eos < (int64_t)m.V);
  for (uint32_t i = 0; i < m.L; i++) check_layer(&m.layers[i]);
  if (c) {
    (void)names_find(m.names, c, 0, ROLE_FFN_NORM);
    (void)model_leftovers(c, &m);
  }
  model_spec_free(&m);
  return 0;
}
