#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y): many tokens.
// Workgroups (ceil(N / TILE_N), ceil(T / TILE_T)): a tile of y, in steps of TILE_K through shared memory. Both input
// tiles keep their memory layout, with four elements along K in a vec4, so an invocation reads SUB_T + SUB_N vectors
// for 4 * SUB_T * SUB_N multiplications. Its outputs are spread (SUB_N columns TILE_N / SUB_N apart), so that
// neighbours read neighbouring rows; one vec4 of padding puts these in different banks. Any T, N, K.
// EXPERTS: each row of y has an expert, w (experts * N, K); a tile's rows are of one expert, gathered and scattered.
#include "matmul.h"
layout(local_size_x_id = MATMUL_SPEC_LANES) in;
layout(constant_id = MATMUL_SPEC_TILE_T) const uint TILE_T = 32;
layout(constant_id = MATMUL_SPEC_TILE_N) const uint TILE_N = 32;
layout(constant_id = MATMUL_SPEC_TILE_K) const uint TILE_K = 32;
layout(constant_id = MATMUL_SPEC_SUB_T) const uint SUB_T = 4;
layout(constant_id = MATMUL_SPEC_SUB_N) const uint SUB_N = 4;
layout(constant_id = MATMUL_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = MATMUL_SPEC_GROUPED) const uint GROUPED = 0;
layout(set = 0, binding = MATMUL_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATMUL_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = MATMUL_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = MATMUL_BIAS) readonly buffer bias_block { float bias[]; };
#define WEIGHTS_BINDING MATMUL_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATMUL_SPEC_FORMAT
#include "weights.glsl"
#ifdef EXPERTS
#define ORDER_BINDING MATMUL_ORDER
#define STARTS_BINDING MATMUL_STARTS
#include "experts_tile.glsl"
#else
#define ROWS_OF_TILE args.T
#define X_ROW(t) (t)
#define Y_ROW(t) (t)
#define EXPERT_GROUPS(rows) 0
#endif

const uint K4 = TILE_K / 4, K8 = TILE_K / 8;
const uint PITCH = K4 + 1;                // vec4 of a row in shared memory
const uint ACROSS_T = TILE_T / SUB_T, ACROSS_N = TILE_N / SUB_N; // invocations along each side
shared vec4 x_tile[TILE_T * PITCH];
shared vec4 w_tile[TILE_N * PITCH];

// Four inputs of a token, zeros from K on: the zeros at the end of a row of weights must not multiply a NaN.
vec4 inputs(uint t, uint k) {
  if (t >= ROWS_OF_TILE || k >= args.K) return vec4(0.0);
  uint i = X_ROW(t) * args.x_stride + k;
  if (ALIGNED != 0) return x4[i / 4];
  uint left = args.K - k;
  return vec4(x[i], left > 1 ? x[i + 1] : 0.0, left > 2 ? x[i + 2] : 0.0, left > 3 ? x[i + 3] : 0.0);
}

void stage(uint lane, uint t0, uint n0, uint k0) {
  for (uint i = lane; i < TILE_T * K4; i += gl_WorkGroupSize.x)
    x_tile[i / K4 * PITCH + i % K4] = inputs(t0 + i / K4, k0 + i % K4 * 4);
  for (uint i = lane; i < TILE_N * K8; i += gl_WorkGroupSize.x) {
    uint n = n0 + i / K8, k = k0 + i % K8 * 8, at = i / K8 * PITCH + i % K8 * 2;
    vec4 low = vec4(0.0), high = vec4(0.0);
    if (n < args.N && k < args.K) weight8(EXPERT_GROUPS(args.N) + (n * args.w_stride + k) / 8, low, high);
    w_tile[at] = low;
    w_tile[at + 1] = high;
  }
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  uint n0 = gl_WorkGroupID.x * TILE_N, t0 = gl_WorkGroupID.y * TILE_T;
#ifdef EXPERTS
  if (!find_tile(gl_WorkGroupID.y, TILE_T)) return;
  t0 = 0;
#endif
  uint ln = lane % ACROSS_N, lt = lane / ACROSS_N;
  float sums[SUB_T * SUB_N];
  [[unroll]] for (uint i = 0; i < SUB_T * SUB_N; i++) sums[i] = 0.0;

  for (uint k0 = 0; k0 < args.K; k0 += TILE_K) {
    stage(lane, t0, n0, k0);
    barrier();
    for (uint k = 0; k < K4; k++) {
      vec4 a[SUB_T];
      [[unroll]] for (uint i = 0; i < SUB_T; i++) a[i] = x_tile[(lt + i * ACROSS_T) * PITCH + k];
      [[unroll]] for (uint j = 0; j < SUB_N; j++) {
        vec4 b = w_tile[(ln + j * ACROSS_N) * PITCH + k];
        [[unroll]] for (uint i = 0; i < SUB_T; i++) {
          float sum = GROUPED != 0 ? 0.0 : sums[i * SUB_N + j];
          sum += a[i].x * b.x; // not dot(): each of the four can be a fused multiply-add
          sum += a[i].y * b.y;
          sum += a[i].z * b.z;
          sum += a[i].w * b.w;
          sums[i * SUB_N + j] = GROUPED != 0 ? sums[i * SUB_N + j] + sum : sum;
        }
      }
    }
    barrier();
  }

  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    [[unroll]] for (uint j = 0; j < SUB_N; j++) {
      uint t = t0 + lt + i * ACROSS_T, n = n0 + ln + j * ACROSS_N;
      if (t < ROWS_OF_TILE && n < args.N) {
        float sum = sums[i * SUB_N + j];
        if (args.has_bias != 0) sum += bias[args.first + n];
        uint at = Y_ROW(t) * args.y_stride + args.first + n;
        y[at] = args.add != 0 ? y[at] + sum : sum;
      }
    }
  }
}
