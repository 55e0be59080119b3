#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_EXT_control_flow_attributes : require
// Mamba-2 token by token (Dao and Gu 2024). Per head, with B and C of its group:
//   S <- e^g S + B^T (dt x);  y = C S + D x
// xBC (T, heads P + 2 groups N), dt, g (T, heads), state (slots, heads, N, P), y (T, heads P).
// Workgroups (ceil(P / COLUMNS), heads, sequences): COLUMNS columns of one head of one sequence, all its tokens.
// Columns of S are adjacent in memory, so neighbouring invocations read neighbouring elements. An invocation keeps
// ROWS4 vec4 of one column in registers; SPLIT of them share a column and add their partial sums of C S through shared
// memory, with one barrier per token. B, C, x, dt and g of BLOCK tokens are staged. With -DRAW the kernel also computes
// dt and g, and may multiply y by silu(gate). Any N, P, groups, T.
#include "mamba2.h"
layout(local_size_x_id = MAMBA2_SPEC_LANES) in;
layout(constant_id = MAMBA2_SPEC_N) const uint N = 128;
layout(constant_id = MAMBA2_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = MAMBA2_SPEC_SPLIT) const uint SPLIT = 2;
layout(constant_id = MAMBA2_SPEC_BLOCK) const uint BLOCK = 8;
layout(constant_id = MAMBA2_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = MAMBA2_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = MAMBA2_XBC) readonly buffer xBC_block { float xBC[]; };
layout(set = 0, binding = MAMBA2_XBC) readonly buffer xBC4_block { vec4 xBC4[]; };
layout(set = 0, binding = MAMBA2_DT) readonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_D) readonly buffer D_block { float D[]; };
layout(set = 0, binding = MAMBA2_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = MAMBA2_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#ifdef RAW
layout(set = 0, binding = MAMBA2_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
layout(set = 0, binding = MAMBA2_GATE) readonly buffer gate_block { float gate[]; };
#endif
#include "activation.glsl"
#include "mamba2_load.glsl"

const uint ROWS4 = ((N + SPLIT - 1) / SPLIT + 3) / 4; // vec4 of a column's rows in one invocation
const uint N4 = ROWS4 * SPLIT;                        // of a padded B or C
shared vec4 keys[BLOCK * 2 * N4]; // B, then C, of each token
shared float values[BLOCK * COLUMNS];
shared float sizes[BLOCK], decays[BLOCK];
#ifdef RAW
shared float gates[BLOCK * COLUMNS];
#endif
shared float partial[2 * SPLIT * COLUMNS]; // partial sums of C S; two buffers, used in turn

// Stages tokens row ... row + count - 1 of this head in shared memory.
void stage(uint lane, uint row, uint count, uint head, uint column0) {
  uint group = head / (args.heads / args.groups);
  for (uint i = lane; i < count * 2 * N4; i += gl_WorkGroupSize.x) {
    uint t = i / (2 * N4), C = i / N4 % 2, n = i % N4 * 4;
    keys[i] = load4((row + t) * args.xBC_stride + args.heads * args.P + (C * args.groups + group) * N, n, N);
  }
  for (uint i = lane; i < count * COLUMNS; i += gl_WorkGroupSize.x) {
    uint c = column0 + i % COLUMNS;
    values[i] = c < args.P ? xBC[(row + i / COLUMNS) * args.xBC_stride + head * args.P + c] : 0.0;
#ifdef RAW
    if (args.has_gate != 0)
      gates[i] = c < args.P ? silu(gate[(row + i / COLUMNS) * args.gate_stride + head * args.P + c]) : 0.0;
#endif
  }
  for (uint i = lane; i < count; i += gl_WorkGroupSize.x) {
#ifdef RAW // as mamba2_inputs.comp
    float size = min(max(softplus(dt[(row + i) * args.dt_stride + head] + dt_bias[head]), args.low), args.high);
    float decay = -accurate_exp(g[head]) * size;
#else
    float size = dt[(row + i) * args.dt_stride + head], decay = g[(row + i) * args.g_stride + head];
#endif
    sizes[i] = size;
    decays[i] = accurate_exp(decay);
  }
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  uint head = gl_WorkGroupID.y;
  uint column0 = gl_WorkGroupID.x * COLUMNS, column = lane % COLUMNS, part = lane / COLUMNS;
  bool inside = column0 + column < args.P;
  uint state_at = s.slot * args.state_stride + head * N * args.P + column0 + column;
  float skip = inside ? D[args.D_per_element != 0 ? head * args.P + column0 + column : head] : 0.0;

  vec4 S[ROWS4];
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint row = (part * ROWS4 + r) * 4 + i;
      S[r][i] = inside && row < N ? state[state_at + row * args.P] : 0.0;
    }
  }

  uint turn = 0;
  for (uint t0 = 0; t0 < s.T; t0 += BLOCK) {
    uint count = min(BLOCK, s.T - t0);
    barrier();
    stage(lane, s.row + t0, count, head, column0);
    barrier();
    for (uint t = 0; t < count; t++) {
      uint B_at = t * 2 * N4 + part * ROWS4, C_at = B_at + N4;
      float x = values[t * COLUMNS + column], u = sizes[t] * x, decay = decays[t];
      vec4 sums = vec4(0.0);
      [[unroll]] for (uint r = 0; r < ROWS4; r++) {
        S[r] = decay * S[r] + keys[B_at + r] * u;
        sums += keys[C_at + r] * S[r];
      }
      float sum = dot(sums, vec4(1.0));
      if (SPLIT > 1) {
        uint base = turn * SPLIT * COLUMNS + column;
        turn ^= 1;
        partial[base + part * COLUMNS] = sum;
        barrier();
        sum = 0.0;
        [[unroll]] for (uint p = 0; p < SPLIT; p++) sum += partial[base + p * COLUMNS];
      }
      sum += skip * x;
#ifdef RAW
      if (args.has_gate != 0) sum *= gates[t * COLUMNS + column];
#endif
      if (inside && part == 0) y[(s.row + t0 + t) * args.y_stride + head * args.P + column0 + column] = STORED(sum);
    }
  }

  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint row = (part * ROWS4 + r) * 4 + i;
      if (inside && row < N) state[state_at + row * args.P] = S[r][i];
    }
  }
}
