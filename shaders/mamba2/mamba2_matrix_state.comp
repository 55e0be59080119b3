#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// mamba2_chunk_state.comp on cooperative matrices (coopmat), with operands and records in f16 and sums in f32
// (mamba2_chunk.h). B and the rows e^(G_last - G_t) dt_t x_t are divided by their largest elements in the chunk, and
// the record holds the product of these. So small values keep their precision, and no sum overflows f16. xBC (T, heads
// P + 2 groups N), dt, g (T, heads), state (slots, heads, N, P).
// Workgroups (chunks, groups ceil(heads / groups / HEADS)): B is staged once, and x for one head after the other; a
// subgroup owns tiles of rows of the state. Any N, P, groups, T.
#include "mamba2_matrix_state.h"
layout(set = 0, binding = MAMBA2_CHUNK_STATES) restrict writeonly buffer states_block { uvec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC_block { float xBC[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC4_block { vec4 xBC4[]; };
layout(set = 0, binding = MAMBA2_CHUNK_DT) restrict readonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_CHUNK_G) restrict readonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_MATRIX_STATE_STATE) restrict readonly buffer state_block { float state[]; };
layout(set = 0, binding = MAMBA2_CHUNK_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
#include "mamba2_matrix.glsl"
#include "reduce.glsl"

const uint B_EACH = (C * N8 + LANES - 1) / LANES, X_EACH = (C * P8 + LANES - 1) / LANES;
const uint TILES_P = PP / TILE_N, STEPS = C / TILE_K;
// Tiles of rows that a subgroup computes at once, so that it loads tiles of x once for both.
const uint ODD = NP / TILE_M % (2 * SUBGROUPS) + TILES_P / 5; // or there are many accumulators already
const uint ABREAST = ODD == 0 ? 2 : 1;
shared uvec4 keys[C * N_PITCH];
shared uvec4 values[C * P_PITCH];
shared uvec4 own[SUBGROUPS * TILE_M * P_PITCH]; // a part per subgroup: a tile of rows of the state

float largest(vec4 x) { return max(workgroup_max(max(max(x.x, x.y), max(x.z, x.w))), 1e-18); }

eight scaled(float by, eight x) { return eight(by * x.low, by * x.high); }

vec4 larger(vec4 top, eight x) { return max(top, max(abs(x.low), abs(x.high))); }

// The largest element of the head's state. Has many loads in flight, since other workgroups wait for the few that do
// this.
float largest_before(const part w, uint h) {
  const uint at = w.slot * args.state_stride + (w.head0 + h) * N * P, BATCH = 64;
  vec4 top = vec4(0.0);
  for (uint i0 = gl_LocalInvocationIndex; i0 < N * P; i0 += BATCH * LANES) {
    float S[BATCH];
    [[unroll]] for (uint n = 0; n < BATCH; n++) S[n] = state[at + min(i0 + n * LANES, N * P - 1)];
    [[unroll]] for (uint n = 0; n < BATCH; n++) top[n % 4] = max(top[n % 4], abs(S[n]));
  }
  return largest(top);
}

// Stages B, divided by its largest element, which is returned.
float stage_keys(const part w) {
  eight b[B_EACH];
  vec4 top = vec4(0.0);
  [[unroll]] for (uint n = 0; n < B_EACH; n++) {
    b[n] = load8(w, n * LANES + gl_LocalInvocationIndex, N8, args.heads * P + w.group * N, N);
    top = larger(top, b[n]);
  }
  const float most = largest(top);
  [[unroll]] for (uint n = 0; n < B_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (C * N8 % LANES == 0 || i < C * N8) keys[i / N8 * N_PITCH + i % N8] = half8(scaled(1.0 / most, b[n]));
  }
  return most;
}

// Stages e^(G_last - G_t) dt_t x_t in the same way.
float stage_values(const part w, uint h) {
  eight x[X_EACH];
  vec4 top = vec4(0.0);
  [[unroll]] for (uint n = 0; n < X_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex, t = min(i / P8, C - 1);
    x[n] = load8(w, i, P8, (w.head0 + h) * P, P);
    x[n] = scaled(decay_between(h, C - 1, t) * sizes[(h * C + t) / 4][t % 4], x[n]);
    top = larger(top, x[n]);
  }
  const float most = largest(top);
  [[unroll]] for (uint n = 0; n < X_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (C * P8 % LANES == 0 || i < C * P8) values[i / P8 * P_PITCH + i % P8] = half8(scaled(1.0 / most, x[n]));
  }
  return most;
}

void main() {
  const uint lane = gl_SubgroupInvocationID, mine = gl_SubgroupID * TILE_M * P_PITCH;
  part w;
  if (!part_of(w)) return;
  const float most_b = stage_keys(w);
  make_gates(w);
  for (uint h = 0; h < w.heads; h++) {
    const float before = w.chunk == 0 ? largest_before(w, h) : 0.0, most = most_b * stage_values(w, h);
    const uint record = record_of(w, h);
    if (gl_LocalInvocationIndex == 0)
      states[record + RECORD - 1] =
          floatBitsToUint(vec4(exp(G[h * C + C - 1].x + G[h * C + C - 1].y), most, before, 0.0));
    barrier();
    for (uint n0 = gl_SubgroupID * ABREAST * TILE_M; n0 < NP; n0 += SUBGROUPS * ABREAST * TILE_M) {
      SUM S[ABREAST * TILES_P];
      [[unroll]] for (uint j = 0; j < ABREAST * TILES_P; j++) S[j] = SUM(0.0);
      [[unroll]] for (uint k = 0; k < STEPS; k++) {
        LEFT b[ABREAST];
        [[unroll]] for (uint r = 0; r < ABREAST; r++)
          coopMatLoad(b[r], keys, k * TILE_K * N_PITCH + (n0 + r * TILE_M) / 8, N_PITCH, COLS);
        [[unroll]] for (uint j = 0; j < TILES_P; j++) {
          RIGHT v;
          coopMatLoad(v, values, k * TILE_K * P_PITCH + j * TILE_N / 8, P_PITCH, ROWS);
          [[unroll]] for (uint r = 0; r < ABREAST; r++) S[r * TILES_P + j] = coopMatMulAdd(b[r], v, S[r * TILES_P + j]);
        }
      }
      // Through shared memory, so that whole rows are written.
      [[unroll]] for (uint r = 0; r < ABREAST; r++) {
        [[unroll]] for (uint j = 0; j < TILES_P; j++)
          coopMatStore(SUM16(S[r * TILES_P + j]), own, mine + j * TILE_N / 8, P_PITCH, ROWS);
        subgroup_barrier();
        [[unroll]] for (uint n = 0; n < (TILE_M * P8 + SUBGROUP - 1) / SUBGROUP; n++) {
          uint i = n * SUBGROUP + lane;
          if (TILE_M * P8 % SUBGROUP == 0 || i < TILE_M * P8)
            states[record + (n0 + r * TILE_M) * P8 + i] = own[mine + i / P8 * P_PITCH + i % P8];
        }
        subgroup_barrier();
      }
    }
    barrier();
  }
}
