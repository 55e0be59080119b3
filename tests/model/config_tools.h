// config_tools.h: what the tests of configs share: reading one, refusing one, and the specs of its layers.
#ifndef CONFIG_TOOLS_H
#define CONFIG_TOOLS_H
#include "arch.h"
#include "ffn_dense.h"
#include "mixer_attention.h"
#include "mixer_delta.h"
#include "mixer_mamba2.h"

#include "maker.h"

static inline void says(const char *text) {
  if (!strstr(deltaic_last_error(), text)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), text);
}

// JSON with ' for ", which keeps the cases readable.
static inline char *quoted(const char *text) {
  static char out[4096];
  size_t i = 0;
  for (; text[i]; i++) {
    assert_true(i + 1 < sizeof out);
    out[i] = text[i] == '\'' ? '"' : text[i];
  }
  out[i] = 0;
  return out;
}

static inline struct model_spec reads(const char *config, struct checkpoint *c) {
  struct model_spec m;
  const char *text = quoted(config);
  if (model_spec_parse("config.json", text, strlen(text), c, &m)) fail_msg("%s: %s", config, deltaic_last_error());
  return m;
}

static inline void refuses(const char *config, struct checkpoint *c, deltaic_status status, const char *message) {
  struct model_spec m;
  const char *text = quoted(config);
  deltaic_status got = model_spec_parse("config.json", text, strlen(text), c, &m);
  if (got != status) fail_msg("%s: status %d: %s", config, got, deltaic_last_error());
  assert_null(m.layers);
  says(message);
}

struct refusal {
  const char *config;
  deltaic_status status;
  const char *message;
};

static inline void refuse_each(const struct refusal *cases, size_t count) {
  for (size_t i = 0; i < count; i++) refuses(cases[i].config, NULL, cases[i].status, cases[i].message);
}
#define REFUSES(cases) refuse_each(cases, sizeof cases / sizeof *cases)

// Pairs of a config and what the message says.
static inline void refuse_as(deltaic_status status, const char *const (*cases)[2], size_t count) {
  for (size_t i = 0; i < count; i++) refuses(cases[i][0], NULL, status, cases[i][1]);
}
#define REFUSES_AS(status, cases) refuse_as(status, cases, sizeof cases / sizeof *cases)

static inline const struct delta_spec *delta(const struct model_spec *m, uint32_t i) {
  assert_true(i < m->L);
  assert_ptr_not_equal(m->layers[i].mixer, &mixer_attention);
  return m->layers[i].spec;
}

static inline const struct dense_spec *dense(const struct model_spec *m, uint32_t i) {
  assert_true(i < m->L);
  assert_ptr_equal(m->layers[i].ffn, &ffn_dense);
  return m->layers[i].ffn_spec;
}

static inline const struct mamba2_spec *mamba2(const struct model_spec *m, uint32_t i) {
  assert_true(i < m->L);
  assert_ptr_equal(m->layers[i].mixer, &mixer_mamba2);
  return m->layers[i].spec;
}

static inline const struct attention_spec *attention(const struct model_spec *m, uint32_t i) {
  assert_true(i < m->L);
  assert_ptr_equal(m->layers[i].mixer, &mixer_attention);
  return m->layers[i].spec;
}

// The names that most families have.
static inline const struct names *usual_names(void) {
  struct model_spec m = reads("{'model_type':'delta_net','num_hidden_layers':1}", NULL);
  const struct names *names = m.names;
  model_spec_free(&m);
  return names;
}

// A checkpoint of a single tensor.
static inline struct checkpoint *single(const char *name, unsigned rows, unsigned cols, unsigned depth) {
  struct maker *m = maker_begin();
  maker_add(m, name, rows, cols, depth);
  return maker_end(m);
}

#define L0 "model.layers.0."
#define L1 "model.layers.1."
#define DELTA "{'model_type':'delta_net','hidden_size':8,'num_hidden_layers':2,'num_heads':2,'vocab_size':16"
#define GATED                                                                                                          \
  "{'model_type':'gated_deltanet','hidden_size':8,'num_hidden_layers':2,'num_heads':2,'head_dim':4,'vocab_size':16"

#define PRODUCT                                                                                                        \
  "{'model_type':'gated_deltaproduct','hidden_size':8,'num_hidden_layers':2,'num_heads':2,'head_dim':4,'vocab_size':"  \
  "16"

#define MAMBA "{'model_type':'mamba2','hidden_size':8,'num_hidden_layers':2,'head_dim':4,'vocab_size':16"
#endif
