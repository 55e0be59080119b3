#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y): many tokens.
// Workgroups (ceil(N / TILE_N), ceil(T / TILE_T)): a tile of y, in steps of TILE_K. Their numbers run down strips of
// STRIP rows of tiles, so that those which run at the same time read the same inputs from caches. The next step's data
// is loaded into registers while this step multiplies from shared memory. There both inputs are transposed, so an
// invocation reads (SUB_T + SUB_N) / 4 vectors for SUB_T * SUB_N multiplications. Invocations load blocks of four rows,
// which they transpose in registers. SLICES: so many invocations have the same outputs, of other K of each step, and
// their sums are added at the end. Any T, N, K.
// EXPERTS: each row of y has an expert, w (experts * N, K); a tile's rows are of one expert, gathered and scattered.
#include "matmul.h"
layout(local_size_x_id = MATMUL_SPEC_LANES) in;
layout(constant_id = MATMUL_SPEC_TILE_T) const uint TILE_T = 32;
layout(constant_id = MATMUL_SPEC_TILE_N) const uint TILE_N = 32;
layout(constant_id = MATMUL_SPEC_TILE_K) const uint TILE_K = 32;
layout(constant_id = MATMUL_SPEC_SUB_T) const uint SUB_T = 4;
layout(constant_id = MATMUL_SPEC_SUB_N) const uint SUB_N = 4;
layout(constant_id = MATMUL_SPEC_SLICES) const uint SLICES = 1;
layout(constant_id = MATMUL_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = MATMUL_SPEC_GROUPED) const uint GROUPED = 0;
layout(constant_id = MATMUL_SPEC_BUFFERS) const uint BUFFERS = 1;
layout(constant_id = MATMUL_SPEC_UNROLL) const uint UNROLL = 1;
layout(set = 0, binding = MATMUL_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATMUL_Y) buffer y4_block { vec4 y4[]; };
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

const uint LANES = gl_WorkGroupSize.x;
const uint K4 = TILE_K / 4, K8 = TILE_K / 8;
const uint T4 = TILE_T / 4, N4 = TILE_N / 4;                     // vectors of a row in shared memory
const uint ACROSS_T = TILE_T / SUB_T, ACROSS_N = TILE_N / SUB_N; // invocations along each side
const uint EACH = ACROSS_T * ACROSS_N;                           // invocations of a slice
const uint BLOCKS_X = T4 * K4, BLOCKS_W = N4 * K8;               // of 4 x 4 inputs, of 4 x 8 weights
const uint LOADS_X = (BLOCKS_X + LANES - 1) / LANES, LOADS_W = (BLOCKS_W + LANES - 1) / LANES;
const uint W_FROM = TILE_K * T4, WHOLE = W_FROM + TILE_K * N4;
const uint I4 = SUB_T / 4, J4 = SUB_N / 4;
// (TILE_K, TILE_T) of x, then (TILE_K, TILE_N) of w; at the end the sums of half the slices.
const uint STEPS = BUFFERS * WHOLE, SLICED = SLICES / 2 * TILE_T * N4;
shared vec4 tile[STEPS > SLICED ? STEPS : SLICED];

vec4 rx[LOADS_X * 4];
PACKED8 rw[LOADS_W * 4];
vec4 sums[SUB_T * J4];

// Neighbouring invocations store different rows at once. So each row's vectors are in an order of its own, in
// other banks.
const uint TURN = K4 < 8 ? 8 / K4 : 1;
uint place(uint row4, uint at) { return at ^ row4 * TURN % 8; }

// Four inputs of a token, zeros from K on: the zeros at the end of a row of weights must not multiply a NaN.
vec4 inputs(uint t, uint k) {
  uint i = X_ROW(min(t, ROWS_OF_TILE - 1)) * args.x_stride + k;
  if (ALIGNED == 2) return x4[i / 4];
  if (k >= args.K) return vec4(0.0);
  if (ALIGNED == 1) return x4[i / 4];
  uint left = args.K - k;
  return vec4(x[i], left > 1 ? x[i + 1] : 0.0, left > 2 ? x[i + 2] : 0.0, left > 3 ? x[i + 3] : 0.0);
}

// Rows past the last repeat it: their results are not stored.
void fetch(uint lane, uint t0, uint n0, uint k0) {
  [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
    uint i = lane + l * LANES;
    if (BLOCKS_X % LANES != 0 && i >= BLOCKS_X) continue;
    [[unroll]] for (uint r = 0; r < 4; r++) rx[l * 4 + r] = inputs(t0 + i / K4 * 4 + r, k0 + i % K4 * 4);
  }
  [[unroll]] for (uint l = 0; l < LOADS_W; l++) {
    uint i = lane + l * LANES, k = k0 + i % K8 * 8;
    if (BLOCKS_W % LANES != 0 && i >= BLOCKS_W) continue;
    [[unroll]] for (uint r = 0; r < 4; r++) {
      uint n = min(n0 + i / K8 * 4 + r, args.N - 1);
      if (ALIGNED == 2 || k < args.K)
        rw[l * 4 + r] = packed8(EXPERT_GROUPS(args.N) + (n * args.w_stride + k) / 8);
      else
        rw[l * 4 + r] = PACKED8_ZERO;
    }
  }
}

void store4(uint at, vec4 a, vec4 b, vec4 c, vec4 d, uint pitch) {
  [[unroll]] for (uint e = 0; e < 4; e++) tile[at + e * pitch] = vec4(a[e], b[e], c[e], d[e]);
}

void stage(uint lane, uint from) {
  [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
    uint i = lane + l * LANES, k4 = i % K4, r = l * 4;
    if (BLOCKS_X % LANES != 0 && i >= BLOCKS_X) continue;
    store4(from + 4 * k4 * T4 + place(k4, i / K4), rx[r], rx[r + 1], rx[r + 2], rx[r + 3], T4);
  }
  [[unroll]] for (uint l = 0; l < LOADS_W; l++) {
    uint i = lane + l * LANES, k4 = i % K8 * 2, at = from + W_FROM + 4 * k4 * N4;
    if (BLOCKS_W % LANES != 0 && i >= BLOCKS_W) continue;
    vec4 low[4], high[4];
    [[unroll]] for (uint r = 0; r < 4; r++) widen8(rw[l * 4 + r], low[r], high[r]);
    store4(at + place(k4, i / K8), low[0], low[1], low[2], low[3], N4);
    store4(at + 4 * N4 + place(k4 + 1, i / K8), high[0], high[1], high[2], high[3], N4);
  }
}

void multiply4(uint k4, uint from, uint lt, uint ln) {
  uint x_at = from + 4 * k4 * T4, w_at = from + W_FROM + 4 * k4 * N4;
  if (GROUPED == 0) {
    [[unroll]] for (uint e = 0; e < 4; e++) {
      vec4 a[I4], b[J4];
      [[unroll]] for (uint i = 0; i < I4; i++) a[i] = tile[x_at + e * T4 + place(k4, lt + i * ACROSS_T)];
      [[unroll]] for (uint j = 0; j < J4; j++) b[j] = tile[w_at + e * N4 + place(k4, ln + j * ACROSS_N)];
      [[unroll]] for (uint i = 0; i < SUB_T; i++) {
        [[unroll]] for (uint j = 0; j < J4; j++) sums[i * J4 + j] += a[i / 4][i % 4] * b[j];
      }
    }
  } else {
    vec4 a[4 * I4], b[4];
    [[unroll]] for (uint i = 0; i < I4; i++) {
      [[unroll]] for (uint e = 0; e < 4; e++) a[i * 4 + e] = tile[x_at + e * T4 + place(k4, lt + i * ACROSS_T)];
    }
    [[unroll]] for (uint j = 0; j < J4; j++) {
      [[unroll]] for (uint e = 0; e < 4; e++) b[e] = tile[w_at + e * N4 + place(k4, ln + j * ACROSS_N)];
      [[unroll]] for (uint i = 0; i < SUB_T; i++) {
        vec4 sum = a[i / 4 * 4][i % 4] * b[0];
        [[unroll]] for (uint e = 1; e < 4; e++) sum += a[i / 4 * 4 + e][i % 4] * b[e];
        sums[i * J4 + j] += sum;
      }
    }
  }
}

// Adds the sums of all slices up, in those of the first.
void add_slices(uint own, uint slice) {
  for (uint half_ = SLICES / 2; half_ > 0; half_ /= 2) {
    if (slice / half_ == 1) {
      [[unroll]] for (uint i = 0; i < SUB_T * J4; i++) tile[((slice - half_) * SUB_T * J4 + i) * EACH + own] = sums[i];
    }
    barrier();
    if (slice < half_) {
      [[unroll]] for (uint i = 0; i < SUB_T * J4; i++) sums[i] += tile[(slice * SUB_T * J4 + i) * EACH + own];
    }
    barrier();
  }
}

void write(uint t, uint n, vec4 sum) {
  uint at = Y_ROW(t) * args.y_stride + args.first + n;
  if (args.has_bias != 0) {
    [[unroll]] for (uint e = 0; e < 4; e++) sum[e] += bias[args.first + min(n + e, args.N - 1)];
  }
  if ((args.y_stride | args.first) % 4 == 0 && n + 4 <= args.N) {
    y4[at / 4] = args.add != 0 ? y4[at / 4] + sum : sum;
  } else {
    [[unroll]] for (uint e = 0; e < 4; e++)
      if (n + e < args.N) y[at + e] = args.add != 0 ? y[at + e] + sum[e] : sum[e];
  }
}

const uint STRIP = 8;
uvec2 tile_of(uint number, uvec2 tiles) {
  uint first = number / (STRIP * tiles.x) * STRIP, within = number % (STRIP * tiles.x);
  uint rows = min(STRIP, tiles.y - first);
  return uvec2(within / rows, first + within % rows);
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  uvec2 at = tile_of(gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, gl_NumWorkGroups.xy);
  uint n0 = at.x * TILE_N, t0 = at.y * TILE_T;
#ifdef EXPERTS
  if (!find_tile(at.y, TILE_T)) return;
  t0 = 0;
#endif
  // Sixteen neighbours have 4 x 4 places, of which two share each vector, so that shared memory serves them at once.
  uint slice = lane / EACH, own = lane % EACH, rest = own / 16;
  uint ln = rest % (ACROSS_N / 4) * 4 + (own & 1 | own >> 1 & 2);
  uint lt = rest / (ACROSS_N / 4) * 4 + (own >> 1 & 1 | own >> 2 & 2);
  [[unroll]] for (uint i = 0; i < SUB_T * J4; i++) sums[i] = vec4(0.0);

  fetch(lane, t0, n0, 0);
  uint from = 0;
  for (uint k0 = 0; k0 < args.K; k0 += TILE_K) {
    stage(lane, from);
    barrier();
    if (k0 + TILE_K < args.K) fetch(lane, t0, n0, k0 + TILE_K);
    uint first = slice * (K4 / SLICES);
    for (uint k4 = first; k4 < first + K4 / SLICES; k4 += UNROLL) {
      [[unroll]] for (uint u = 0; u < UNROLL; u++) multiply4(k4 + u, from, lt, ln);
    }
    if (BUFFERS == 1) barrier();
    else from = WHOLE - from;
  }
  if (SLICES > 1) {
    if (BUFFERS > 1) barrier();
    add_slices(own, slice);
    if (slice > 0) return;
  }

  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    uint t = t0 + (lt + i / 4 * ACROSS_T) * 4 + i % 4;
    [[unroll]] for (uint j = 0; j < J4; j++) {
      uint n = n0 + (ln + j * ACROSS_N) * 4;
      if (t < ROWS_OF_TILE && n < args.N) write(t, n, sums[i * J4 + j]);
    }
  }
}
