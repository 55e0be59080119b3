#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// One token of every sequence through a delta layer, from its convolved q, k, v to the gated output: delta_inputs.comp,
// delta_rule.comp and gated_norm.comp in one kernel, with their formulas. Per value head:
//   S <- e^g S;  N times: y_b = k_b S_b, u_a = beta (v - sum_b M_ab y_b), S_a <- S_a + k_a^T u_a;  o = scale q S
// with R blocks a, b of rows (R = 1: M = 1), q and k normed; then o / sqrt(mean o^2 + eps) * weight * silu(gate). q and
// k are not normed in place: the factors of their norms are applied to k S, u and q S.
// Workgroups (ceil(Dv / COLUMNS), Hv, B): COLUMNS value columns of one head of one sequence. An invocation keeps a part
// of a block's rows of one column in registers, which it loads first; SPLIT invocations share a column. Any D, Dv, N.
#include "stored.glsl"
#include "delta_step.h"
layout(local_size_x_id = DELTA_STEP_SPEC_LANES) in;
layout(constant_id = DELTA_STEP_SPEC_D) const uint D = 64;
layout(constant_id = DELTA_STEP_SPEC_R) const uint R = 1;
layout(constant_id = DELTA_STEP_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_STEP_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = DELTA_STEP_SPEC_SUB) const uint SUB = 2;
layout(constant_id = DELTA_STEP_SPEC_NORM) const uint NORM = 0;
layout(constant_id = DELTA_STEP_SPEC_NONNEG) const uint NONNEG = HH_GIVEN;
layout(constant_id = DELTA_STEP_SPEC_ACTIVATION) const uint ACTIVATION = ACT_IDENTITY;
layout(constant_id = DELTA_STEP_SPEC_KEY_NORM) const uint KEY_NORM = NORM_NONE;
layout(set = 0, binding = DELTA_STEP_O) writeonly buffer o_block { stored o[]; };
layout(set = 0, binding = DELTA_STEP_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = DELTA_STEP_BA) readonly buffer ba_block { float ba[]; };
layout(set = 0, binding = DELTA_STEP_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = DELTA_STEP_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
layout(set = 0, binding = DELTA_STEP_MASK) readonly buffer mask_block { float mask[]; };
layout(set = 0, binding = DELTA_STEP_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_STEP_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = DELTA_STEP_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = DELTA_STEP_NORM_WEIGHT) readonly buffer norm_block { float norm_weight[]; };
#include "hh_mask.glsl"
#include "reduce.glsl"

const uint DK = R * D, SPLIT = R * SUB;
const uint ROWS4 = ((D + SUB - 1) / SUB + 3) / 4; // vec4 of a column's rows in one invocation
const uint HEAD4 = SPLIT * ROWS4;                 // vec4 of a padded key: its parts in order, zeros at the end of each
const uint VECTORS = N + 1;                       // k of each step, then q
shared vec4 heads[VECTORS * HEAD4];
shared float partial[2 * SPLIT * COLUMNS]; // partial sums over a part of the rows; two buffers, used in turn
shared float slots[VECTORS * gl_WorkGroupSize.x / 4 + VECTORS]; // sums of norms per subgroup; it has >= 4 lanes
shared float roots[R * R]; // N of Head-in-Head's mask, or M itself

// Stages the activated q and k in shared memory, and the partial sums of their norms in slots.
void stage(uint lane, uint row, uint key_head) {
  float sums[VECTORS];
  [[unroll]] for (uint m = 0; m < VECTORS; m++) {
    uint from = row * args.qkv_stride + ((m == N ? 0 : (m + 1) * args.H) + key_head) * DK;
    sums[m] = 0.0;
    for (uint i = lane; i < 4 * HEAD4; i += gl_WorkGroupSize.x) {
      uint part = i / (4 * ROWS4), d = part % SUB * 4 * ROWS4 + i % (4 * ROWS4); // row of the part's block
      float x = d < D ? activate(ACTIVATION, qkv[from + part / SUB * D + d]) : 0.0;
      heads[m * HEAD4 + i / 4][i % 4] = x;
      if (d < D) sums[m] += KEY_NORM == NORM_L2 ? x * x : KEY_NORM == NORM_L1 ? abs(x) : x;
    }
  }
  [[unroll]] for (uint m = 0; m < VECTORS; m++) {
    float sum = subgroupAdd(sums[m]);
    if (subgroupElect()) slots[gl_SubgroupID * VECTORS + m] = sum;
  }
}

// 1 / norm of vector m.
float factor_of(uint m) {
  if (KEY_NORM == NORM_NONE) return 1.0;
  float sum = 0.0;
  for (uint s = 0; s < gl_NumSubgroups; s++) sum += slots[s * VECTORS + m];
  if (KEY_NORM == NORM_L2) return accurate_inversesqrt(sum + 1e-6);
  return sum != 0.0 ? 1.0 / sum : 0.0;
}

void stage_mask(uint lane, uint row, uint head) {
  uint from = row * args.mask_stride + head * R * R;
  if (NONNEG == HH_GIVEN) {
    for (uint i = lane; i < R * R; i += gl_WorkGroupSize.x) roots[i] = mask[from + i];
  } else if (lane < R) {
    float root[R];
    mask_row(from + lane * R, root);
    [[unroll]] for (uint b = 0; b < R; b++) roots[lane * R + b] = root[b];
  }
}

float mask_at(uint a, uint b) {
  if (R == 1) return 1.0;
  if (NONNEG == HH_GIVEN) return roots[a * R + b];
  float M = 0.0;
  for (uint c = 0; c < R; c++) M += roots[a * R + c] * roots[b * R + c];
  return M;
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  if (s.T == 0) return;
  uint head = gl_WorkGroupID.y, column = gl_WorkGroupID.x * COLUMNS + lane % COLUMNS, part = lane / COLUMNS;
  uint block = part / SUB, first = part % SUB * 4 * ROWS4; // its first row in the block
  bool inside = column < args.Dv;
  uint state_at = s.slot * args.state_stride + (head * DK + block * D) * args.Dv + column;
  vec4 S[ROWS4];
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint d = first + 4 * r + i;
      S[r][i] = inside && d < D ? state[state_at + d * args.Dv] : 0.0;
    }
  }

  uint betas = args.has_beta != 0 ? N * args.Hv : 0, ba_at = s.row * args.ba_stride + head;
  float decay = 1.0;
  if (args.gated != 0) decay = accurate_exp(-accurate_exp(A_log[head]) * softplus(ba[ba_at + betas] + dt_bias[head]));
  float v[N], beta[N];
  [[unroll]] for (uint m = 0; m < N; m++) {
    uint from = s.row * args.qkv_stride + VECTORS * args.H * DK + (m * args.Hv + head) * args.Dv;
    v[m] = inside ? qkv[from + column] : 0.0;
    beta[m] = args.beta_scale * (args.has_beta != 0 ? sigmoid(ba[ba_at + m * args.Hv]) : 1.0);
  }
  stage(lane, s.row, head / args.share % args.H);
  if (R > 1) stage_mask(lane, s.row, head);
  barrier();

  uint turn = 0, own = part * COLUMNS + lane % COLUMNS;
  [[unroll]] for (uint m = 0; m < N; m++) {
    float factor = factor_of(m);
    vec4 kS = vec4(0.0);
    [[unroll]] for (uint r = 0; r < ROWS4; r++) {
      if (m == 0) S[r] *= decay;
      kS += heads[m * HEAD4 + part * ROWS4 + r] * S[r];
    }
    partial[turn + own] = dot(kS, vec4(1.0));
    barrier();
    float sum = 0.0;
    for (uint b = 0; b < R; b++) {
      float y = 0.0;
      [[unroll]] for (uint p = b * SUB; p < (b + 1) * SUB; p++) y += partial[turn + p * COLUMNS + lane % COLUMNS];
      sum += mask_at(block, b) * y;
    }
    float u = factor * beta[m] * (v[m] - factor * sum);
    [[unroll]] for (uint r = 0; r < ROWS4; r++) S[r] += heads[m * HEAD4 + part * ROWS4 + r] * u;
    turn = SPLIT * COLUMNS - turn;
  }
  vec4 qS = vec4(0.0);
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    qS += heads[N * HEAD4 + part * ROWS4 + r] * S[r];
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint d = first + 4 * r + i;
      if (inside && d < D) state[state_at + d * args.Dv] = S[r][i];
    }
  }
  partial[turn + own] = dot(qS, vec4(1.0));
  barrier();

  // The first part of a column writes its output.
  bool writes = part == 0 && inside;
  float y = 0.0;
  if (writes) {
    [[unroll]] for (uint p = 0; p < SPLIT; p++) y += partial[turn + p * COLUMNS + lane % COLUMNS];
    y *= args.scale * factor_of(N);
  }
  if (NORM != 0) {
    float squares = workgroup_sum(y * y);
    y *= accurate_inversesqrt(squares / float(args.Dv) + args.eps);
    if (writes) y *= norm_weight[column];
  }
  if (!writes) return;
  uint at = head * args.Dv + column;
  if (args.has_gate != 0) y *= silu(gate[s.row * args.gate_stride + at]);
  o[s.row * args.o_stride + at] = STORED(y);
}
