#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y) for few tokens. Reading the weights takes most of the time, so the
// kernel also computes the operations before and after it:
//   NORM: rows of x / sqrt(mean x^2 + eps) * norm. The finished sums are divided by the root, so nothing waits for it.
//   GATED: y = act(gate) * up, w (2 N, K).
//   CONV (matvec_conv_...): channel c of token t is output conv.from + c;
//   conv_y = act(sum_w taps[w] window[w] (+ bias)), where the window is the history of the token's sequence, then the
//   output; the history moves on by one. Only one invocation computes an output, and a token has one sequence, so no
//   other invocation reads that history.
// Workgroups (ceil(N / ROWS) * ceil(T / TOKENS), spread over x and y): ROWS outputs of TOKENS tokens. Workgroups with
// the same outputs are neighbours, so that the second finds the weights in a cache. An invocation reads groups of 8
// weights of every row (16 bytes if a weight has 16 bits), UNROLL of them at once, and keeps ROWS * TOKENS sums. Data
// for the end is loaded early. Any T, N, K.
// With LENGTH a workgroup has ROWS outputs for each of its SETS of invocations, which read x, normed, from shared
// memory. Then there is one token, and all invocations of a set have equally many groups of weights.
#include "matvec.h"
layout(local_size_x_id = MATVEC_SPEC_LANES) in;
layout(constant_id = MATVEC_SPEC_ROWS) const uint ROWS = 2;
layout(constant_id = MATVEC_SPEC_TOKENS) const uint TOKENS = 1;
layout(constant_id = MATVEC_SPEC_UNROLL) const uint UNROLL = 1;
layout(constant_id = MATVEC_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = MATVEC_SPEC_NORM) const uint NORM = 0;
layout(constant_id = MATVEC_SPEC_GATED) const uint GATED = 0;
layout(constant_id = MATVEC_SPEC_SETS) const uint SETS = 1;
layout(constant_id = MATVEC_SPEC_LENGTH) const uint LENGTH = 0;
layout(constant_id = MATVEC_SPEC_ACTIVATION) const uint ACTIVATION = 0;
layout(set = 0, binding = MATVEC_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATVEC_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = MATVEC_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = MATVEC_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = MATVEC_NORM) readonly buffer norm_block { float norm[]; };
layout(set = 0, binding = MATVEC_NORM) readonly buffer norm4_block { vec4 norm4[]; };
#ifdef CONV
layout(constant_id = MATVEC_CONV_SPEC_W) const uint CONV_W = 4;
layout(constant_id = MATVEC_CONV_SPEC_LONE) const uint LONE = 0;
#define CONV_STEP_FROM MATVEC_BINDINGS
#include "conv_step.glsl"
#endif
#define WEIGHTS_BINDING MATVEC_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATVEC_SPEC_FORMAT
#include "activation.glsl"
#include "weights.glsl"

const uint WIDTH = gl_WorkGroupSize.x / SETS; // lanes of a set
const uint W_ROWS = ROWS * (1 + GATED);                   // rows of weights
const uint OUTPUTS = ROWS * TOKENS, SQUARES = W_ROWS * TOKENS; // SQUARES: where the sums of x^2 begin
const uint SUMS = SQUARES + NORM * TOKENS;
shared float partial[gl_WorkGroupSize.x * SUMS / 4 + SUMS]; // subgroups have 4 lanes or more

shared vec4 staged[LENGTH / 4 + 1]; // the first four of each group of 8 of x, then the second four
shared float squares[LENGTH != 0 ? gl_WorkGroupSize.x / 4 : 1];

// Four inputs of a token, zeros from K on: the zeros at the end of a row of weights must not multiply a NaN.
vec4 inputs(uint t, uint k) {
  if (t >= args.T || k >= args.K) return vec4(0.0);
  uint i = t * args.x_stride + k;
  if (ALIGNED != 0) return x4[i / 4];
  uint left = args.K - k;
  return vec4(x[i], left > 1 ? x[i + 1] : 0.0, left > 2 ? x[i + 2] : 0.0, left > 3 ? x[i + 3] : 0.0);
}

vec4 norms(uint k) {
  if (k >= args.K) return vec4(0.0);
  if (ALIGNED != 0) return norm4[k / 4];
  uint left = args.K - k;
  return vec4(norm[k], left > 1 ? norm[k + 1] : 0.0, left > 2 ? norm[k + 2] : 0.0, left > 3 ? norm[k + 3] : 0.0);
}

#include "matvec_ends.glsl"

float total(uint i) {
  uint each = gl_NumSubgroups / SETS, first = gl_SubgroupID / each * each; // subgroups of the set
  float sum = 0.0;
  for (uint s = first; s < first + each; s++) sum += partial[s * SUMS + i];
  return sum;
}

float square_sum(uint t) {
  if (LENGTH == 0) return total(SQUARES + t);
  float sum = 0.0;
  for (uint s = 0; s < gl_NumSubgroups; s++) sum += squares[s];
  return sum;
}

void stage(uint lane) {
  float sum = 0.0;
  for (uint g = lane; g < LENGTH / 4; g += gl_WorkGroupSize.x) {
    vec4 x = x4[g];
    sum += dot(x, x);
    staged[g / 2 + g % 2 * (LENGTH / 8)] = NORM != 0 ? x * norm4[g] : x;
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) squares[gl_SubgroupID] = sum;
  barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x, set = 0;
  if (SETS > 1) {
    lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    set = lane / WIDTH;
  }
  uint passes = (args.T + TOKENS - 1) / TOKENS, group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  uint row = (group / passes * SETS + set) * ROWS, own = lane - set * WIDTH;
  token0 = group % passes * TOKENS;
  if (SETS == 1 && row >= args.N) return;
  if (LENGTH == 0 && own < OUTPUTS) fetch(row, own);

  float sums[SQUARES + TOKENS];
  [[unroll]] for (uint i = 0; i < SQUARES + TOKENS; i++) sums[i] = 0.0;
  uint from[W_ROWS];
  [[unroll]] for (uint r = 0; r < W_ROWS; r++)
    from[r] = (min(row + r % ROWS, args.N - 1) + r / ROWS * args.N) * (args.w_stride / 8);
  uint groups = (args.K + 7) / 8;
  if (LENGTH != 0) { // loads the next weights while these are used
    const uint TURNS = LENGTH / (8 * WIDTH);
    PACKED8 w[UNROLL * W_ROWS];
    [[unroll]] for (uint i = 0; i < UNROLL * W_ROWS; i++) w[i] = packed8(from[i % W_ROWS] + own + i / W_ROWS * WIDTH);
    if (own < OUTPUTS) fetch(row, own);
    stage(lane);
    [[unroll]] for (uint turn = 0; turn < TURNS; turn++) {
      uint g = own + turn * WIDTH;
      vec4 low = staged[g], high = staged[LENGTH / 8 + g];
      [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
        uint i = turn % UNROLL * W_ROWS + r;
        vec4 a, b;
        widen8(w[i], a, b);
        if (turn + UNROLL < TURNS) w[i] = packed8(from[r] + g + UNROLL * WIDTH);
        sums[r] += dot(a, low) + dot(b, high);
      }
    }
    groups = 0;
  }
  for (uint g0 = lane; g0 < groups; g0 += gl_WorkGroupSize.x * UNROLL) {
    PACKED8 w[UNROLL * W_ROWS];
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
      uint g = g0 + u * gl_WorkGroupSize.x;
      [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
        w[u * W_ROWS + r] = PACKED8_ZERO;
        if (g < groups) w[u * W_ROWS + r] = packed8(from[r] + g);
      }
    }
    [[unroll]] for (uint u = 0; u < UNROLL; u++) {
      uint k = (g0 + u * gl_WorkGroupSize.x) * 8;
      vec4 low[TOKENS], high[TOKENS], norm_low, norm_high;
      if (NORM != 0) norm_low = norms(k), norm_high = norms(k + 4);
      [[unroll]] for (uint t = 0; t < TOKENS; t++) {
        low[t] = inputs(token0 + t, k);
        high[t] = inputs(token0 + t, k + 4);
        if (NORM != 0) {
          sums[SQUARES + t] += dot(low[t], low[t]) + dot(high[t], high[t]);
          low[t] *= norm_low;
          high[t] *= norm_high;
        }
      }
      [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
        vec4 a, b;
        widen8(w[u * W_ROWS + r], a, b);
        [[unroll]] for (uint t = 0; t < TOKENS; t++) sums[r * TOKENS + t] += dot(a, low[t]) + dot(b, high[t]);
      }
    }
  }
  [[unroll]] for (uint i = 0; i < SUMS; i++) {
    float sum = subgroupAdd(sums[i]);
    if (subgroupElect()) partial[gl_SubgroupID * SUMS + i] = sum;
  }
  barrier();
  for (uint i = own; i < OUTPUTS; i += WIDTH) {
    if (i != own) fetch(row, i);
    finish(row, i);
  }
}
