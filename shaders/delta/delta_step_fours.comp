#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
// delta_step.comp for one step per token, no blocks, and rows of whole vec4s:
//   S <- e^g S + k^T u,  u = beta (v - k e^g S);  o = scale q S, normed and gated.
// Workgroups (ceil(DV / columns), Hv, B). WIDTH lanes of a subgroup share 4 GROUPS columns of a head; a lane has four
// of them, and every PARTS-th group of four rows. So sums over rows stay within the subgroup, no subgroup waits for
// another before it stores its part of S, and some load while others store. Dk, Dv and strides: multiples of 4.
#include "stored.glsl"
#include "delta_step_fours.h"
layout(local_size_x_id = DELTA_STEP_FOURS_SPEC_LANES) in;
layout(constant_id = DELTA_STEP_FOURS_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_STEP_FOURS_SPEC_DV) const uint DV = 128;
layout(constant_id = DELTA_STEP_FOURS_SPEC_WIDTH) const uint WIDTH = 32;
layout(constant_id = DELTA_STEP_FOURS_SPEC_GROUPS) const uint GROUPS = 4;
layout(constant_id = DELTA_STEP_FOURS_SPEC_NORM) const uint NORM = 0;
layout(constant_id = DELTA_STEP_FOURS_SPEC_ACTIVATION) const uint ACTIVATION = ACT_IDENTITY;
layout(constant_id = DELTA_STEP_FOURS_SPEC_KEY_NORM) const uint KEY_NORM = NORM_NONE;
layout(constant_id = DELTA_STEP_FOURS_SPEC_LONE) const uint LONE = 0;
layout(set = 0, binding = DELTA_STEP_O) writeonly buffer o_block { stored4 o[]; };
layout(set = 0, binding = DELTA_STEP_QKV) readonly buffer qkv_block { vec4 qkv[]; };
layout(set = 0, binding = DELTA_STEP_BA) readonly buffer ba_block { float ba[]; };
layout(set = 0, binding = DELTA_STEP_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = DELTA_STEP_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
layout(set = 0, binding = DELTA_STEP_STATE) buffer state_block { vec4 state[]; };
layout(set = 0, binding = DELTA_STEP_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = DELTA_STEP_GATE) readonly buffer gate_block { vec4 gate[]; };
layout(set = 0, binding = DELTA_STEP_NORM_WEIGHT) readonly buffer norm_block { vec4 norm_weight[]; };
#include "activation.glsl"
#include "reduce.glsl"

const uint PARTS = WIDTH / GROUPS, DK4 = DK / 4, DV4 = DV / 4;
const uint ROWS4 = (DK4 + PARTS - 1) / PARTS; // groups of four rows of a lane
const bool EXACT = DV4 % (gl_WorkGroupSize.x / WIDTH * GROUPS) == 0; // no column is past the last
uint part;                                    // the lane's groups of rows: part, PARTS + part ...

// Whether group r exists. Only the last one may be past the end.
bool has(uint r) { return (r + 1) * PARTS <= DK4 || r * PARTS + part < DK4; }

vec4 activated(vec4 x) {
  if (ACTIVATION != ACT_IDENTITY) [[unroll]] for (uint i = 0; i < 4; i++) x[i] = activate(ACTIVATION, x[i]);
  return x;
}

float summand(vec4 x) { return KEY_NORM == NORM_L2 ? dot(x, x) : dot(KEY_NORM == NORM_L1 ? abs(x) : x, vec4(1.0)); }

// The factor of a vector's norm, from its sum over a lane's rows.
float factor_of(float sum) {
  if (KEY_NORM == NORM_NONE) return 1.0;
  [[unroll]] for (uint m = GROUPS; m < WIDTH; m *= 2) sum += subgroupShuffleXor(sum, m);
  if (KEY_NORM == NORM_L2) return accurate_inversesqrt(sum + 1e-6);
  return sum != 0.0 ? 1.0 / sum : 0.0;
}

vec4 all_rows(vec4 x) {
  [[unroll]] for (uint m = GROUPS; m < WIDTH; m *= 2) x += subgroupShuffleXor(x, m);
  return x;
}

vec4 norm_factor, gate_of_o; // what the last lines of main() need

void load_ends(uint row, uint head, uint column) {
  if (NORM != 0) norm_factor = norm_weight[column];
  if (args.has_gate != 0) gate_of_o = gate[row * (args.gate_stride / 4) + head * DV4 + column];
}

void main() {
  uint lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  sequence s = sequences[gl_WorkGroupID.z];
  if (LONE == 0 && s.T == 0) return;
  uint head = gl_WorkGroupID.y, key_head = head / args.share % args.H;
  uint own = (gl_WorkGroupID.x * gl_WorkGroupSize.x + lane) / WIDTH * GROUPS + lane % GROUPS;
  uint column = EXACT ? own : min(own, DV4 - 1); // past the last column: repeats the last, not stored
  part = lane % WIDTH / GROUPS;
  // With one sequence no load depends on it.
  uint row = LONE != 0 ? 0 : s.row, slot = LONE != 0 ? 0 : s.slot;
  uint state_at = slot * (args.state_stride / 4) + (head * DK + 4 * part) * DV4 + column;
  vec4 S[4 * ROWS4], k[ROWS4], q[ROWS4];
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    if (has(r)) {
      [[unroll]] for (uint i = 0; i < 4; i++) S[4 * r + i] = state[state_at + (4 * r * PARTS + i) * DV4];
    } else
      [[unroll]] for (uint i = 0; i < 4; i++) S[4 * r + i] = vec4(0.0);
  }
  uint qkv_at = row * (args.qkv_stride / 4);
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    uint d = r * PARTS + part;
    k[r] = has(r) ? qkv[qkv_at + (args.H + key_head) * DK4 + d] : vec4(0.0);
    q[r] = has(r) ? qkv[qkv_at + key_head * DK4 + d] : vec4(0.0);
  }
  vec4 v = qkv[qkv_at + 2 * args.H * DK4 + head * DV4 + column];
  if (LONE != 0) load_ends(row, head, column); // few workgroups, so registers are to spare
  uint ba_at = row * args.ba_stride + head;
  float z = args.gated != 0 ? ba[ba_at + (args.has_beta != 0 ? args.Hv : 0)] + dt_bias[head] : 0.0;
  float a_log = args.gated != 0 ? A_log[head] : 0.0, b = args.has_beta != 0 ? ba[ba_at] : 0.0;
  if (LONE != 0 && s.T == 0) return;
  float decay = 1.0, beta = args.beta_scale, kk = 0.0, qq = 0.0;
  if (args.gated != 0) decay = accurate_exp(-accurate_exp(a_log) * softplus(z));
  if (args.has_beta != 0) beta *= sigmoid(b);
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    k[r] = has(r) ? activated(k[r]) : vec4(0.0);
    q[r] = has(r) ? activated(q[r]) : vec4(0.0);
    kk += summand(k[r]);
    qq += summand(q[r]);
  }
  float factor = factor_of(kk), scale = args.scale * factor_of(qq);

  vec4 kS = vec4(0.0), qS = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4 * ROWS4; j++) kS += k[j / 4][j % 4] * S[j];
  vec4 u = factor * beta * (v - factor * decay * all_rows(kS));
  bool inside = EXACT || own < DV4;
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    vec4 x[4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
      x[i] = decay * S[4 * r + i] + k[r][i] * u;
      qS += q[r][i] * x[i];
    }
    if (inside && has(r))
      [[unroll]] for (uint i = 0; i < 4; i++) state[state_at + (4 * r * PARTS + i) * DV4] = x[i];
  }

  // The first part writes the output.
  if (LONE == 0) load_ends(row, head, column);
  vec4 y = scale * all_rows(qS);
  inside = inside && part == 0;
  if (NORM != 0) {
    float squares = workgroup_sum(inside ? dot(y, y) : 0.0);
    y *= accurate_inversesqrt(squares / float(DV) + args.eps) * norm_factor;
  }
  if (!inside) return;
  uint at = head * DV4 + column;
  if (args.has_gate != 0) {
    [[unroll]] for (uint i = 0; i < 4; i++) y[i] *= silu(gate_of_o[i]);
  }
  o[row * (args.o_stride / 4) + at] = STORED4(y);
}
