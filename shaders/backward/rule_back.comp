#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// The backward pass of the delta rule, step by step from the last to the first (a step: one householder step of a
// token). With S~ the state before it, already decayed, R blocks of keys, M the mask (1 if R = 1):
//
//   forward   y_b = k_b S~_b,  e_a = v - sum_b M_ab y_b,  u_a = beta e_a,  S_a = S~_a + k_a^T u_a,  o = scale q S
//   backward  dq = scale S do,  dS += scale q^T do                                   (the token's last step)
//             du_a = k_a dS_a,  dv = beta sum_a du_a,  dbeta = sum_a du_a e_a,  dM_ab = -beta du_a y_b
//             dy_b = -beta sum_a M_ab du_a,  dk_b = dS_b u_b + S~_b dy_b,  dS_b += k_b^T dy_b
//             dg = sum dS S~,  dS <- e^g dS                                          (the token's first step)
//
// Without ERASES y = 0, as in Mamba-2 (k = B, q = C, v = x, beta = dt).
//
// Workgroups (blocks of COLUMNS columns of S, Hv, B): columns do not depend on each other, but for the sums over them,
// which go to `parts` for each block. Invocation (p, c) owns rows p, p + P, ... of each block, in column c, in shared
// memory and in the scratch. S~ cannot be computed backwards, since a step may be singular: every `kept`-th state is
// kept, and the steps between two of them run again with all their states.
#include "rule_back.h"
layout(local_size_x_id = RULE_BACK_SPEC_LANES) in;
layout(constant_id = RULE_BACK_SPEC_R) const uint R = 1;
layout(constant_id = RULE_BACK_SPEC_COLUMNS) const uint COLUMNS = 16;
layout(constant_id = RULE_BACK_SPEC_ROWS) const uint ROWS = 64;
layout(constant_id = RULE_BACK_SPEC_ERASES) const uint ERASES = 1;
layout(set = 0, binding = RULE_BACK_GATES) readonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_BACK_PARTS) writeonly buffer parts_block { float parts[]; };
layout(set = 0, binding = RULE_BACK_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = RULE_BACK_BEFORE) readonly buffer before_block { float before[]; };
layout(set = 0, binding = RULE_BACK_DSTATE) buffer dstate_block { float dstate[]; };
layout(set = 0, binding = RULE_BACK_DO) readonly buffer do_block { float d_o[]; };
layout(set = 0, binding = RULE_BACK_STATES) buffer states_block { float states[]; };
layout(set = 0, binding = RULE_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

const uint LANES = gl_WorkGroupSize.x, P = LANES / COLUMNS;
const uint MASKS = R > 1 ? R *R : 1; // at least 1, for arrays
shared float grad[ROWS * COLUMNS];   // dS
shared float tile[ROWS * COLUMNS];   // S; backward: terms of dk
shared float tile2[ROWS * COLUMNS];  // terms of dq
shared float sums[2 * R * LANES];    // forward: terms of y, of even and odd steps; backward: of y and du
shared float small[(1 + MASKS) * COLUMNS];
shared float decays[LANES];

// The rows of block b that this invocation owns.
#define OWN_ROWS(i, b) for (uint i = (b) * (args.Dk / R) + p; i < ((b) + 1) * (args.Dk / R); i += P)

uint lane, p, c, column, head, block;
bool inside;      // the column exists
uint states_from; // of this workgroup, this invocation's column
sequence q;

// Householder step m of a token, which is row t.
struct stage {
  uint t, m, gate, k, v;
  float beta, decay; // decay: of the token, in its first step; else 1
};

stage stage_at(uint s) {
  stage at;
  at.t = q.row + s / args.n;
  at.m = s % args.n;
  at.gate = (at.t * args.Hv + head) * (args.n + 1 + (R > 1 ? R * R : 0));
  uint key = head / args.share % args.H;
  at.k = at.t * args.qkv_stride + args.k_at + (at.m * args.H + key) * args.Dk;
  at.v = at.t * args.qkv_stride + args.v_at + (at.m * args.Hv + head) * args.Dv + column;
  at.beta = gates[at.gate + at.m];
  at.decay = at.m == 0 ? gates[at.gate + args.n] : 1.0;
  return at;
}

float mask(stage s, uint a, uint b) { return R > 1 ? gates[s.gate + args.n + 1 + a * R + b] : 1.0; }

// The sum over the rows of block b, of terms at `from`.
float column_sum(uint from, uint b) {
  float sum = 0.0;
  for (uint i = 0; i < P; i++) sum += sums[from + b * LANES + i * COLUMNS + c];
  return sum;
}

void errors(stage s, float y[R], out float e[R]) {
  float v = inside ? qkv[s.v] : 0.0;
  for (uint a = 0; a < R; a++) {
    e[a] = v;
    if (ERASES != 0)
      for (uint b = 0; b < R; b++) e[a] -= mask(s, a, b) * y[b];
  }
}

// tile <- the state after step s; S~ goes to the scratch if `room` is a place there.
void forward(uint s, uint room) {
  const stage at = stage_at(s);
  const uint from = (s & 1) * R * LANES;
  float y[R], e[R];
  for (uint b = 0; b < R; b++) {
    y[b] = 0.0;
    OWN_ROWS(i, b) {
      float S = tile[i * COLUMNS + c] * at.decay;
      tile[i * COLUMNS + c] = S;
      if (room != ~0u) states[states_from + (room * args.Dk + i) * COLUMNS] = S;
      y[b] += qkv[at.k + i] * S;
    }
    sums[from + b * LANES + lane] = y[b];
  }
  if (ERASES != 0) {
    barrier();
    for (uint b = 0; b < R; b++) y[b] = column_sum(from, b);
  }
  errors(at, y, e);
  for (uint b = 0; b < R; b++) OWN_ROWS(i, b)
  tile[i * COLUMNS + c] += qkv[at.k + i] * at.beta * e[b];
}

void backward(uint s, uint room) {
  const stage at = stage_at(s);
  const uint S_from = states_from + room * args.Dk * COLUMNS;
  const uint query = at.t * args.qkv_stride + args.q_at + head / args.share % args.H * args.Dk;
  const bool last = at.m == args.n - 1, decays_here = args.gated != 0 && at.m == 0;
  const float by = last && inside ? args.scale * d_o[at.t * args.do_stride + head * args.Dv + column] : 0.0;
  float y[R], du[R], e[R], dy[R];
  for (uint b = 0; b < R; b++) {
    y[b] = du[b] = 0.0;
    OWN_ROWS(i, b) {
      float k = qkv[at.k + i], dS = grad[i * COLUMNS + c];
      if (last) dS += qkv[query + i] * by;
      grad[i * COLUMNS + c] = dS;
      y[b] += k * states[S_from + i * COLUMNS];
      du[b] += k * dS;
    }
    sums[b * LANES + lane] = y[b];
    sums[(R + b) * LANES + lane] = du[b];
  }
  barrier();
  for (uint b = 0; b < R; b++) {
    y[b] = ERASES != 0 ? column_sum(0, b) : 0.0;
    du[b] = column_sum(R * LANES, b);
  }
  errors(at, y, e);
  float dv = 0.0, dbeta = 0.0, dg = 0.0;
  for (uint a = 0; a < R; a++) {
    dv += at.beta * du[a];
    dbeta += du[a] * e[a];
    dy[a] = 0.0;
    if (ERASES != 0)
      for (uint b = 0; b < R; b++) dy[a] -= at.beta * mask(at, b, a) * du[b];
  }
  const uint part = (at.t * args.Hv + head) * args.part;
  if (p == 0) {
    if (inside) parts[part + at.m * args.Dv + column] = dv;
    small[c] = dbeta;
    if (R > 1)
      for (uint a = 0; a < R; a++)
        for (uint b = 0; b < R; b++) small[(1 + a * R + b) * COLUMNS + c] = -at.beta * du[a] * y[b];
  }
  for (uint b = 0; b < R; b++) OWN_ROWS(i, b) {
      const uint cell = i * COLUMNS + c;
      float k = qkv[at.k + i], S = states[S_from + i * COLUMNS], dS = grad[cell];
      tile[cell] = at.beta * dS * e[b] + S * dy[b];
      tile2[cell] = (S + k * at.beta * e[b]) * by;
      dS += k * dy[b];
      if (decays_here) {
        dg += dS * S;
        dS *= at.decay;
      }
      grad[cell] = dS;
    }
  dg = subgroupAdd(dg);
  if (subgroupElect()) decays[gl_SubgroupID] = dg;
  barrier();
  // The sums over this block's columns.
  const uint of_block = (args.n + 1) * args.Dk + args.n + 1 + (R > 1 ? R * R : 0);
  const uint to = part + args.n * args.Dv + block * of_block, tail = to + (args.n + 1) * args.Dk;
  for (uint i = lane; i < args.Dk; i += LANES) {
    float dk = 0.0, dq = 0.0;
    for (uint j = 0; j < COLUMNS; j++) {
      dk += tile[i * COLUMNS + j];
      dq += tile2[i * COLUMNS + j];
    }
    parts[to + at.m * args.Dk + i] = dk;
    if (last) parts[to + args.n * args.Dk + i] = dq;
  }
  if (lane == 0) {
    float sum = 0.0;
    for (uint j = 0; j < COLUMNS; j++) sum += small[j];
    parts[tail + at.m] = sum;
    sum = 0.0;
    for (uint j = 0; j < gl_NumSubgroups; j++) sum += decays[j];
    if (at.m == 0) parts[tail + args.n] = sum;
  }
  if (R > 1)
    for (uint i = lane; i < R * R; i += LANES) {
      float sum = 0.0;
      for (uint j = 0; j < COLUMNS; j++) sum += small[(1 + i) * COLUMNS + j];
      parts[tail + args.n + 1 + i] = sum;
    }
}

// Rows of the scratch to the tile, and back. An invocation reads what it wrote itself.
void load(uint room) {
  for (uint b = 0; b < R; b++)
    OWN_ROWS(i, b) tile[i * COLUMNS + c] = states[states_from + (room * args.Dk + i) * COLUMNS];
}

void keep(uint room) {
  for (uint b = 0; b < R; b++)
    OWN_ROWS(i, b) states[states_from + (room * args.Dk + i) * COLUMNS] = tile[i * COLUMNS + c];
}

void main() {
  lane = gl_LocalInvocationID.x;
  p = lane / COLUMNS;
  c = lane % COLUMNS;
  block = gl_WorkGroupID.x;
  head = gl_WorkGroupID.y;
  q = sequences[gl_WorkGroupID.z];
  if (q.T == 0) return;
  column = block * COLUMNS + c;
  inside = column < args.Dv;
  states_from = ((gl_WorkGroupID.z * args.Hv + head) * args.blocks + block) * args.room * args.Dk * COLUMNS + c;
  const uint state = q.slot * args.state_stride + head * args.Dk * args.Dv + column, steps = q.T * args.n;
  const uint run = args.room - args.kept; // where the states of a run of steps begin
  for (uint b = 0; b < R; b++) OWN_ROWS(i, b) {
      tile[i * COLUMNS + c] = inside && args.has_before != 0 ? before[state + i * args.Dv] : 0.0;
      grad[i * COLUMNS + c] = inside ? dstate[state + i * args.Dv] : 0.0;
    }
  for (uint s = 0; s < steps; s++) {
    if (s % args.kept == 0) keep(s / args.kept);
    forward(s, ~0u);
  }
  for (uint end = steps; end > 0;) {
    uint first = (end - 1) / args.kept * args.kept;
    barrier(); // the other invocations have read tile
    load(first / args.kept);
    for (uint s = first; s < end; s++) forward(s, run + s - first);
    barrier(); // and sums
    for (; end > first; end--) backward(end - 1, run + end - 1 - first);
  }
  for (uint b = 0; b < R; b++) OWN_ROWS(i, b)
  if (inside) dstate[state + i * args.Dv] = grad[i * COLUMNS + c];
}
