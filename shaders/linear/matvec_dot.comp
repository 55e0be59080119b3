#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
// matvec.comp for one token, with weights in tiles and sums of integers. x (normed) becomes integers of 16 bits: every
// 4 * gl_SubgroupSize elements are step * (256 high + low), |256 high + low| <= 32512. Products of a group of 32 with
// bytes of weights are exact; both sums of a group are a dot product of the hardware, four bytes at once.
// Workgroups (ceil(N / (TEAMS * ROWS)), spread over x and y). All of them make the same integers, in shared memory.
// Each lane of a team keeps those of its GROUPS of 32 elements in registers for all rows of the team. Subgroups are
// full, of 8 lanes or more.
#include "matvec_dot.h"
layout(local_size_x_id = MATVEC_DOT_SPEC_LANES) in;
layout(constant_id = MATVEC_DOT_SPEC_K) const uint K = 32;
layout(constant_id = MATVEC_DOT_SPEC_TEAMS) const uint TEAMS = 1;
layout(constant_id = MATVEC_DOT_SPEC_ROWS) const uint ROWS = 1;
layout(constant_id = MATVEC_DOT_SPEC_AHEAD) const uint AHEAD = 1;
layout(constant_id = MATVEC_DOT_SPEC_NORM) const uint NORM = 0;
layout(constant_id = MATVEC_DOT_SPEC_GATED) const uint GATED = 0;
layout(set = 0, binding = MATVEC_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATVEC_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = MATVEC_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = MATVEC_NORM) readonly buffer norm4_block { vec4 norm4[]; };
#ifdef CONV
layout(constant_id = MATVEC_DOT_CONV_SPEC_W) const uint CONV_W = 4;
layout(constant_id = MATVEC_DOT_CONV_SPEC_LONE) const uint LONE = 0;
#define CONV_STEP_FROM MATVEC_BINDINGS
#include "conv_step.glsl"
#endif
#define WEIGHTS_BINDING MATVEC_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATVEC_DOT_SPEC_FORMAT
#include "activation.glsl"
#include "weights.glsl"

const uint TOKENS = 1, OUTPUTS = ROWS, W_ROWS = ROWS * (1 + GATED);
const uint TEAM = gl_WorkGroupSize.x / TEAMS, ALL = K / 32, GROUPS = (ALL + TEAM - 1) / TEAM;
const uint PITCH = ALL + 4; // of words w of all groups: lanes that write neighbours meet different banks
const float MOST = 32512.0;
shared float partial[gl_WorkGroupSize.x / 8 * W_ROWS];
shared float squares[gl_WorkGroupSize.x / 8];
shared uint integers_of_x[16 * PITCH]; // words of high bytes, then of low ones
shared float steps[K / 32];

#include "matvec_ends.glsl"

float total(uint i) {
  uint each = gl_NumSubgroups / TEAMS, first = gl_SubgroupID / each * each; // subgroups of the team
  float sum = 0.0;
  for (uint s = first; s < first + each; s++) sum += partial[s * W_ROWS + i];
  return sum;
}

float square_sum(uint t) {
  float sum = 0.0;
  for (uint s = 0; s < gl_NumSubgroups; s++) sum += squares[s];
  return sum;
}

uint four_bytes(ivec4 v) { return (v.x & 255) | (v.y & 255) << 8 | (v.z & 255) << 16 | v.w << 24; }

void stage(uint lane) {
  const uint TURNS = (K / 4 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
  float sum = 0.0;
  vec4 next = x4[min(lane, K / 4 - 1)], next_factor;
  if (NORM != 0) next_factor = norm4[min(lane, K / 4 - 1)];
  for (uint turn = 0; turn < TURNS; turn++) { // the next turn's are on their way
    uint at = lane + turn * gl_WorkGroupSize.x, then = min(at + gl_WorkGroupSize.x, K / 4 - 1), group = at / 8,
         word = at % 8;
    vec4 v = at < K / 4 ? next : vec4(0.0), factor = next_factor;
    if (turn + 1 < TURNS) {
      next = x4[then];
      if (NORM != 0) next_factor = norm4[then];
    }
    sum += dot(v, v);
    if (NORM != 0) v *= factor;
    vec4 size = abs(v);
    // NaN compares false, and so does what is no smaller than 1e38. An infinite step makes every output of this x infinite or NaN.
    float most =
        all(lessThan(size, vec4(1e38))) ? max(max(size.x, size.y), max(size.z, size.w)) : uintBitsToFloat(0x7f800000);
    most = subgroupMax(most);
    ivec4 q = ivec4(round(v * (most > 0.0 ? MOST / most : 0.0)));
    ivec4 high = q + 128 >> 8;
    if (at < K / 4) {
      integers_of_x[word * PITCH + group] = four_bytes(high);
      integers_of_x[(8 + word) * PITCH + group] = four_bytes(q - high * 256);
    }
    if (gl_SubgroupInvocationID == 0 && at < K / 4) steps[at / gl_SubgroupSize] = most / MOST;
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) squares[gl_SubgroupID] = sum;
  barrier();
}

// ---------------------------------------------------------------- groups of 32

struct group32 {
  uvec4 low, more; // more: the second 16 bytes of Q8_0
  uvec2 high;
  scales s;
};

group32 load32(uint tile, uint j) {
  uint at = tile * TILE_UNITS;
  group32 w;
  w.low = weights4[at + (EIGHT ? 1 + 2 * j : LOW_BITS + j)];
  w.more = EIGHT ? weights4[at + 2 + 2 * j] : w.low;
  w.high = uvec2(FIVE ? weights[(at + HIGH_BITS) * 4 + j] : 0);
  if (FIVE) w.high.y = w.high.x;
  if (SIX) w.high = weights2[(at + HIGH_BITS) * 2 + j];
  w.s = load_scales(tile, j);
  return w;
}

struct inputs32 {
  uint high[8], low[8];
  float step;
  int sums[2]; // of the halves' integers
};

int dot4(uint a, uint b) { return dotPacked4x8EXT(int(a), int(b)); }

inputs32 inputs_of(uint group) {
  inputs32 x;
  x.sums[0] = x.sums[1] = 0;
  [[unroll]] for (uint w = 0; w < 8; w++) {
    x.high[w] = integers_of_x[w * PITCH + min(group, ALL - 1)];
    x.low[w] = integers_of_x[(8 + w) * PITCH + min(group, ALL - 1)];
    x.sums[w / 4] += 256 * dot4(0x01010101, x.high[w]) + dot4(0x01010101, x.low[w]);
  }
  x.step = group < ALL ? steps[group * 8 / gl_SubgroupSize] : 0.0;
  return x;
}

float product(group32 w, inputs32 x) {
  int high[2] = int[](0, 0), low[2] = int[](0, 0);
  [[unroll]] for (uint i = 0; i < 8; i++) {
    uint q = integers(i < 4 ? w.low[i % 4] : w.more[i % 4], i < 4 ? w.high.x : w.high.y, i);
    high[i / 4] += dot4(q, x.high[i]);
    low[i / 4] += dot4(q, x.low[i]);
  }
  ivec2 sums = 256 * ivec2(high[0], high[1]) + ivec2(low[0], low[1]);
  vec2 factor = decode_scales(w.s, 0);
  if (!TWO_FACTORS) return x.step * (factor.x * float(sums.x + sums.y) + factor.y * float(x.sums[0] + x.sums[1]));
  vec2 second = decode_scales(w.s, 1);
  return x.step * (factor.x * float(sums.x) + factor.y * float(x.sums[0]) + second.x * float(sums.y) +
                   second.y * float(x.sums[1]));
}

void main() {
  const uint lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID, team = lane / TEAM, own = lane % TEAM;
  const uint row = ((gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * TEAMS + team) * ROWS;
  const uint tiles = args.w_stride / 256;
  token0 = 0;
  group32 w[AHEAD * GROUPS];
#define FETCH(r, g) load32((min(row + (r) % ROWS, args.N - 1) + (r) / ROWS * args.N) * tiles + (g) / 8, (g) % 8)
#define GROUP(i) min(own + (i)*TEAM, ALL - 1)
  [[unroll]] for (uint i = 0; i < AHEAD * GROUPS; i++) w[i] = FETCH(i / GROUPS, GROUP(i % GROUPS));
  if (own < OUTPUTS) fetch(row, own);
  stage(lane);
  inputs32 x[GROUPS];
  [[unroll]] for (uint i = 0; i < GROUPS; i++) x[i] = inputs_of(own + i * TEAM);
  for (uint first = 0; first < W_ROWS; first += AHEAD) {
    [[unroll]] for (uint a = 0; a < AHEAD; a++) {
      float sum = 0.0;
      [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        sum += product(w[a * GROUPS + i], x[i]);
        if (first + AHEAD < W_ROWS) w[a * GROUPS + i] = FETCH(first + AHEAD + a, GROUP(i));
      }
      sum = subgroupAdd(sum);
      if (subgroupElect()) partial[gl_SubgroupID * W_ROWS + first + a] = sum;
    }
  }
  barrier();
  for (uint i = own; i < OUTPUTS; i += TEAM) {
    if (i != own) fetch(row, i);
    finish(row, i);
  }
}
