// vulkan_mamba2: Mamba-2. As in vulkan_mix.c, grids have room for the most chunks that a call's rows can make.
#include "vulkan_backend.h"

#include "mamba2.h"
#include "mamba2_chunk_output.h"
#include "mamba2_chunk_pass.h"
#include "mamba2_chunk_state.h"
#include "mamba2_inputs.h"
#include "mamba2_matrix_output.h"
#include "mamba2_matrix_state.h"

void vulkan_mamba2_inputs(struct recorder *c, const struct mamba2_inputs *in) {
  const struct tensor dt = in->dt, g = in->g, raw = in->raw;
  const uint32_t lanes = min32(vulkan_plan(c)->block_lanes, 64);
  const struct binding bindings[MAMBA2_INPUTS_BINDINGS] = {
      [MAMBA2_INPUTS_DT] = vulkan_bind(dt, dt),
      [MAMBA2_INPUTS_G] = vulkan_bind(g, g),
      [MAMBA2_INPUTS_RAW] = vulkan_bind(raw, raw),
      [MAMBA2_INPUTS_A_LOG] = vulkan_bind(in->A_log, dt),
      [MAMBA2_INPUTS_DT_BIAS] = vulkan_bind(in->dt_bias, dt),
  };
  const struct mamba2_inputs_args args = {.heads = dt.cols,
                                          .low = in->low,
                                          .high = in->high,
                                          .dt_stride = dt.stride,
                                          .g_stride = g.stride,
                                          .raw_stride = raw.stride};
  vulkan_dispatch(c, KERNEL_mamba2_inputs, &lanes, bindings, &args,
                  (struct grid){divide_up(dt.cols, lanes), dt.rows, 1}, 20ull * dt.rows * dt.cols);
}

struct mamba2_call {
  struct mamba2 rule;
  uint32_t aligned;
  const struct mamba2_step *step; // present: the dt and g above are raw and A_log
};

// ---------------------------------------------------------------- token by token

static void recurrent(struct recorder *c, const struct mamba2_call *m) {
  enum { STAGED = 2048 }; // elements of B and C in shared memory (8 KiB), unless one token needs more
  const struct plan_rules *plan = vulkan_rules(c);
  const struct mamba2_args *a = &m->rule.a;
  // Fewer rows than for the delta rule, so that more invocations hide the latency of their loads.
  uint32_t split = divide_up(a->N, plan->device->software ? plan->rule_rows : 16);
  const uint32_t most = max32(plan->device->lanes, 128);
  uint32_t columns = plan->rule_columns;
  while (split > 1 && split * columns > most) split--;
  while (columns > 8 && columns / 2 >= a->P) columns /= 2;
  uint32_t padded = divide_up(divide_up(a->N, split), 4) * 4 * split;
  const uint32_t spec[MAMBA2_SPECS] = {[MAMBA2_SPEC_LANES] = columns * split,
                                       [MAMBA2_SPEC_N] = a->N,
                                       [MAMBA2_SPEC_COLUMNS] = columns,
                                       [MAMBA2_SPEC_SPLIT] = split,
                                       [MAMBA2_SPEC_BLOCK] = max32(min32(STAGED / (2 * padded), 16), 1),
                                       [MAMBA2_SPEC_ALIGNED] = m->aligned};
  const struct mamba2_inputs none = {0}, *in = m->step ? m->step->inputs : &none;
  const struct tensor no_gate = {0}, gate = m->step ? m->step->gate : no_gate;
  const struct binding xBC = vulkan_bind(m->rule.xBC, m->rule.xBC);
  const struct binding bindings[MAMBA2_STEP_BINDINGS] = {[MAMBA2_Y] = vulkan_bind(m->rule.y, m->rule.y),
                                                         [MAMBA2_XBC] = xBC,
                                                         [MAMBA2_DT] = vulkan_bind(m->rule.dt, m->rule.xBC),
                                                         [MAMBA2_G] = vulkan_bind(m->rule.g, m->rule.xBC),
                                                         [MAMBA2_D] = vulkan_bind(m->rule.D, m->rule.xBC),
                                                         [MAMBA2_STATE] = vulkan_bind(m->rule.state, m->rule.y),
                                                         [MAMBA2_SEQUENCES] =
                                                             vulkan_bind(m->rule.sequences, m->rule.xBC),
                                                         [MAMBA2_DT_BIAS] = vulkan_bind(in->dt_bias, m->rule.xBC),
                                                         [MAMBA2_GATE] = vulkan_bind(gate, m->rule.xBC)};
  const struct mamba2_push args = {.heads = a->heads,
                                   .P = a->P,
                                   .groups = a->groups,
                                   .D_per_element = a->D_per_element,
                                   .y_stride = m->rule.y.stride,
                                   .xBC_stride = m->rule.xBC.stride,
                                   .dt_stride = m->rule.dt.stride,
                                   .g_stride = m->rule.g.stride,
                                   .state_stride = m->rule.state.stride,
                                   .low = in->low,
                                   .high = in->high,
                                   .has_gate = gate.buffer != NULL,
                                   .gate_stride = gate.stride};
  const enum kernel_id id = m->step ? kernel_variant(FAMILY_mamba2_step, m->rule.y.dtype) : KERNEL_mamba2;
  vulkan_dispatch(c, id, spec, bindings, &args,
                  (struct grid){divide_up(a->P, columns), a->heads, m->rule.sequences.rows},
                  5ull * m->rule.xBC.rows * a->heads * a->N * a->P);
}

// ---------------------------------------------------------------- chunkwise

// The length of a chunk and the record that the kernels of chunks pass on.
struct chunk_form {
  bool matrices;
  struct plan_mamba2_matrix p;
  uint32_t C, rows, fours; // rows of a record's state, vectors of four in a row
  uint64_t bytes;
};

static bool plan_matrices(const struct recorder *c, uint32_t T, uint32_t B, const struct mamba2_args *a,
                          struct plan_mamba2_matrix *p) {
  const struct device *device = vulkan_device(c->backend);
  return vulkan_list(c)->matrices && kernel_built(KERNEL_mamba2_matrix_state) &&
         plan_mamba2_matrix(&device->plan, a->N, a->P, a->heads, a->groups, T / vulkan_rules(c)->chunk / 2 + B, p);
}

static struct chunk_form chunk_form(const struct recorder *c, uint32_t T, uint32_t B, const struct mamba2_args *a) {
  struct chunk_form f = {.matrices = plan_matrices(c, T, B, a, &f.p)};
  if (f.matrices) {
    f.C = f.p.C;
    f.rows = f.p.N;
    f.fours = f.p.P / 4;
    f.bytes = 8ull * a->heads * MAMBA2_MATRIX_RECORD(f.p.N, f.p.P);
    return f;
  }
  // Every chunk reads and writes the state, so chunks are twice as long as the delta rule's if M still fits.
  f.C = 2 * vulkan_rules(c)->chunk;
  if (4 * f.C * (f.C + 4) + 16 * f.C > vulkan_plan(c)->shared_bytes) f.C /= 2;
  f.rows = a->N;
  f.fours = divide_up(a->P, 4);
  f.bytes = 16ull * a->heads * MAMBA2_CHUNK_RECORD(a->N, a->P);
  return f;
}

// The most chunks that T tokens of B sequences can make.
static uint32_t most_chunks(const struct chunk_form *f, uint32_t T, uint32_t B) { return divide_up(T, f->C) + B; }

// The chunks of a call whose scratch is at most `limit` bytes. 0: the call runs token by token. It always does if even
// one token's states are too large for a descriptor.
static uint32_t chunks_of(const struct recorder *c, const struct mamba2 *rule, uint64_t limit, struct chunk_form *f) {
  const uint32_t T = rule->xBC.rows, B = rule->sequences.rows;
  *f = chunk_form(c, T, B, &rule->a);
  if (!vulkan_chunked(c, T, B, 1) || most_chunks(f, 1, B) * f->bytes > vulkan_plan(c)->binding_bytes) return 0;
  const uint32_t chunks = most_chunks(f, T, B);
  return chunks * f->bytes <= limit ? chunks : 0;
}

uint64_t vulkan_mamba2_bytes(const struct recorder *c, const struct mamba2 *rule, uint64_t limit) {
  struct chunk_form f;
  return chunks_of(c, rule, limit, &f) * f.bytes;
}

enum dtype vulkan_mamba2_dtype(const struct recorder *c, const struct mamba2 *rule) {
  struct chunk_form f;
  return chunks_of(c, rule, c->backend->max_binding_bytes, &f) && f.matrices ? DTYPE_F16 : DTYPE_F32;
}

static struct mamba2_chunk_args chunk_args(const struct mamba2_call *m) {
  return (struct mamba2_chunk_args){.B = m->rule.sequences.rows,
                                    .heads = m->rule.a.heads,
                                    .groups = m->rule.a.groups,
                                    .D_per_element = m->rule.a.D_per_element,
                                    .y_stride = m->rule.y.stride,
                                    .xBC_stride = m->rule.xBC.stride,
                                    .dt_stride = m->rule.dt.stride,
                                    .g_stride = m->rule.g.stride,
                                    .state_stride = m->rule.state.stride};
}

// Bindings that all kernels of chunks share.
static void bind_chunks(const struct mamba2_call *m, struct binding states, struct binding *bindings) {
  bindings[MAMBA2_CHUNK_STATES] = states;
  bindings[MAMBA2_CHUNK_XBC] = vulkan_bind(m->rule.xBC, m->rule.xBC);
  bindings[MAMBA2_CHUNK_DT] = vulkan_bind(m->rule.dt, m->rule.xBC);
  bindings[MAMBA2_CHUNK_G] = vulkan_bind(m->rule.g, m->rule.xBC);
  bindings[MAMBA2_CHUNK_SEQUENCES] = vulkan_bind(m->rule.sequences, m->rule.xBC);
}

static void chunk_state(struct recorder *c, const struct mamba2_call *m, uint32_t C, struct binding states,
                        uint32_t chunks) {
  const struct mamba2_args *a = &m->rule.a;
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const uint32_t spec[MAMBA2_CHUNK_STATE_SPECS] = {[MAMBA2_CHUNK_STATE_SPEC_LANES] = lanes,
                                                   [MAMBA2_CHUNK_STATE_SPEC_C] = C,
                                                   [MAMBA2_CHUNK_STATE_SPEC_N] = a->N,
                                                   [MAMBA2_CHUNK_STATE_SPEC_P] = a->P,
                                                   [MAMBA2_CHUNK_STATE_SPEC_ALIGNED] = m->aligned};
  struct binding bindings[MAMBA2_CHUNK_STATE_BINDINGS];
  bind_chunks(m, states, bindings);
  const struct mamba2_chunk_args args = chunk_args(m);
  vulkan_dispatch(c, KERNEL_mamba2_chunk_state, spec, bindings, &args,
                  (struct grid){chunks, a->heads, divide_up(divide_up(a->N, 4) * divide_up(a->P, 4), lanes)},
                  2ull * m->rule.xBC.rows * a->heads * a->N * a->P);
}

static void chunk_pass(struct recorder *c, const struct mamba2_call *m, const struct chunk_form *f,
                       struct binding states) {
  const struct mamba2_args *a = &m->rule.a;
  const uint32_t lanes = min32(vulkan_plan(c)->block_lanes, 64);
  const uint32_t spec[MAMBA2_CHUNK_PASS_SPECS] = {
      [MAMBA2_CHUNK_PASS_SPEC_LANES] = lanes, [MAMBA2_CHUNK_PASS_SPEC_HALVES] = f->matrices};
  const struct binding bindings[MAMBA2_CHUNK_PASS_BINDINGS] = {
      [MAMBA2_CHUNK_PASS_STATES] = states,
      [MAMBA2_CHUNK_PASS_STATE] = vulkan_bind(m->rule.state, m->rule.y),
      [MAMBA2_CHUNK_PASS_SEQUENCES] = vulkan_bind(m->rule.sequences, m->rule.xBC)};
  const struct mamba2_chunk_pass_args args = {.C = f->C,
                                              .heads = a->heads,
                                              .N = a->N,
                                              .P = a->P,
                                              .rows = f->rows,
                                              .fours = f->fours,
                                              .state_stride = m->rule.state.stride};
  vulkan_dispatch(c, KERNEL_mamba2_chunk_pass, spec, bindings, &args,
                  (struct grid){divide_up(f->rows * f->fours, lanes), a->heads, m->rule.sequences.rows},
                  2ull * m->rule.xBC.rows / args.C * a->heads * a->N * a->P);
}

static void chunk_output(struct recorder *c, const struct mamba2_call *m, uint32_t C, struct binding states,
                         uint32_t chunks) {
  const struct mamba2_args *a = &m->rule.a;
  const uint32_t spec[MAMBA2_CHUNK_OUTPUT_SPECS] = {[MAMBA2_CHUNK_OUTPUT_SPEC_LANES] =
                                                        min32(vulkan_plan(c)->lanes, 128),
                                                    [MAMBA2_CHUNK_OUTPUT_SPEC_C] = C,
                                                    [MAMBA2_CHUNK_OUTPUT_SPEC_N] = a->N,
                                                    [MAMBA2_CHUNK_OUTPUT_SPEC_P] = a->P,
                                                    [MAMBA2_CHUNK_OUTPUT_SPEC_ALIGNED] = m->aligned};
  struct binding bindings[MAMBA2_CHUNK_OUTPUT_BINDINGS] = {[MAMBA2_CHUNK_OUTPUT_Y] = vulkan_bind(m->rule.y, m->rule.y),
                                                           [MAMBA2_CHUNK_OUTPUT_D] =
                                                               vulkan_bind(m->rule.D, m->rule.xBC)};
  bind_chunks(m, states, bindings);
  const struct mamba2_chunk_args args = chunk_args(m);
  vulkan_dispatch(c, KERNEL_mamba2_chunk_output, spec, bindings, &args, (struct grid){chunks, a->heads, 1},
                  2ull * m->rule.xBC.rows * a->heads * ((uint64_t)a->N * a->P + C / 2 * (a->N + a->P)));
}

// ---------------------------------------------------------------- chunks on cooperative matrices

static void matrix_chunks(struct recorder *c, const struct mamba2_call *m, const struct chunk_form *f,
                          struct binding states, uint32_t chunks) {
  const struct mamba2_args *a = &m->rule.a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t spec[MAMBA2_MATRIX_SPECS] = {[MAMBA2_MATRIX_SPEC_LANES] = f->p.lanes,
                                              [MAMBA2_MATRIX_SPEC_SUBGROUP] = plan->matrix_lanes,
                                              [MAMBA2_MATRIX_SPEC_TILE_M] = plan->matrix_m,
                                              [MAMBA2_MATRIX_SPEC_TILE_N] = plan->matrix_n,
                                              [MAMBA2_MATRIX_SPEC_TILE_K] = plan->matrix_k,
                                              [MAMBA2_MATRIX_SPEC_C] = f->C,
                                              [MAMBA2_MATRIX_SPEC_N] = a->N,
                                              [MAMBA2_MATRIX_SPEC_P] = a->P,
                                              [MAMBA2_MATRIX_SPEC_HEADS] = f->p.heads,
                                              [MAMBA2_MATRIX_SPEC_ALIGNED] = m->aligned,
                                              [MAMBA2_MATRIX_SPEC_FOURS] = a->P % 4 == 0 && m->rule.y.stride % 4 == 0,
                                              [MAMBA2_MATRIX_SPEC_LOCKSTEP] = f->p.lockstep};
  struct binding in[MAMBA2_MATRIX_STATE_BINDINGS] = {[MAMBA2_MATRIX_STATE_STATE] =
                                                         vulkan_bind(m->rule.state, m->rule.y)};
  struct binding out[MAMBA2_MATRIX_OUTPUT_BINDINGS] = {[MAMBA2_MATRIX_OUTPUT_Y] = vulkan_bind(m->rule.y, m->rule.y),
                                                       [MAMBA2_MATRIX_OUTPUT_D] = vulkan_bind(m->rule.D, m->rule.xBC)};
  bind_chunks(m, states, in);
  bind_chunks(m, states, out);
  const struct mamba2_chunk_args args = chunk_args(m);
  const uint64_t states_operations = 2ull * m->rule.xBC.rows * a->heads * a->N * a->P;
  vulkan_dispatch(c, KERNEL_mamba2_matrix_state, spec, in, &args, (struct grid){chunks, f->p.across, 1},
                  states_operations);
  chunk_pass(c, m, f, states);
  vulkan_dispatch(c, kernel_variant(FAMILY_mamba2_matrix_output, m->rule.y.dtype), spec, out, &args,
                  (struct grid){chunks, f->p.across, 1},
                  states_operations + m->rule.xBC.rows * a->heads * f->C * (uint64_t)(a->N + a->P));
}

// ---------------------------------------------------------------- operations

static bool aligned(struct tensor xBC, const struct mamba2_args *a) {
  return a->P % 4 == 0 && a->N % 4 == 0 && xBC.stride % 4 == 0;
}

void vulkan_mamba2(struct recorder *c, const struct mamba2 *rule, struct tensor scratch) {
  const struct mamba2_call m = {.rule = *rule, .aligned = aligned(rule->xBC, &rule->a)};
  struct chunk_form f;
  const uint32_t chunks = chunks_of(c, rule, tensor_bytes(&scratch), &f);
  if (!chunks) {
    recurrent(c, &m);
    return;
  }
  struct binding states = {.buffer = scratch.buffer, .offset = scratch.offset, .bytes = chunks * f.bytes};
  if (f.matrices) {
    matrix_chunks(c, &m, &f, states, chunks);
    return;
  }
  chunk_state(c, &m, f.C, states, chunks);
  chunk_pass(c, &m, &f, states);
  chunk_output(c, &m, f.C, states, chunks);
}

bool vulkan_steps_mamba2(const struct recorder *c, const struct mamba2 *rule) {
  return vulkan_device(c->backend)->caps.max_storage_buffers >= MAMBA2_STEP_BINDINGS &&
         !vulkan_chunked(c, rule->xBC.rows, rule->sequences.rows, 1);
}

void vulkan_mamba2_step(struct recorder *c, const struct mamba2_step *s) {
  const struct mamba2 *rule = s->rule;
  struct mamba2_call m = {.rule = *rule, .aligned = aligned(rule->xBC, &rule->a), .step = s};
  m.rule.y = s->y;
  m.rule.dt = s->inputs->raw;
  m.rule.g = s->inputs->A_log;
  recurrent(c, &m);
}
