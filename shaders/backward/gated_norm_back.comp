#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// Per group of n columns:
//   FIRST     y = x r weight silu(gate),       r of x
//   OF_GATED  y = a r weight, a = x silu(gate), r of a
//   ABSENT    y = x silu(gate)
// Without a gate, silu(gate) is 1. A norm is FIRST without a gate, of one group.
// A team is a workgroup, or with SUBGROUPS a subgroup. For one group of columns it processes GATED_NORM_BACK_ROWS rows
// in order and sums their terms of dweight into one row of parts. An invocation keeps HELD units of a row, and their
// sums, in registers. It reads the other units twice and accumulates their terms in parts.
// Workgroups (ceil(T / GATED_NORM_BACK_ROWS), any). Along y, teams share groups + 1 tasks; the last one copies the
// columns of dy outside the groups.
#include "gated_norm_back.h"
#include "slope.glsl"
layout(local_size_x_id = GATED_NORM_BACK_SPEC_LANES) in;
layout(constant_id = GATED_NORM_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = GATED_NORM_BACK_SPEC_SUBGROUPS) const uint SUBGROUPS = 0;
layout(constant_id = GATED_NORM_BACK_SPEC_HELD) const uint HELD = 1;
layout(constant_id = GATED_NORM_BACK_SPEC_PLACE) const uint PLACE = BACK_OF_GATED;
layout(constant_id = GATED_NORM_BACK_SPEC_GATED) const uint GATED = 1;
#include "units.glsl"
UNITS(readonly, GATED_NORM_BACK_X, x)
UNITS(readonly, GATED_NORM_BACK_GATE, gate)
UNITS(readonly, GATED_NORM_BACK_WEIGHT, weight)
UNITS(readonly, GATED_NORM_BACK_DY, dy)
UNITS(, GATED_NORM_BACK_DX, dx)
UNITS(, GATED_NORM_BACK_DGATE, dgate)
UNITS(, GATED_NORM_BACK_PARTS, parts)

uint lane, width; // in the team
uint first, own;  // the group's first column, in x and in gate
uint turn = 0;
shared vec2 slots[2][gl_WorkGroupSize.x];

struct columns {
  vec4 x, dy, old, gate, s, old_gate; // s: sigmoid(gate)
};

columns read(uint t, uint i) {
  columns c;
  c.x = LOAD(x, (t * args.x_stride + first) / UNIT + i);
  c.dy = LOAD(dy, (t * args.dy_stride + first) / UNIT + i);
  c.old = c.gate = c.s = c.old_gate = vec4(0.0);
  if (args.add != 0) c.old = LOAD(dx, (t * args.dx_stride + first) / UNIT + i);
  if (GATED == 0) return c;
  c.gate = LOAD(gate, (t * args.gate_stride + own) / UNIT + i);
  if (args.add_gate != 0) c.old_gate = LOAD(dgate, (t * args.dgate_stride + own) / UNIT + i);
  [[unroll]] for (uint k = 0; k < UNIT; k++) c.s[k] = sigmoid(c.gate[k]);
  return c;
}

vec4 silu_of(columns c) { return GATED != 0 ? c.gate * c.s : vec4(1.0); }

vec4 weight_of(uint h, uint i) {
  return PLACE == BACK_ABSENT ? vec4(1.0) : LOAD(weight, h * args.weight_step / UNIT + i);
}

// The terms of the norm's sum and of sum (dn n), without r.
vec2 terms(columns c, vec4 w) {
  vec4 s = silu_of(c), a = PLACE == BACK_OF_GATED ? c.x * s : c.x;
  return vec2(dot(a, a), dot(c.dy * w, c.x * s));
}

// The sum over the team, in every invocation. Two sets of slots are used in turn, so that one barrier suffices.
vec2 team_sum(vec2 v) {
  v = subgroupAdd(v);
  if (SUBGROUPS != 0 || gl_NumSubgroups == 1) return v;
  turn = 1 - turn;
  if (subgroupElect()) slots[turn][gl_SubgroupID] = v;
  barrier();
  vec2 total = vec2(0.0);
  for (uint i = 0; i < gl_NumSubgroups; i++) total += slots[turn][i];
  return total;
}

// Writes the gradients and returns the terms of dweight.
vec4 finish(uint t, uint i, columns c, vec4 w, float r, float mean) {
  vec4 s = silu_of(c), weighted = c.dy * w;
  // Of x and of silu(gate). OF_GATED: a's gradient goes to both.
  vec4 da = r * (weighted - c.x * s * r * mean);
  vec4 to_x = PLACE == BACK_OF_GATED ? da * s : r * (weighted * s - c.x * r * mean);
  vec4 to_s = PLACE == BACK_OF_GATED ? da * c.x : r * weighted * c.x;
  STORE(dx, (t * args.dx_stride + first) / UNIT + i, c.old + to_x)
  if (GATED != 0)
    STORE(dgate, (t * args.dgate_stride + own) / UNIT + i, c.old_gate + to_s * c.s * (1.0 + c.gate * (1.0 - c.s)))
  return c.dy * c.x * s * r;
}

void group_back(uint h, uint begin, uint end) {
  uint units = args.n / UNIT, rest = lane + HELD * width;
  uint part = ((begin / GATED_NORM_BACK_ROWS * args.groups + h) * args.n) / UNIT;
  vec4 weights[HELD], sums[HELD];
  own = h * args.n;
  first = args.from + own;
  [[unroll]] for (uint k = 0; k < HELD; k++) {
    weights[k] = weight_of(h, min(lane + k * width, units - 1));
    sums[k] = vec4(0.0);
  }
  for (uint t = begin; t < end; t++) {
    columns kept[HELD];
    vec2 both = vec2(0.0);
    [[unroll]] for (uint k = 0; k < HELD; k++) kept[k] = read(t, min(lane + k * width, units - 1));
    [[unroll]] for (uint k = 0; k < HELD; k++)
      if (lane + k * width < units) both += terms(kept[k], weights[k]);
    for (uint i = rest; i < units; i += width) both += terms(read(t, i), weight_of(h, i));
    if (PLACE != BACK_ABSENT) both = team_sum(both);
    float r = PLACE == BACK_ABSENT ? 1.0 : accurate_inversesqrt(both.x / float(args.n) + args.eps);
    float mean = PLACE == BACK_ABSENT ? 0.0 : both.y * r / float(args.n);
    [[unroll]] for (uint k = 0; k < HELD; k++)
      if (lane + k * width < units) sums[k] += finish(t, lane + k * width, kept[k], weights[k], r, mean);
    for (uint i = rest; i < units; i += width) {
      vec4 sum = finish(t, i, read(t, i), weight_of(h, i), r, mean);
      if (t > begin) sum += LOAD(parts, part + i);
      STORE(parts, part + i, sum)
    }
  }
  [[unroll]] for (uint k = 0; k < HELD; k++)
    if (lane + k * width < units) STORE(parts, part + lane + k * width, sums[k])
}

void copy_others(uint begin, uint end) {
  uint theirs = args.groups * args.n;
  for (uint t = begin; t < end; t++)
    for (uint i = lane; i < args.cols - theirs; i += width) {
      uint c = i < args.from ? i : i + theirs, to = t * args.dx_stride + c;
      dx[to] = (args.add != 0 ? dx[to] : 0.0) + dy[t * args.dy_stride + c];
    }
}

void main() {
  uint begin = gl_WorkGroupID.x * GATED_NORM_BACK_ROWS, end = min(begin + GATED_NORM_BACK_ROWS, args.T);
  uint teams = SUBGROUPS != 0 ? gl_NumSubgroups : 1, team = SUBGROUPS != 0 ? gl_SubgroupID : 0;
  lane = SUBGROUPS != 0 ? subgroupExclusiveAdd(1u) : gl_LocalInvocationID.x;
  width = SUBGROUPS != 0 ? subgroupAdd(1u) : gl_WorkGroupSize.x; // not every device fills subgroups
  for (uint h = gl_WorkGroupID.y * teams + team; h <= args.groups; h += gl_NumWorkGroups.y * teams)
    if (h < args.groups)
      group_back(h, begin, end);
    else
      copy_others(begin, end);
}
