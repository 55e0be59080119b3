// measure_inputs: the inputs of an operator that is measured: random, and the same for the operator and its reference.
#include "measure_inputs.h"

#include <math.h>
#include <stdlib.h>

// One token: keys and queries of length 1, values in (-1, 1), all rounded to f16 so that both forms see the same.
static void random_row(struct operator_run *m, float *wide, uint16_t *narrow) {
  const deltaic_operator *o = &m->o;
  const uint32_t keys = (1 + o->steps) * o->heads * o->key, pitch = key_pitch(DTYPE_F16, o->key);
  for (uint32_t i = 0; i < m->cols; i++) wide[i] = measure_random(&m->random);
  for (uint32_t i = 0; i < keys; i += o->key) {
    float sum = 1e-6f;
    for (uint32_t j = 0; j < o->key; j++) sum += wide[i + j] * wide[i + j];
    for (uint32_t j = 0; j < o->key; j++) wide[i + j] /= sqrtf(sum);
  }
  for (uint32_t i = 0; i < m->cols; i++) {
    const uint32_t key = (i < keys ? i : keys) / o->key; // padding of so many before it
    uint16_t *to = &narrow[i + (m->narrow ? key * (pitch - o->key) : 0)];
    *to = f32_to_f16(wide[i]);
    wide[i] = f16_to_f32(*to);
  }
}

static deltaic_status put(struct operator_run *m, struct tensor t, uint64_t row, const void *data, uint64_t rows) {
  uint64_t bytes = dtype_bytes(t.dtype, t.stride);
  return m->b->functions->buffer_write(m->b, t.buffer, t.offset + row * bytes, data, rows * bytes);
}

static deltaic_status fill_rows(struct operator_run *m) {
  const deltaic_operator *o = &m->o;
  uint64_t numbers = (uint64_t)o->tokens * m->cols;
  float *wide = malloc(numbers * sizeof *wide);
  uint16_t *narrow = calloc((uint64_t)o->tokens * m->padded, sizeof *narrow);
  deltaic_status status = wide && narrow ? DELTAIC_OK : fail_memory("an operator's inputs", numbers * 6);
  for (uint32_t t = 0; t < o->tokens && status == DELTAIC_OK; t++)
    random_row(m, wide + (uint64_t)t * m->cols, narrow + (uint64_t)t * m->padded);
  for (uint32_t s = 0; s < o->sequences && status == DELTAIC_OK; s++)
    status = put(m, m->qkv, (uint64_t)s * o->tokens, m->narrow ? (const void *)narrow : wide, o->tokens);
  if (status == DELTAIC_OK) status = put(m, m->wide, 0, wide, o->tokens);
  free(wide);
  free(narrow);
  return status;
}

// beta in (0, 1), g in (-0.2, 0); mask logits in (-1, 1).
static deltaic_status fill_gates(struct operator_run *m, struct tensor all, struct tensor one, float low, float high) {
  uint64_t numbers = (uint64_t)one.rows * one.stride;
  float *values = malloc(numbers * sizeof *values);
  if (!values) return fail_memory("an operator's gates", numbers * sizeof *values);
  for (uint64_t i = 0; i < numbers; i++) values[i] = low + (high - low) * (0.5f + 0.5f * measure_random(&m->random));
  deltaic_status status = put(m, one, 0, values, one.rows);
  for (uint32_t s = 0; s < m->o.sequences && status == DELTAIC_OK && all.rows > one.rows; s++)
    status = put(m, all, (uint64_t)s * one.rows, values, one.rows);
  if (status == DELTAIC_OK && all.rows == one.rows) status = put(m, all, 0, values, one.rows);
  free(values);
  return status;
}

static deltaic_status fill_states(struct operator_run *m) {
  float *values = malloc((uint64_t)m->state.stride * sizeof *values);
  if (!values) return fail_memory("a state", m->state.stride * sizeof *values);
  for (uint32_t i = 0; i < m->state.stride; i++) values[i] = 0.1f * measure_random(&m->random);
  deltaic_status status = put(m, m->state_wide, 0, values, 1);
  for (uint32_t s = 0; s < m->o.sequences && status == DELTAIC_OK; s++) status = put(m, m->state, s, values, 1);
  free(values);
  return status;
}

static deltaic_status fill_sequences(struct operator_run *m) {
  struct sequence *all = calloc(m->o.sequences, sizeof *all);
  if (!all) return fail_memory("sequences", m->o.sequences * sizeof *all);
  for (uint32_t s = 0; s < m->o.sequences; s++)
    all[s] = (struct sequence){.row = s * m->o.tokens, .T = m->o.tokens, .slot = s};
  deltaic_status status = put(m, m->sequences, 0, all, m->o.sequences);
  if (status == DELTAIC_OK) status = put(m, m->sequence_wide, 0, all, 1);
  free(all);
  return status;
}

// The logits of what beta and g are, with A_log and dt_bias 0.
static deltaic_status fill_step(struct operator_run *m) {
  const uint32_t betas = m->beta.cols, cols = m->ba.cols;
  float *row = malloc((cols + m->o.value_heads) * sizeof *row);
  if (!row) return fail_memory("an operator's gates", cols * sizeof *row);
  deltaic_status status =
      m->b->functions->buffer_read(m->b, m->beta_wide.buffer, m->beta_wide.offset, row, betas * 4ull);
  if (status == DELTAIC_OK)
    status =
        m->b->functions->buffer_read(m->b, m->g_wide.buffer, m->g_wide.offset, row + betas, m->o.value_heads * 4ull);
  for (uint32_t i = 0; i < betas; i++) row[i] = logf(row[i] / (1 - row[i]));
  for (uint32_t i = betas; i < cols; i++) row[i] = logf(expm1f(-row[i]));
  for (uint32_t s = 0; s < m->o.sequences && status == DELTAIC_OK; s++) status = put(m, m->ba, s, row, 1);
  free(row);
  return status;
}

deltaic_status operator_inputs(struct operator_run *m) {
  m->random = 1;
  deltaic_status status = fill_rows(m);
  if (status == DELTAIC_OK) status = fill_gates(m, m->beta, m->beta_wide, 0, 1);
  if (status == DELTAIC_OK) status = fill_gates(m, m->g, m->g_wide, -0.2f, 0);
  if (status == DELTAIC_OK && m->o.blocks > 1) status = fill_gates(m, m->mask, m->mask_wide, -1, 1);
  if (status == DELTAIC_OK && operator_is_step(m)) status = fill_step(m);
  if (status == DELTAIC_OK) status = fill_states(m);
  return status == DELTAIC_OK ? fill_sequences(m) : status;
}
