#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
// delta_rule.comp without blocks, for rows of whole vec4s:
//   S <- e^g S;  N times: u = beta (v - k S), S <- S + k^T u;  o = scale q S
// Workgroups (ceil(DV / columns), Hv, B), each with all tokens of a sequence. As in delta_step_fours.comp, WIDTH lanes
// of a subgroup share 4 GROUPS columns of a head; a lane has four of them, and every PARTS-th group of four rows. A key
// read from shared memory serves four columns, and sums over rows stay within the subgroup: between two blocks of
// tokens no subgroup waits for another. The registers hold S / past, where past is the product of the decays since it
// was 1, so that a decay is one product and not one for each element of S.
#include "delta_rule_fours.h"
#include "accurate.glsl"
layout(local_size_x_id = DELTA_RULE_FOURS_SPEC_LANES) in;
layout(constant_id = DELTA_RULE_FOURS_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_RULE_FOURS_SPEC_DV) const uint DV = 128;
layout(constant_id = DELTA_RULE_FOURS_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_RULE_FOURS_SPEC_WIDTH) const uint WIDTH = 32;
layout(constant_id = DELTA_RULE_FOURS_SPEC_GROUPS) const uint GROUPS = 4;
layout(constant_id = DELTA_RULE_FOURS_SPEC_BLOCK) const uint BLOCK = 8;
layout(constant_id = DELTA_RULE_FOURS_SPEC_AHEAD) const uint AHEAD = 0;
layout(set = 0, binding = DELTA_RULE_FOURS_O) writeonly buffer o_block { float o[]; };
layout(set = 0, binding = DELTA_RULE_FOURS_QKV) readonly buffer qkv_block { vec4 qkv[]; };
layout(set = 0, binding = DELTA_RULE_FOURS_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_RULE_FOURS_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_RULE_FOURS_STATE) buffer state_block { vec4 state[]; };
layout(set = 0, binding = DELTA_RULE_FOURS_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

const float LEAST = 1e-6; // of past
const uint PARTS = WIDTH / GROUPS, DK4 = DK / 4, DV4 = DV / 4;
const uint ROWS4 = (DK4 + PARTS - 1) / PARTS; // groups of four rows of a lane
const uint HEAD4 = ROWS4 * PARTS;             // vec4 of a key, zeros past DK
const uint COLUMNS4 = gl_WorkGroupSize.x / WIDTH * GROUPS;
const uint VECTORS = N + 1; // of a token: k of each step, then q
const uint KEYS = BLOCK * VECTORS * HEAD4, VALUES = BLOCK * N * COLUMNS4;
const uint KEYS_EACH = (KEYS + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x; // loads of an invocation
const uint VALUES_EACH = (VALUES + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
shared vec4 keys[KEYS];
shared vec4 values[VALUES];
shared float betas[BLOCK * N];
shared float decays[BLOCK];

// What an invocation loads of a block of tokens.
vec4 own_keys[KEYS_EACH], own_values[VALUES_EACH];
float own_beta, own_g;

// Loads the block at `row`; of tokens from `count` on it loads the last one again.
void load(uint lane, uint row, uint count, uint head) {
  uint key_head = head / args.share % args.H, column = gl_WorkGroupID.x * COLUMNS4;
  [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
    uint i = min(lane + j * gl_WorkGroupSize.x, KEYS - 1), d = i % HEAD4, m = i / HEAD4 % VECTORS;
    uint at = (row + min(i / (VECTORS * HEAD4), count - 1)) * (args.qkv_stride / 4);
    own_keys[j] = d < DK4 ? qkv[at + ((m == N ? 0 : (m + 1) * args.H) + key_head) * DK4 + d] : vec4(0.0);
  }
  [[unroll]] for (uint j = 0; j < VALUES_EACH; j++) {
    uint i = min(lane + j * gl_WorkGroupSize.x, VALUES - 1), c = min(column + i % COLUMNS4, DV4 - 1);
    uint at = (row + min(i / (N * COLUMNS4), count - 1)) * (args.qkv_stride / 4);
    own_values[j] = qkv[at + VECTORS * args.H * DK4 + (i / COLUMNS4 % N * args.Hv + head) * DV4 + c];
  }
  uint t = min(lane / N, count - 1);
  own_beta = beta[(row + t) * args.beta_stride + lane % N * args.Hv + head];
  own_g = args.gated != 0 ? g[(row + min(lane, count - 1)) * args.g_stride + head] : 0.0;
}

void stage(uint lane) {
  [[unroll]] for (uint j = 0; j < KEYS_EACH; j++) {
    uint i = lane + j * gl_WorkGroupSize.x;
    if (i < KEYS) keys[i] = own_keys[j];
  }
  [[unroll]] for (uint j = 0; j < VALUES_EACH; j++) {
    uint i = lane + j * gl_WorkGroupSize.x;
    if (i < VALUES) values[i] = own_values[j];
  }
  if (lane < BLOCK * N) betas[lane] = own_beta;
  if (lane < BLOCK) decays[lane] = accurate_exp(own_g);
}

vec4 all_rows(vec4 x) {
  [[unroll]] for (uint m = GROUPS; m < WIDTH; m *= 2) x += subgroupShuffleXor(x, m);
  return x;
}

// The sum over all rows of element part % 4 of x: half of the elements go to the neighbour in each of two steps.
float row_sum(vec4 x, uint part) {
  bool second = part % 2 != 0, upper = part % 4 >= 2;
  vec2 two = (upper ? x.zw : x.xy) + subgroupShuffleXor(upper ? x.xy : x.zw, 2 * GROUPS);
  float one = (second ? two.y : two.x) + subgroupShuffleXor(second ? two.x : two.y, GROUPS);
  [[unroll]] for (uint m = 4 * GROUPS; m < WIDTH; m *= 2) one += subgroupShuffleXor(one, m);
  return one;
}

void main() {
  uint lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  sequence s = sequences[gl_WorkGroupID.z];
  if (s.T == 0) return;
  uint head = gl_WorkGroupID.y, part = lane % WIDTH / GROUPS;
  uint local = lane / WIDTH * GROUPS + lane % GROUPS, column = gl_WorkGroupID.x * COLUMNS4 + local;
  bool inside = column < DV4;
  uint state_at = s.slot * (args.state_stride / 4) + (head * DK + 4 * part) * DV4 + column;
  vec4 S[4 * ROWS4];
  [[unroll]] for (uint r = 0; r < ROWS4; r++)
    [[unroll]] for (uint i = 0; i < 4; i++)
      S[4 * r + i] = inside && r * PARTS + part < DK4 ? state[state_at + (4 * r * PARTS + i) * DV4] : vec4(0.0);

  float past = 1.0;
  load(lane, s.row, min(BLOCK, s.T), head);
  for (uint t0 = 0; t0 < s.T; t0 += BLOCK) {
    uint count = min(BLOCK, s.T - t0), next = t0 + BLOCK;
    barrier();
    stage(lane);
    barrier();
    if (AHEAD != 0 && next < s.T) load(lane, s.row + next, min(BLOCK, s.T - next), head);
    for (uint t = 0; t < count; t++) {
      past *= decays[t];
      if (past < LEAST || past > 1.0 / LEAST) {
        [[unroll]] for (uint j = 0; j < 4 * ROWS4; j++) S[j] *= past;
        past = 1.0;
      }
      vec4 y = vec4(0.0);
      for (uint m = 0; m < N; m++) {
        uint at = (t * VECTORS + m) * HEAD4 + part;
        vec4 k[ROWS4], kS = vec4(0.0);
        [[unroll]] for (uint r = 0; r < ROWS4; r++) k[r] = keys[at + r * PARTS];
        [[unroll]] for (uint j = 0; j < 4 * ROWS4; j++) kS += k[j / 4][j % 4] * S[j];
        vec4 u = betas[t * N + m] / past * (values[(t * N + m) * COLUMNS4 + local] - past * all_rows(kS));
        [[unroll]] for (uint j = 0; j < 4 * ROWS4; j++) S[j] += k[j / 4][j % 4] * u;
      }
      [[unroll]] for (uint r = 0; r < ROWS4; r++) {
        vec4 q = keys[(t * VECTORS + N) * HEAD4 + part + r * PARTS];
        [[unroll]] for (uint i = 0; i < 4; i++) y += q[i] * S[4 * r + i];
      }
      float one = args.scale * past * row_sum(y, part);
      uint to = (s.row + t0 + t) * args.o_stride + head * DV + 4 * column;
      if (inside && part < 4) o[to + part] = one;
    }
    if (AHEAD == 0 && next < s.T) load(lane, s.row + next, min(BLOCK, s.T - next), head);
  }

  [[unroll]] for (uint r = 0; r < ROWS4; r++)
    if (inside && r * PARTS + part < DK4)
      [[unroll]] for (uint i = 0; i < 4; i++) state[state_at + (4 * r * PARTS + i) * DV4] = past * S[4 * r + i];
}
