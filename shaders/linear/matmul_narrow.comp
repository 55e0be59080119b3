#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y) on cooperative matrices (coopmat) for few tokens, such as a batch of
// sequences that decode. Reading the weights takes most of the time, so the kernel also computes the operation after
// it:
//   GATED (matmul_narrow_gated_...): y = act(gate) * up in f16; half of each coopmat's rows are gate's, half up's.
//   CONV (matmul_narrow_conv_...): as in matvec.comp, but y has only outputs that are not channels.
//   NEXT (matmul_narrow_next_...): y is a residual stream before a norm. Also writes h = y * norm's weight * scale in
//   f16, and the workgroup's sum of squares of every row. The scale follows from the stream's rms before this product.
//   It keeps h far from both ends of f16's range, so that the stream may grow by a factor of 10,000.
//   SQUARES: x is such an h. The finished sums are divided by its rms.
// Workgroups (ceil(N / rows of a block) * PASSES): the outputs of a block for some of the tokens. Workgroups with the
// same outputs are neighbours, so that the second finds the weights in a cache. The subgroups of a workgroup split K,
// step by step in turn. A subgroup loads its weights and inputs of a step while it multiplies those of the step before.
// Shared memory has room for one coopmat per subgroup, which all of them pass through in turn; with more, fewer
// subgroups would run at the same time. At the end the subgroups' partial sums are added in a fixed order. If shared
// memory cannot hold them all, one half is first added to the other.
#include "matmul_narrow.h"
#include "norm_ahead.h"
layout(local_size_x_id = MATMUL_NARROW_SPEC_LANES) in;
layout(constant_id = MATMUL_NARROW_SPEC_PARTS) const uint PARTS = 1;
layout(constant_id = MATMUL_NARROW_SPEC_TILES_T) const uint TILES_T = 1;
layout(constant_id = MATMUL_NARROW_SPEC_TILES_N) const uint TILES_N = 2;
layout(constant_id = MATMUL_NARROW_SPEC_STEP) const uint STEP = 16;
layout(constant_id = MATMUL_NARROW_SPEC_M) const uint M = 16;
layout(constant_id = MATMUL_NARROW_SPEC_N) const uint N = 16;
layout(constant_id = MATMUL_NARROW_SPEC_K) const uint K = 16;
layout(constant_id = MATMUL_NARROW_SPEC_SQUARES) const uint SQUARES = 0;
layout(constant_id = MATMUL_NARROW_SPEC_LENGTH) const uint LENGTH = 16;
layout(constant_id = MATMUL_NARROW_SPEC_ACTIVATION) const uint ACTIVATION = 0;
layout(constant_id = MATMUL_NARROW_SPEC_PASSES) const uint PASSES = 1;
#ifdef GATED
layout(set = 0, binding = MATMUL_NARROW_Y) writeonly buffer y_block { float16_t y[]; };
const uint HALVES = 2;
#else
layout(set = 0, binding = MATMUL_NARROW_Y) buffer y_block { float y[]; };
const uint HALVES = 1;
#endif
layout(set = 0, binding = MATMUL_NARROW_X) readonly buffer x_block { uvec4 x[]; };
layout(set = 0, binding = MATMUL_NARROW_BIAS) readonly buffer bias_block { float bias[]; };
#ifdef NEXT
layout(set = 0, binding = MATMUL_NARROW_SUMS) writeonly buffer sums_block { float sums_of[]; };
layout(set = 0, binding = MATMUL_NARROW_RMS) readonly buffer rms_block { float rms[]; };
layout(set = 0, binding = MATMUL_NARROW_NEXT_WEIGHT) readonly buffer next_weight_block { float next_weight[]; };
layout(set = 0, binding = MATMUL_NARROW_NEXT_H) writeonly buffer h_block { float16_t h[]; };
#else
layout(set = 0, binding = MATMUL_NARROW_SUMS) readonly buffer sums_block { vec4 sums_of[]; };
layout(set = 0, binding = MATMUL_NARROW_RMS) writeonly buffer rms_block { float rms[]; };
#endif
#ifdef CONV
layout(constant_id = MATMUL_NARROW_CONV_SPEC_W) const uint CONV_W = 4;
#define CONV_STEP_FROM MATMUL_NARROW_BINDINGS
#include "conv_step.glsl"
#endif
#include "activation.glsl"
#define WEIGHTS_BINDING MATMUL_NARROW_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATMUL_NARROW_SPEC_FORMAT
#include "weights.glsl"
#include "halves.glsl"

const uint LANES = gl_WorkGroupSize.x, WIDTH = LANES / PARTS; // lanes of a subgroup
const uint ROWS = TILES_N * N, WIDE = ROWS / HALVES;          // rows of weights and outputs of a block
const uint TOKENS = TILES_T * M;
const uint K8 = STEP / 8, PITCH = K8 + 1; // uvec4 of a row of a step, and of one in shared memory
const uint LOADS_W = N * K8 / WIDTH, LOADS_X = M * K8 / WIDTH; // loads of a coopmat's rows
const uint SUMS = TILES_T * TILES_N, FOUR = M * N / 4;         // accumulators, and vec4 of one
const uint OWN = (M > N ? M : N) * PITCH;                      // uvec4 of a subgroup's coopmat
const uint STEP_ROOM = PARTS * OWN, SUMS_ROOM = (PARTS + 1) / 2 * SUMS * FOUR;
const uint EACH = (TOKENS * WIDE + LANES - 1) / LANES; // outputs of an invocation
const uint ROOM = STEP_ROOM > SUMS_ROOM ? STEP_ROOM : SUMS_ROOM;
const uint LEFT = PARTS * SUMS * FOUR > ROOM ? PARTS / 2 : PARTS; // partial sums that shared memory holds at the end
shared uvec4 room[ROOM];
#ifndef NEXT
shared float factors[TOKENS]; // factors of each token's sums, with SQUARES
#endif
#ifdef CONV
shared uint slots[TOKENS]; // 1 + slot of the token's sequence; 0: none
#endif

uint token0, left; // the workgroup's first token, and its number of tokens
PACKED8 fetched_w[TILES_N * LOADS_W];
uvec4 fetched_x[TILES_T * LOADS_X];

// The output of the block that row r of its weights belongs to.
uint output_of(uint r) { return r / N * (N / HALVES) + r % (N / HALVES); }

// Rows past the last repeat it: their results are not stored.
void fetch_weights(uint n0, uint k0) {
  [[unroll]] for (uint l = 0; l < TILES_N * LOADS_W; l++) {
    uint i = gl_SubgroupInvocationID + l % LOADS_W * WIDTH, r = l / LOADS_W * N + i / K8;
    uint row = min(n0 + output_of(r), args.N - 1) + r % N / (N / HALVES) * args.N;
    fetched_w[l] = packed8((row * args.w_stride + k0) / 8 + i % K8);
  }
}

void fetch_inputs(uint k0) {
  [[unroll]] for (uint l = 0; l < TILES_T * LOADS_X; l++) {
    uint i = gl_SubgroupInvocationID + l % LOADS_X * WIDTH, t = l / LOADS_X * M + i / K8;
    fetched_x[l] = x[((token0 + min(t, left - 1)) * args.x_stride + k0) / 8 + i % K8];
  }
}

void subgroup_meets() {
  controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

uint place_of(uint t, uint r) { return (t / M * TILES_N + r / N) * M * N + t % M * N + r % N; }

// The sum of token t with row r of the block's weights.
float total(uint t, uint r) {
  uint from = place_of(t, r);
  float sum = 0.0;
  [[unroll]] for (uint p = 0; p < LEFT; p++) sum += uintBitsToFloat(room[p * SUMS * FOUR + from / 4][from % 4]);
#ifndef NEXT
  if (SQUARES != 0) sum *= factors[t];
#endif
  return sum;
}

#ifdef NEXT
const float MIDDLE = 1.0 / 64.0; // f16 size of typical values: 2^22 below the largest, 2^18 above the least
#else
#ifdef CONV
const bool MEETS = true; // all invocations meet at a barrier first
#else
const bool MEETS = SQUARES != 0;
#endif
// Several invocations share a row's sums of squares, so that none is idle.
const uint SHARE = LANES > TOKENS ? LANES / TOKENS : 1, SQUARES4 = MATMUL_NARROW_SQUARES(SQUARES) / 4;

void add_squares(uint lane) {
  for (uint i = lane; i < TOKENS * SHARE; i += LANES) {
    uint row = (token0 + min(i / SHARE, left - 1)) * (MATMUL_NARROW_LEFT(SQUARES) / 4);
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint s = 0; s < SQUARES4; s += SHARE)
      if (s + i % SHARE < SQUARES4) sum += sums_of[row + s + i % SHARE];
    room[i].xy = floatBitsToUint(vec2(sum.x + sum.y + (sum.z + sum.w), sums_of[row + SQUARES4].x));
  }
}

void find_factors(uint lane) {
  for (uint t = lane; t < TOKENS; t += LANES) {
    float sum = 0.0;
    for (uint s = 0; s < SHARE; s++) sum += uintBitsToFloat(room[t * SHARE + s].x);
    float root = accurate_inversesqrt(sum / float(LENGTH) + args.eps);
    factors[t] = root / uintBitsToFloat(room[t * SHARE].y);
    if (gl_WorkGroupID.x < PASSES && t < left) rms[token0 + t] = min(root, NORM_AHEAD_MOST);
  }
}
#endif

// Loads what the outputs need besides their sums, all at once.
float start[EACH];
#ifdef NEXT
float scale[EACH];
#endif
#ifdef CONV
float taps[EACH * CONV_W], window[EACH * CONV_W];
#endif

void fetch_end(uint i, uint t, uint n) {
  start[i] = 0.0;
  if (t >= left || n >= args.N) return;
#ifdef NEXT
  scale[i] = next_weight[n] * (rms[token0 + t] * MIDDLE);
#endif
#ifndef GATED
  if (args.has_bias != 0) start[i] = bias[args.first + n];
  if (args.add != 0) start[i] += y[(token0 + t) * args.y_stride + args.first + n];
#endif
#ifdef CONV
  uint c = args.first + n - args.conv.from; // wraps to a large number below conv.from
  if (c >= args.conv.C || slots[t] == 0) return;
  uint at = (slots[t] - 1) * args.conv.history_stride + c;
  [[unroll]] for (uint w = 0; w < CONV_W; w++) taps[i * CONV_W + w] = conv_weight[w * args.conv.weight_stride + c];
  [[unroll]] for (uint w = 0; w + 1 < CONV_W; w++) window[i * CONV_W + w] = history[at + w * args.conv.C];
#endif
}

void finish(uint i, uint t, uint r, uint n) {
#ifdef NEXT
  uint from = place_of(t, r);
  if (t >= left || n >= args.N) {
    if (t < TOKENS) room[from / 4][from % 4] = 0;
    return;
  }
#else
  if (t >= left || n >= args.N) return;
#endif
  uint at = (token0 + t) * args.y_stride + args.first + n;
#ifdef GATED
  y[at] = float16_t(clamp(activate(ACTIVATION, total(t, r)) * total(t, r + N / 2), -65504.0, 65504.0));
#else
  float sum = start[i] + total(t, r);
#ifdef CONV
  uint c = args.first + n - args.conv.from;
  if (c < args.conv.C) {
    if (slots[t] == 0) return;
    uint history_at = (slots[t] - 1) * args.conv.history_stride + c;
    window[i * CONV_W + CONV_W - 1] = sum;
    float value = args.conv.has_bias != 0 ? conv_bias[c] : 0.0;
    [[unroll]] for (uint w = 0; w < CONV_W; w++) value += taps[i * CONV_W + w] * window[i * CONV_W + w];
    [[unroll]] for (uint w = 0; w + 1 < CONV_W; w++) history[history_at + w * args.conv.C] = window[i * CONV_W + w + 1];
    conv_y[(token0 + t) * args.conv.y_stride + c] = c >= args.conv.silu_from ? silu(value) : value;
    return;
  }
#endif
  y[at] = sum;
#endif
#ifdef NEXT
  h[(token0 + t) * args.h_stride + n] = float16_t(clamp(sum * scale[i], -65504.0, 65504.0));
  room[from / 4][from % 4] = floatBitsToUint(sum * sum); // only this invocation has read here
#endif
}

#ifdef NEXT
void leave_squares(uint lane, float size) {
  const uint groups = gl_NumWorkGroups.x / PASSES, own = gl_WorkGroupID.x / PASSES, last = groups - 1;
  const uint width = MATMUL_NARROW_LEFT(groups);
  for (uint t = lane; t < min(TOKENS, left); t += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint r = 0; r < ROWS; r += 4) {
      vec4 four = uintBitsToFloat(room[place_of(t, r) / 4]);
      sum += four.x + four.y + (four.z + four.w);
    }
    uint at = (token0 + t) * width + own;
    sums_of[at] = sum;
    if (own < last) continue;
    for (uint p = last + 1; p < width - 4; p++) sums_of[(token0 + t) * width + p] = 0.0;
    sums_of[(token0 + t) * width + width - 4] = (t == lane ? size : rms[token0 + t]) * MIDDLE;
  }
}
#endif

void main() {
  uint lane = gl_LocalInvocationID.x, part = gl_SubgroupID, n0 = gl_WorkGroupID.x / PASSES * WIDE;
  token0 = gl_WorkGroupID.x % PASSES * TOKENS;
  left = min(args.T - token0, TOKENS);
  coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[SUMS];
  [[unroll]] for (uint i = 0; i < SUMS; i++)
    sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);

  const uint TURN = PARTS * STEP, STEPS = STEP / K;
  uint own = part * OWN, k_first = part * STEP;
  fetch_weights(n0, min(k_first, LENGTH - STEP));
  fetch_inputs(min(k_first, LENGTH - STEP));
#ifndef NEXT
  if (SQUARES != 0) add_squares(lane);
#ifdef CONV
  sequence own_sequence = sequences[min(lane, args.conv.B - 1)];
  for (uint t = lane; t < TOKENS; t += LANES) slots[t] = 0;
#endif
  if (MEETS) barrier();
  if (SQUARES != 0) find_factors(lane);
#ifdef CONV
  for (uint s = lane; s < args.conv.B; s += LANES) {
    if (s != lane) own_sequence = sequences[s];
    uint t = own_sequence.row - token0; // wraps
    if (own_sequence.T != 0 && t < TOKENS) slots[t] = 1 + own_sequence.slot;
  }
#endif
  if (MEETS) barrier();
#endif
  for (uint turn = 0; turn < LENGTH; turn += TURN) { // the same count in every subgroup: lavapipe's barriers require it
    uint k0 = k_first + turn;
    coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b[TILES_N * STEPS];
    [[unroll]] for (uint j = 0; j < TILES_N; j++) {
      subgroup_meets();
      [[unroll]] for (uint l = 0; l < LOADS_W; l++) {
        uint i = gl_SubgroupInvocationID + l * WIDTH;
        room[own + i / K8 * PITCH + i % K8] = halves(fetched_w[j * LOADS_W + l]);
      }
      subgroup_meets();
      [[unroll]] for (uint k = 0; k < STEPS; k++)
        coopMatLoad(b[j * STEPS + k], room, own + k * K / 8, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
    }
    if (k0 + TURN < LENGTH) fetch_weights(n0, k0 + TURN);
    [[unroll]] for (uint t = 0; t < TILES_T; t++) {
      subgroup_meets();
      [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
        uint i = gl_SubgroupInvocationID + l * WIDTH;
        room[own + i / K8 * PITCH + i % K8] = fetched_x[t * LOADS_X + l];
      }
      subgroup_meets();
      if (t == TILES_T - 1 && k0 + TURN < LENGTH) fetch_inputs(k0 + TURN);
      if (LENGTH % TURN == 0 || k0 < LENGTH) {
        [[unroll]] for (uint k = 0; k < STEPS; k++) {
          coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
          coopMatLoad(a, room, own + k * K / 8, PITCH, gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (uint j = 0; j < TILES_N; j++)
            sums[t * TILES_N + j] = coopMatMulAdd(a, b[j * STEPS + k], sums[t * TILES_N + j]);
        }
      }
    }
  }

  [[unroll]] for (uint i = 0; i < EACH; i++) {
    uint e = lane + i * LANES;
    fetch_end(i, e / WIDE, n0 + e % WIDE);
  }
#ifdef NEXT
  float size = lane < left ? rms[token0 + lane] : 0.0;
#endif
  if (LEFT < PARTS) {
    barrier();
    if (part >= LEFT) {
      [[unroll]] for (uint i = 0; i < SUMS; i++)
        coopMatStore(sums[i], room, ((part - LEFT) * SUMS + i) * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
    if (part < LEFT) {
      [[unroll]] for (uint i = 0; i < SUMS; i++) {
        coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> other;
        coopMatLoad(other, room, (part * SUMS + i) * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
        sums[i] += other;
      }
    }
  }
  barrier();
  if (part < LEFT) {
    [[unroll]] for (uint i = 0; i < SUMS; i++)
      coopMatStore(sums[i], room, (part * SUMS + i) * FOUR, N / 4, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();
  [[unroll]] for (uint i = 0; i < EACH; i++) {
    uint e = lane + i * LANES;
    uint o = e % WIDE, r = o / (N / HALVES) * N + o % (N / HALVES);
    finish(i, e / WIDE, r, n0 + o);
  }
#ifdef NEXT
  barrier();
  leave_squares(lane, size);
#endif
}
