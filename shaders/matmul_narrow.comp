#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y) for tokens of a few matrices' height, where reading the weights is what
// takes the time: batches of sequences that decode. ceil(N / (TILES_N N)) workgroups; the subgroups of one share K among
// them, each turning its own weights into f16 in its own part of shared memory, and add up their sums at the end, in a
// fixed order. x is read from memory as it is: every workgroup finds it in the cache.
#include "matmul_narrow.h"
layout(local_size_x_id = MATMUL_NARROW_SPEC_LANES) in;
layout(constant_id = MATMUL_NARROW_SPEC_PARTS) const uint PARTS = 1;
layout(constant_id = MATMUL_NARROW_SPEC_TILES_T) const uint TILES_T = 1;
layout(constant_id = MATMUL_NARROW_SPEC_TILES_N) const uint TILES_N = 1;
layout(constant_id = MATMUL_NARROW_SPEC_STEP) const uint STEP = 16;
layout(constant_id = MATMUL_NARROW_SPEC_M) const uint M = 16;
layout(constant_id = MATMUL_NARROW_SPEC_N) const uint N = 16;
layout(constant_id = MATMUL_NARROW_SPEC_K) const uint K = 16;
layout(set = 0, binding = MATMUL_NARROW_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATMUL_NARROW_X) readonly buffer x_block { uvec4 x[]; };
layout(set = 0, binding = MATMUL_NARROW_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = MATMUL_NARROW_WEIGHTS) readonly buffer weights_block { uvec4 weights[]; };
#include "halves.glsl"

const uint LANES = gl_WorkGroupSize.x, WIDTH = LANES / PARTS; // of a subgroup
const uint ROWS = TILES_N * N;     // of weights
const uint PITCH = STEP / 8 + 1;   // uvec4 of a row of weights in shared memory
const uint LOADS = ROWS * STEP / 8 / WIDTH;
const uint SUMS = TILES_T * TILES_N, FOUR = M * N / 4; // matrices of sums, and uvec4 of one
const uint WEIGHTS_ROOM = PARTS * ROWS * PITCH, SUMS_ROOM = (PARTS + 1) / 2 * SUMS * FOUR;
shared uvec4 room[WEIGHTS_ROOM > SUMS_ROOM ? WEIGHTS_ROOM : SUMS_ROOM];

uvec4 fetched[LOADS];

void fetch(uint n0, uint k0) {
  [[unroll]] for (uint l = 0; l < LOADS; l++) {
    uint i = gl_SubgroupInvocationID + l * WIDTH;
    fetched[l] = weights[(min(n0 + i / (STEP / 8), args.N - 1) * args.w_stride + k0) / 8 + i % (STEP / 8)];
  }
}

void main() {
  uint n0 = gl_WorkGroupID.x * ROWS, part = gl_SubgroupID;
  coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[SUMS];
  [[unroll]] for (uint i = 0; i < SUMS; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);

  uint own = part * ROWS * PITCH;
  fetch(n0, part * STEP);
  for (uint k0 = part * STEP; k0 < args.K; k0 += PARTS * STEP) {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    [[unroll]] for (uint l = 0; l < LOADS; l++) {
      uint i = gl_SubgroupInvocationID + l * WIDTH;
      room[own + i / (STEP / 8) * PITCH + i % (STEP / 8)] = halves(fetched[l]);
    }
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    if (k0 + PARTS * STEP < args.K) fetch(n0, k0 + PARTS * STEP);
    [[unroll]] for (uint k = 0; k < STEP / K; k++) {
      coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[TILES_T];
      [[unroll]] for (uint i = 0; i < TILES_T; i++)
        coopMatLoad(a[i], x, (i * M * args.x_stride + k0 + k * K) / 8, args.x_stride / 8,
                    gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0; j < TILES_N; j++) {
        coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
        coopMatLoad(b, room, own + j * N * PITCH + k * K / 8, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0; i < TILES_T; i++)
          sums[i * TILES_N + j] = coopMatMulAdd(a[i], b, sums[i * TILES_N + j]);
      }
    }
  }

  for (uint half_ = PARTS / 2; half_ > 0; half_ /= 2) {
    barrier();
    if (part >= half_ && part < 2 * half_) {
      [[unroll]] for (uint i = 0; i < SUMS; i++)
        coopMatStore(sums[i], room, ((part - half_) * SUMS + i) * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    if (part < half_) {
      [[unroll]] for (uint i = 0; i < SUMS; i++) {
        coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> other;
        coopMatLoad(other, room, (part * SUMS + i) * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
        sums[i] += other;
      }
    }
  }
  barrier();
  if (part == 0) {
    [[unroll]] for (uint i = 0; i < SUMS; i++)
      coopMatStore(sums[i], room, i * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();
  for (uint e = gl_LocalInvocationID.x; e < TILES_T * M * ROWS; e += LANES) {
    uint t = e / ROWS, n = e % ROWS, at_n = n0 + n;
    if (t < args.T && at_n < args.N) {
      uint from = (t / M * TILES_N + n / N) * M * N + t % M * N + n % N;
      float sum = uintBitsToFloat(room[from / 4][from % 4]);
      if (args.has_bias != 0) sum += bias[args.first + at_n];
      uint at = t * args.y_stride + args.first + at_n;
      y[at] = args.add != 0 ? y[at] + sum : sum;
    }
  }
}
