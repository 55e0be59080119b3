// bench_experts: for a mixture of experts, measures how many experts tokens choose, and the weights that are read for
// them.
#include "bench.h"

#include <stdlib.h>
#include <string.h>

// Which experts of the layer that is being counted are chosen; layers come one after the other.
struct seen {
  uint8_t *chosen; // one for each expert
  int32_t experts, layer;
  uint64_t distinct, layers; // sums over the layers
  size_t rows;               // tokens of the last evaluation that was probed
};

static bool on_chosen(void *user, const deltaic_probed *p) {
  struct seen *s = user;
  s->rows = p->rows;
  if (p->layer != s->layer) {
    memset(s->chosen, 0, (size_t)s->experts);
    s->layer = p->layer;
    ++s->layers;
  }
  for (size_t i = 0; i < p->rows * p->cols; ++i) {
    const int32_t e = (int32_t)p->data[i];
    if (e < 0 || e >= s->experts || s->chosen[e]) continue;
    s->chosen[e] = 1;
    ++s->distinct;
  }
  return true;
}

static deltaic_status evaluate(const struct bench *b, uint32_t tokens) {
  deltaic_status status = deltaic_session_reset(b->session);
  return status ? status : deltaic_session_eval(b->session, b->tokens, tokens, DELTAIC_LOGITS_NONE, NULL);
}

// *whole receives whether the tokens were evaluated at once, not in slices.
static deltaic_status count_chosen(const struct bench *b, struct experts_row *row, bool *whole) {
  const deltaic_model_info *m = &b->engine.model_info;
  struct seen seen = {.chosen = must_resize(NULL, (size_t)m->experts), .experts = m->experts, .layer = -1};
  deltaic_status status = deltaic_session_probe(b->session, DELTAIC_PROBE_EXPERTS, on_chosen, &seen);
  if (!status) status = evaluate(b, row->tokens);
  if (!status) status = deltaic_session_probe(b->session, 0, NULL, NULL);
  free(seen.chosen);
  *whole = seen.rows == row->tokens;
  if (status || !seen.layers) return status;
  row->chosen = (double)seen.distinct / (double)seen.layers;
  row->bytes = (uint64_t)((double)m->expert_bytes * row->chosen / m->experts);
  return DELTAIC_OK;
}

static deltaic_status time_kernels(const struct bench *b, struct experts_row *row) {
  deltaic_kernel_time times[KERNELS];
  size_t count = 0;
  deltaic_status status = evaluate(b, row->tokens); // compiles, and warms up
  if (!status) status = deltaic_session_profile_begin(b->session);
  if (!status) status = evaluate(b, row->tokens);
  if (!status) status = deltaic_session_profile_end(b->session, times, KERNELS, &count);
  for (size_t i = 0; i < count && i < KERNELS; ++i)
    if (strstr(times[i].name, "experts")) row->seconds += times[i].seconds;
  return status;
}

deltaic_status bench_experts_measure(struct bench *b, const struct engine_options *options) {
  static const uint32_t sizes[EXPERT_ROWS] = {1, 2, 4, 16, 64, 256, 512, 2048};
  struct engine_options one = *options;
  one.sequences = 1;
  deltaic_session_options session = session_options(&one);
  deltaic_session_free(b->session);
  b->session = NULL;
  deltaic_status status = deltaic_session_create(b->engine.model, &session, &b->session);
  interrupt_watch(b->session);
  for (size_t i = 0; i < EXPERT_ROWS && sizes[i] <= b->token_count && !status && !interrupted(); ++i) {
    struct experts_row row = {.tokens = sizes[i]};
    bool whole = false;
    status = count_chosen(b, &row, &whole);
    if (!status && !whole) break;
    if (!status) status = time_kernels(b, &row);
    if (!status) b->experts[b->experts_count++] = row;
  }
  interrupt_watch(NULL);
  return status;
}

// ---------------------------------------------------------------- output

static double rate(const struct experts_row *r) { return r->seconds > 0 ? (double)r->bytes / r->seconds : 0; }

void bench_experts_print(const struct bench *b) {
  const deltaic_model_info *m = &b->engine.model_info;
  struct table table;
  printf("\nexperts: %d a layer, %d a token, %s in all\n", m->experts, m->experts_per_token,
         text_bytes(m->expert_bytes).text);
  table_begin(&table, "rrrrrrr");
  table_row(&table, "tokens at once", "experts chosen", "their weights", "of all", "ms", "GB/s", "of copy");
  for (size_t i = 0; i < b->experts_count; ++i) {
    const struct experts_row *r = &b->experts[i];
    char chosen[32], ms[32];
    snprintf(chosen, sizeof chosen, "%.1f", r->chosen);
    snprintf(ms, sizeof ms, r->seconds > 0 ? "%.3f" : "-", 1e3 * r->seconds);
    table_row(&table, text_count(r->tokens).text, chosen, text_bytes(r->bytes).text,
              text_percent((double)r->bytes / (double)m->expert_bytes).text, ms, text_giga(rate(r)).text,
              text_percent(rate(r) / b->rates.copy).text);
  }
  table_end(&table, 0);
}

json_t *bench_experts_json(const struct bench *b) {
  json_t *rows = json_array();
  for (size_t i = 0; i < b->experts_count; ++i) {
    const struct experts_row *r = &b->experts[i];
    json_array_append_new(rows, json_pack("{s:I, s:o, s:I, s:I, s:o, s:o}", "tokens", (json_int_t)r->tokens, "chosen",
                                          number_json(r->chosen), "bytes", (json_int_t)r->bytes, "all_bytes",
                                          (json_int_t)b->engine.model_info.expert_bytes, "seconds",
                                          number_json(r->seconds), "bytes_per_second", number_json(rate(r))));
  }
  return rows;
}
