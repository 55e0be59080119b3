#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
// The same product as matvec.comp, for one token, with weights in tiles (format_tiles.c) and integer dot products.
//
// x, times the norm's weights where there is a norm, is rounded to integers of 16 bits. Each run of 128 elements, or
// fewer where subgroups are small, has one step: an element is step * (256 high + low), where |256 high + low| <=
// 32512. In each group of 32 elements, the bytes `high` and the bytes `low` are multiplied by the group's weights. The
// hardware's dot product does four bytes at once, and the sums of a group are exact.
//
// There are ceil(N / (TEAMS * ROWS)) workgroups, spread over x and y; with EXPERTS over x, and y is the row of y. Every
// workgroup computes all integers of x, in shared memory. A team is the lanes that share ROWS rows of weights. A lane
// keeps the integers of its GROUPS groups in registers for all rows of its team. Subgroups are full and have 8 lanes or
// more.
#include "matvec_dot.h"
layout(local_size_x_id = MATVEC_DOT_SPEC_LANES) in;
layout(constant_id = MATVEC_DOT_SPEC_K) const uint K = 32;
layout(constant_id = MATVEC_DOT_SPEC_TEAMS) const uint TEAMS = 1;
layout(constant_id = MATVEC_DOT_SPEC_ROWS) const uint ROWS = 1;
layout(constant_id = MATVEC_DOT_SPEC_AHEAD) const uint AHEAD = 1;
layout(constant_id = MATVEC_DOT_SPEC_NORM) const uint NORM = 0;
layout(constant_id = MATVEC_DOT_SPEC_GATED) const uint GATED = 0;
layout(constant_id = MATVEC_DOT_SPEC_WIDTH) const uint WIDTH = 32;
layout(constant_id = MATVEC_DOT_SPEC_EXPERTS) const uint EXPERTS = 0;
layout(set = 0, binding = MATVEC_DOT_IDS) readonly buffer ids_block { uint ids[]; };
layout(set = 0, binding = MATVEC_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATVEC_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = MATVEC_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = MATVEC_NORM) readonly buffer norm4_block { vec4 norm4[]; };
layout(constant_id = MATVEC_DOT_SPEC_CONV_W) const uint CONV_W = 0;
layout(constant_id = MATVEC_DOT_SPEC_LONE) const uint LONE = 0;
layout(constant_id = MATVEC_DOT_SPEC_ACTIVATION) const uint ACTIVATION = 0;
#define CONV
#define CONV_STEP_FROM MATVEC_BINDINGS
#include "conv_step.glsl"
#define WEIGHTS_BINDING MATVEC_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATVEC_DOT_SPEC_FORMAT
#include "activation.glsl"
#include "weights.glsl"

const uint TOKENS = 1, OUTPUTS = ROWS, W_ROWS = ROWS * (1 + GATED);
const uint TEAM = gl_WorkGroupSize.x / TEAMS, ALL = K / 32, GROUPS = (ALL + TEAM - 1) / TEAM;
const uint SUBGROUPS = gl_WorkGroupSize.x / WIDTH;
// A lane rounds a piece of x a turn: more than four elements where that saves turns.
const uint LANES = gl_WorkGroupSize.x, FOURS = K / 4 <= LANES ? 1 : K / 8 <= LANES ? 2 : 4;
const uint PIECES = K / 4 / FOURS, TURNS = (PIECES + LANES - 1) / LANES;
const uint FLIGHT = TURNS < 2 ? TURNS : 2;                      // turns whose x is loaded at once
const uint RUN_LANES = WIDTH < 32 / FOURS ? WIDTH : 32 / FOURS; // lanes whose pieces are a run
const bool WHOLE = W_ROWS % AHEAD == 0; // else the last sums of a team are of fewer rows than AHEAD
const uint PITCH = ALL + 4; // from word w to word w + 1 of all groups. The 4 avoids bank conflicts
const float MOST = 32512.0;
shared float partial[SUBGROUPS * W_ROWS];
shared float squares[SUBGROUPS];
shared uint integers_of_x[16 * PITCH]; // 8 words of high bytes for each group, then 8 of low bytes
shared float steps[K / 32];

#include "matvec_ends.glsl"

float total(uint i) {
  uint each = SUBGROUPS / TEAMS, first = gl_SubgroupID / each * each; // subgroups of the team
  float sum = 0.0;
  for (uint s = first; s < first + each; s++) sum += partial[s * W_ROWS + i];
  return sum;
}

float squares_of_x; // their sum

float square_sum(uint t) { return squares_of_x; }

// All lanes.
void add_squares() {
  float sum = 0.0;
  for (uint s = gl_SubgroupInvocationID; s < SUBGROUPS; s += WIDTH) sum += squares[s];
  squares_of_x = subgroupAdd(sum);
}

uint four_bytes(uvec4 v) { return (v.x & 255) | (v.y & 255) << 8 | (v.z & 255) << 16 | v.w << 24; }

// The pieces of x that a lane has loaded and not rounded yet, and their norm's weights.
vec4 loaded[FLIGHT * FOURS], loaded_norm[FLIGHT * FOURS];

// Loads the pieces of FLIGHT turns from `turn` on. from: where x begins, in fours.
void load_x(uint lane, uint turn, uint from) {
  [[unroll]] for (uint i = 0; i < FLIGHT * FOURS; i++) {
    const uint at = min(lane + (turn + i / FOURS) * LANES, PIECES - 1) * FOURS + i % FOURS;
    loaded[i] = x4[from + at];
    if (NORM != 0) loaded_norm[i] = norm4[at];
  }
}

// Stores the integers of a piece, which `loaded` has from `first` on. Returns the sum of its squares.
float round_piece(uint piece, uint first) {
  vec4 v[FOURS];
  float sum = 0.0, most = 0.0;
  [[unroll]] for (uint f = 0; f < FOURS; f++) {
    v[f] = piece < PIECES ? loaded[first + f] : vec4(0.0);
    sum += dot(v[f], v[f]);
    if (NORM != 0) v[f] *= loaded_norm[first + f];
    const vec4 size = abs(v[f]);
    // If an element is NaN or at least 1e38, the step is infinite, and every output of this x becomes infinite or NaN.
    most = max(most, all(lessThan(size, vec4(1e38))) ? max(max(size.x, size.y), max(size.z, size.w))
                                                     : uintBitsToFloat(0x7f800000));
  }
  [[unroll]] for (uint step = 1; step < RUN_LANES; step *= 2) most = max(most, subgroupShuffleXor(most, step));
  const float scale = most > 0.0 ? MOST / most : 0.0;
  if (piece >= PIECES) return 0.0;
  [[unroll]] for (uint f = 0; f < FOURS; f++) {
    // 1.5 * 2^23 more is rounded to an integer, whose last 16 bits are those of the element's integer.
    precise vec4 q = v[f] * scale + 12582912.0;
    const uvec4 bits = floatBitsToUint(q);
    const uint at = piece * FOURS + f, word = at % 8 * PITCH + at / 8;
    integers_of_x[word] = four_bytes(bits + 128 >> 8);
    integers_of_x[8 * PITCH + word] = four_bytes(bits);
  }
  if (piece % RUN_LANES == 0) steps[piece / RUN_LANES] = most / MOST;
  return sum;
}

// The first turns' pieces have been loaded, before the weights: rounding waits for x first.
void stage(uint lane, uint from) {
  float sum = 0.0;
  for (uint turn = 0; turn < TURNS; turn += FLIGHT) {
    if (turn > 0) load_x(lane, turn, from);
    [[unroll]] for (uint t = 0; t < FLIGHT; t++) sum += round_piece(lane + (turn + t) * LANES, t * FOURS);
  }
  if (NORM != 0) {
    sum = subgroupAdd(sum);
    if (subgroupElect()) squares[gl_SubgroupID] = sum;
  }
  barrier();
}

// ---------------------------------------------------------------- groups of 32

struct group32 {
  uvec4 low, more; // more: a group's second 16 bytes, in Q8_0 only
  uvec2 high;
  scales s;
};

group32 load32(uint tile, uint j) {
  uint at = tile * TILE_UNITS;
  group32 w;
  w.low = weights4[at + (EIGHT ? 1 + 2 * j : LOW_BITS + j)];
  w.more = EIGHT ? weights4[at + 2 + 2 * j] : w.low;
  if (SIX)
    w.high = weights2[(at + HIGH_BITS) * 2 + j];
  else
    w.high = uvec2(load_high(tile, j, 0));
  if (IS_K || FORMAT == FORMAT_IQ4_XS) {
    uvec4 header = weights4[at]; // one load instead of three
    w.s = scales(header.x, j < 4 ? header.y : header.z, header.w, j);
  } else {
    w.s = load_scales(tile, j);
  }
  return w;
}

struct inputs32 {
  uint high[8], low[8];
  float step;
  int sums[2]; // the sum of the integers of each half of the group
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
  x.step = group < ALL ? steps[group * 8 / (FOURS * RUN_LANES)] : 0.0;
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

// Adds up AHEAD sums over the subgroup's lanes. Each lane l < AHEAD then has one of them in sums[0], and returns which.
// While a lane has several, it gives half of them away, so that few values move.
uint add_lanes(inout float sums[AHEAD]) {
  uint row = 0;
  [[unroll]] for (uint step = 1; step < AHEAD; step *= 2) {
    const bool upper = (gl_SubgroupInvocationID & step) != 0;
    [[unroll]] for (uint a = 0; a < AHEAD / 2 / step; a++) {
      const float keep = upper ? sums[2 * a + 1] : sums[2 * a], give = upper ? sums[2 * a] : sums[2 * a + 1];
      sums[a] = keep + subgroupShuffleXor(give, step);
    }
    row += upper ? step : 0;
  }
  [[unroll]] for (uint step = AHEAD; step < WIDTH; step *= 2) sums[0] += subgroupShuffleXor(sums[0], step);
  return row;
}

// Row r of a team's weights is of output r / (1 + GATED): gate's and up's in turn.
uint row_of(uint row, uint r) { return min(row + r / (1 + GATED), args.N - 1) + r % (1 + GATED) * args.N; }
uint place(uint r) { return r % (1 + GATED) * ROWS + r / (1 + GATED); }

void main() {
  const uint lane = gl_SubgroupID * WIDTH + gl_SubgroupInvocationID, team = lane / TEAM, own = lane % TEAM;
  uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, expert = 0, from = 0;
  token0 = 0;
  if (EXPERTS != 0) {
    group = gl_WorkGroupID.x;
    token0 = gl_WorkGroupID.y;
    from = token0 / args.share * (args.x_stride / 4);
    expert = ids[token0 / args.k * args.ids_stride + token0 % args.k] - args.first_expert; // wraps below the first
    if (expert >= args.experts) return;
  }
  const uint row = (group * TEAMS + team) * ROWS, tiles = args.w_stride / 256;
  const uint first_row = expert * args.N * (1 + GATED);
  group32 w[AHEAD * GROUPS];
#define FETCH(r, g) load32((first_row + row_of(row, r)) * tiles + (g) / 8, (g) % 8)
#define GROUP(i) min(own + (i)*TEAM, ALL - 1)
  load_x(lane, 0, from);
  [[unroll]] for (uint i = 0; i < AHEAD * GROUPS; i++)
    if (i / GROUPS < W_ROWS) w[i] = FETCH(i / GROUPS, GROUP(i % GROUPS));
  if (own < OUTPUTS) fetch(row, own);
  stage(lane, from);
  inputs32 x[GROUPS];
  [[unroll]] for (uint i = 0; i < GROUPS; i++) x[i] = inputs_of(own + i * TEAM);
  for (uint first = 0; first < W_ROWS; first += AHEAD) {
    float sums[AHEAD];
    [[unroll]] for (uint a = 0; a < AHEAD; a++) {
      float sum = 0.0;
      [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        sum += product(w[a * GROUPS + i], x[i]);
        if (first + AHEAD + (WHOLE ? 0 : a) < W_ROWS) w[a * GROUPS + i] = FETCH(first + AHEAD + a, GROUP(i));
      }
      sums[a] = sum;
    }
    uint a = add_lanes(sums);
    if (gl_SubgroupInvocationID < AHEAD && (WHOLE || first + a < W_ROWS))
      partial[gl_SubgroupID * W_ROWS + place(first + a)] = sums[0];
  }
  barrier();
  if (NORM != 0) add_squares();
  for (uint i = own; i < OUTPUTS; i += TEAM) {
    if (OUTPUTS > TEAM && i != own) fetch(row, i);
    finish(row, i);
  }
}
