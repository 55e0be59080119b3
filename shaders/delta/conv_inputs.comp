#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// short_conv and delta_inputs in one kernel, with their formulas. From a delta layer's product x it computes y, the
// convolved q, k and v with q and k normed, and the gates. So q and k pass through memory once, not twice, and are not
// rounded in between. A subgroup takes RUN tokens of a head of q or k, or of as many columns of v; one more takes the
// gates. Workgroups (any, ceil(T / RUN), B). RUN >= W - 1, so only run 0 reads history, which it replaces. Full
// subgroups; any C, Dk, T.
#include "stored.glsl"
#include "conv_inputs.h"
layout(local_size_x_id = CONV_INPUTS_SPEC_LANES) in;
layout(constant_id = CONV_INPUTS_SPEC_W) const uint W = 4;
layout(constant_id = CONV_INPUTS_SPEC_RUN) const uint RUN = 4;
layout(constant_id = CONV_INPUTS_SPEC_GROUPS) const uint GROUPS = 1;
layout(constant_id = CONV_INPUTS_SPEC_READ4) const uint READ4 = 0;
layout(constant_id = CONV_INPUTS_SPEC_WRITE4) const uint WRITE4 = 0;
layout(constant_id = CONV_INPUTS_SPEC_ACTIVATION) const uint ACTIVATION = 0;
layout(constant_id = CONV_INPUTS_SPEC_NORM) const uint NORM = NORM_NONE;
layout(set = 0, binding = CONV_INPUTS_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = CONV_INPUTS_Y) writeonly buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = CONV_INPUTS_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = CONV_INPUTS_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = CONV_INPUTS_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = CONV_INPUTS_WEIGHT) readonly buffer weight4_block { vec4 weight4[]; };
layout(set = 0, binding = CONV_INPUTS_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = CONV_INPUTS_HISTORY) buffer history_block { float history[]; };
layout(set = 0, binding = CONV_INPUTS_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_INPUTS_BETA) writeonly buffer beta_block { float beta[]; };
layout(set = 0, binding = CONV_INPUTS_G) writeonly buffer g_block { float g[]; };
layout(set = 0, binding = CONV_INPUTS_BA) readonly buffer ba_block { float ba[]; };
layout(set = 0, binding = CONV_INPUTS_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = CONV_INPUTS_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
#include "activation.glsl"
uint lane, width;
const uint OLD = W - 1;
#include "conv_history.glsl"
#include "delta_gates.glsl"

// The columns of a subgroup: a head of q or k, which has padding in y, or a block of v.
struct columns {
  uint from, count; // of x
  uint to, room;    // of y
  bool key;
};

columns columns_of(uint block) {
  uint wide = 4 * GROUPS * width, values = block - args.keys;
  if (block < args.keys) return columns(block * args.Dk, args.Dk, block * args.pitch, args.pitch, true);
  uint count = min(wide, args.C - args.keys * args.Dk - values * wide);
  return columns(args.keys * args.Dk + values * wide, count, args.keys * args.pitch + values * wide, count, false);
}

// Four columns from column d of a subgroup's on. Past its last column the last is read again; it does not count.
#define FOUR(array, array4, at, c, d)                                                                                  \
  (READ4 != 0 ? array4[((at) + min(d, c.count - 4)) / 4]                                                               \
              : vec4(array[(at) + min(d, c.count - 1)], array[(at) + min(d + 1, c.count - 1)],                         \
                     array[(at) + min(d + 2, c.count - 1)], array[(at) + min(d + 3, c.count - 1)]))

void store(uint row, columns c, uint d, vec4 value) {
  uint at = row * args.y_stride + c.to + d;
  if (WRITE4 != 0) {
    if (d < c.room) y4[at / 4] = STORED4(value);
  } else {
    [[unroll]] for (uint i = 0; i < 4; i++)
      if (d + i < c.room) y[at + i] = STORED(value[i]);
  }
}

void convolve(sequence s, uint first, columns c) {
  vec4 values[GROUPS * RUN];
  float sums[RUN];
  [[unroll]] for (uint t = 0; t < RUN; t++) sums[t] = 0.0;
  [[unroll]] for (uint g = 0; g < GROUPS; g++) {
    uint d = 4 * (lane + g * width);
    vec4 taps[W], inputs[RUN + OLD], start = vec4(0.0);
    [[unroll]] for (uint i = 0; i < RUN; i++) {
      uint at = (s.row + min(first + i, s.T - 1)) * args.x_stride + c.from;
      inputs[OLD + i] = FOUR(x, x4, at, c, d);
    }
    [[unroll]] for (uint w = 0; w < W; w++) {
      uint at = w * args.weight_stride + c.from;
      taps[w] = FOUR(weight, weight4, at, c, d);
    }
    if (first > 0) {
      [[unroll]] for (uint i = 0; i < OLD; i++) {
        uint at = (s.row + first + i - OLD) * args.x_stride + c.from;
        inputs[i] = FOUR(x, x4, at, c, d);
      }
    } else {
      [[unroll]] for (uint i = 0; i < OLD; i++)
        [[unroll]] for (uint j = 0; j < 4; j++)
          inputs[i][j] = past(s, int(i) - int(OLD), c.from + min(d + j, c.count - 1));
    }
    if (args.has_bias != 0)
      [[unroll]] for (uint j = 0; j < 4; j++) start[j] = bias[c.from + min(d + j, c.count - 1)];
    [[unroll]] for (uint t = 0; t < RUN; t++) {
      vec4 sum = start;
      [[unroll]] for (uint w = 0; w < W; w++) sum += taps[w] * inputs[t + w];
      [[unroll]] for (uint j = 0; j < 4; j++) {
        float value = c.from + d + j >= args.silu_from ? silu(sum[j]) : sum[j];
        if (c.key) value = activate(ACTIVATION, value);
        sum[j] = d + j < c.count ? value : 0.0;
        sums[t] += summand(NORM, sum[j]);
      }
      values[g * RUN + t] = sum;
    }
    if (first == 0)
      for (uint i = d; i < min(d + 4, c.count); i++) keep_history(s, c.from + i);
  }
  [[unroll]] for (uint t = 0; t < RUN; t++) {
    // Finite, so that zeros after a head stay zeros.
    float factor = c.key ? clamp(norm_factor(NORM, sums[t]), -3e38, 3e38) : 1.0;
    [[unroll]] for (uint g = 0; g < GROUPS; g++)
      if (first + t < s.T) store(s.row + first + t, c, 4 * (lane + g * width), factor * values[g * RUN + t]);
  }
}

void main() {
  lane = gl_SubgroupInvocationID;
  width = gl_SubgroupSize;
  sequence s = sequences[gl_WorkGroupID.z];
  uint first = gl_WorkGroupID.y * RUN, wide = 4 * GROUPS * width;
  if (first >= s.T) return;
  uint blocks = args.keys + (args.C - args.keys * args.Dk + wide - 1) / wide;
  uint step = gl_NumWorkGroups.x * gl_NumSubgroups;
  for (uint b = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; b <= blocks; b += step) {
    if (b == blocks)
      gates(s.row + first, min(RUN, s.T - first));
    else
      convolve(s, first, columns_of(b));
  }
}
