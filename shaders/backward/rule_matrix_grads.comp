#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// The part of the delta rule's backward pass that all blocks of steps do at once, from S before the block, dS after it,
// V' and Z. With D_ij = e^(G_i - G_j), s the scale, and sums over all value columns:
//   B = dO V'^T   F = s B * D (lower)   M = -(Z V'^T) * D (strictly lower)
//   dQ += s e^G * (dO S^T) + F K
//   dK += F^T Q + e^(Gn - G) * (V' dS^T) - e^G * (Z S^T) + (M + M^T) K
//   dV += Z       dbeta += Z.V' / beta^2
// and dg of a step is the sum of what its decay multiplies, never a difference of sums, whose rounding a hard decay
// would magnify: with X = (B * s Q K^T - (Z V'^T) * K K^T) * D, strictly lower,
//   dg_t += sum_{i>=t} a_i + sum_{j<t} c_j + sum_{i>=t, j<t} X_ij + e^Gn <S, dS>
//   a_i = e^G_i (s (dO S^T)_i.Q_i - (Z S^T)_i.K_i)     c_j = e^(Gn - G_j) (V' dS^T)_j.K_j
// Workgroups (H, blocks): a key head and its value heads, one after another, so that no two add to one number. A
// subgroup owns tiles of the key's columns, for all rows.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_LANES) const uint LANES = 256;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_DK) const uint DK = 128;
layout(constant_id = RULE_MATRIX_SPEC_DV) const uint DV = 128;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(constant_id = RULE_MATRIX_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = RULE_MATRIX_SPEC_TILE) const uint TILE = 16;
layout(constant_id = RULE_MATRIX_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
layout(constant_id = RULE_MATRIX_SPEC_GATED) const uint GATED = 1;
layout(constant_id = RULE_MATRIX_SPEC_WHOLE) const uint WHOLE = 1;
layout(set = 0, binding = RULE_MATRIX_ROWS) readonly buffer rows_block { uvec4 rows[]; };
layout(set = 0, binding = RULE_MATRIX_ROWS) readonly buffer words_block { uint words[]; }; // two elements
layout(set = 0, binding = RULE_MATRIX_GATES) restrict readonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_STATES) restrict readonly buffer states_block { uvec4 states[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DQKV) restrict buffer dqkv_block { float dqkv[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DBETA) restrict buffer dbeta_block { float dbeta[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DG) restrict buffer dg_block { float dg[]; };
#include "rule_matrix_block.glsl"

#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define BY_ROWS gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMNS gl_CooperativeMatrixLayoutColumnMajor

const uint SUBGROUPS = LANES / SUBGROUP, T4 = TILE / 4, T8 = TILE / 8, K8 = DK / 8, V8 = DV / 8;
const uint TILES_B = BLOCK / TILE, TILES_K = DK / TILE, TILES_V = DV / TILE;
const uint JOBS = TILES_B * (TILES_B + 1) / 2, JOBS_EACH = (JOBS + SUBGROUPS - 1) / SUBGROUPS; // lower tiles
const uint D_PITCH = BLOCK / 4 + 1, F_PITCH = BLOCK / 8 + 1, P_PITCH = 3, A_PITCH = T4 + 1;
// Of a subgroup: a tile's columns of K or Q for all steps, f16, or a tile, f32.
const uint PART = BLOCK * P_PITCH > TILE * A_PITCH ? BLOCK * P_PITCH : TILE * A_PITCH;
const uint POOL = BLOCK * D_PITCH > SUBGROUPS * PART ? BLOCK * D_PITCH : SUBGROUPS * PART;
const uint AT_ROWS = 2 * SUBGROUPS > TILE ? 2 * SUBGROUPS * BLOCK : TILE * BLOCK;
shared uvec4 pool[POOL];                                      // D, then X, f32; then the subgroups' parts
shared uvec4 scores[BLOCK * F_PITCH], pairs[BLOCK * F_PITCH]; // F and M, whose upper tiles nobody reads; f16
shared vec4 unit[TILE * T4];                                  // the identity
shared float sums[BLOCK], betas[BLOCK], diagonal[BLOCK];      // G; the diagonal of Z V'^T
shared vec4 fade_in[BLOCK / 4], fade_out[BLOCK / 4];          // e^G, e^(Gn - G)
shared float at_rows[AT_ROWS];                                // tiles with the diagonal; then a and c by subgroup
shared float carried[SUBGROUPS], crossing[BLOCK];             // <S, dS>; rectangles of X

uint lane, mine, part, row8, q_at, k_at, v_at, do_at, z_at; // the last: of the block in rows
sequence seq;
uint step0; // of the block, in its sequence
float by;   // takes the sequence's factor of dO away

void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

float number(uint at, uint i) { return uintBitsToFloat(pool[at + i / 4][i % 4]); }

// ---------------------------------------------------------------- gates

void make_gates(uint block, uint head) {
  const uint i = gl_LocalInvocationIndex;
  for (uint r = i; r < BLOCK; r += LANES) {
    const uint at = (block * BLOCK + r) * args.Hv + head;
    betas[r] = gates[at];
    diagonal[r] = max(gates[args.g_at + at], -110.0); // e^-104 is about the smallest f32
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    float sum = 0.0;
    for (uint j = 0; j <= r; j++) sum += diagonal[j];
    sums[r] = sum;
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    fade_in[r / 4][r % 4] = exp(sums[r]);
    fade_out[r / 4][r % 4] = exp(sums[BLOCK - 1] - sums[r]);
  }
  for (uint j = i; j < BLOCK * BLOCK / 4; j += LANES) {
    const uint r = j / (BLOCK / 4), c = j % (BLOCK / 4) * 4;
    vec4 d;
    [[unroll]] for (uint k = 0; k < 4; k++) d[k] = c + k <= r ? exp(sums[r] - sums[c + k]) : 0.0;
    pool[r * D_PITCH + c / 4] = floatBitsToUint(d);
  }
  barrier();
}

// ---------------------------------------------------------------- pairs of steps

// F, M, the diagonal of Z V'^T, and X, which waits in registers until nobody reads D. factor: from the block's factor
// of dO to the sequence's.
void make_pairs(float factor) {
  SUM X[JOBS_EACH];
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
    const uint job = n * SUBGROUPS + mine;
    X[n] = SUM(0.0);
    if (job < JOBS) {
      uint i = 0;
      while ((i + 1) * (i + 2) / 2 <= job) i++;
      const uint j = job - i * (i + 1) / 2, i_row = i * TILE * row8, j_row = j * TILE * row8;
      SUM B = SUM(0.0), Z = SUM(0.0), d;
      for (uint y = 0; y < TILES_V; y++) {
        LEFT o, z;
        RIGHT v;
        coopMatLoad(o, rows, do_at + i_row + y * T8, row8, BY_ROWS);
        coopMatLoad(z, rows, z_at + i_row + y * T8, row8, BY_ROWS);
        coopMatLoad(v, rows, v_at + j_row + y * T8, row8, BY_COLUMNS);
        B = coopMatMulAdd(o, v, B);
        Z = coopMatMulAdd(z, v, Z);
      }
      B = (args.scale * factor) * B;
      coopMatLoad(d, pool, i * TILE * D_PITCH + j * T4, D_PITCH, BY_ROWS);
      coopMatStore(SUM16(B * d), scores, i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
      if (i == j) {
        SUM one;
        coopMatLoad(one, unit, 0, T4, BY_ROWS);
        d = d - one;
        coopMatStore(Z, at_rows, i * TILE * TILE, TILE, BY_ROWS);
      }
      Z = Z * d;
      coopMatStore(SUM16(SUM(0.0) - Z), pairs, i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
      if (GATED != 0) {
        SUM QK = SUM(0.0), KK = SUM(0.0);
        for (uint x = 0; x < TILES_K; x++) {
          LEFT q, k;
          RIGHT other;
          coopMatLoad(q, rows, q_at + i_row + x * T8, row8, BY_ROWS);
          coopMatLoad(k, rows, k_at + i_row + x * T8, row8, BY_ROWS);
          coopMatLoad(other, rows, k_at + j_row + x * T8, row8, BY_COLUMNS);
          QK = coopMatMulAdd(q, other, QK);
          KK = coopMatMulAdd(k, other, KK);
        }
        X[n] = B * d * QK - Z * KK;
      }
    }
  }
  barrier();
  for (uint r = gl_LocalInvocationIndex; r < BLOCK; r += LANES)
    diagonal[r] = at_rows[r / TILE * TILE * TILE + r % TILE * (TILE + 1)];
  if (GATED != 0)
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
      const uint job = n * SUBGROUPS + mine;
      if (job < JOBS) {
        uint i = 0;
        while ((i + 1) * (i + 2) / 2 <= job) i++;
        coopMatStore(X[n], pool, i * TILE * D_PITCH + (job - i * (i + 1) / 2) * T4, D_PITCH, BY_ROWS);
      }
    }
  barrier();
}

// crossing_t = sum_{i>=t, j<t} X_ij: each column becomes its sums from below, then each row adds those before it.
void add_rectangles() {
  const uint i = gl_LocalInvocationIndex;
  for (uint c = i; c < BLOCK; c += LANES) {
    float sum = 0.0;
    for (uint r = BLOCK - 1; r > c; r--) {
      sum += number(r * D_PITCH, c);
      pool[r * D_PITCH + c / 4][c % 4] = floatBitsToUint(sum);
    }
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    float sum = 0.0;
    for (uint c = 0; c < r; c++) sum += number(r * D_PITCH, c);
    crossing[r] = sum;
  }
  barrier();
}

// ---------------------------------------------------------------- columns of keys

// Adds to row sums of a or c, at `to`, those of a tile.
void add_row_sums(SUM x, uint to) {
  subgroup_barrier();
  coopMatStore(x, pool, part, A_PITCH, BY_ROWS);
  subgroup_barrier();
  for (uint r = lane; r < TILE; r += SUBGROUP) {
    float sum = 0.0;
    [[unroll]] for (uint c = 0; c < TILE; c++) sum += number(part + r * A_PITCH, c);
    at_rows[to + r] += sum;
  }
}

// Stages columns of keys or queries of all steps.
void stage(uint from) {
  subgroup_barrier();
  for (uint i = lane; i < BLOCK * T8; i += SUBGROUP)
    pool[part + i / T8 * P_PITCH + i % T8] = rows[from + i / T8 * row8 + i % T8];
  subgroup_barrier();
}

// Adds a tile to a gradient of keys or queries, whose row begins at from + m step columns from the token's.
void add_tile(SUM x, uint i, uint column, uint from, uint step, const bool last) {
  if (WHOLE != 0 && step0 + BLOCK <= seq.T) {
    const uint at = (seq.row + step0 + i * TILE) * args.qkv_stride + from + column;
    SUM old;
    coopMatLoad(old, dqkv, at, args.qkv_stride, BY_ROWS);
    coopMatStore(old + by * x, dqkv, at, args.qkv_stride, BY_ROWS);
    return;
  }
  subgroup_barrier();
  coopMatStore(x, pool, part, A_PITCH, BY_ROWS);
  subgroup_barrier();
  for (uint e = lane; e < TILE * TILE; e += SUBGROUP) {
    const uint s = step0 + i * TILE + e / TILE, t = s / N, m = s % N;
    if (t < seq.T && column + e % TILE < args.Dk && (!last || m == N - 1))
      dqkv[(seq.row + t) * args.qkv_stride + from + m * step + column + e % TILE] +=
          by * number(part + e / TILE * A_PITCH, e % TILE);
  }
}

void column_tile(uint column, uint state, uint key_head, float factor) {
  SUM dq[TILES_B], dk[TILES_B], zs[TILES_B];
  float inner = 0.0;
  [[unroll]] for (uint i = 0; i < TILES_B; i++) dq[i] = dk[i] = zs[i] = SUM(0.0);
  for (uint y = 0; y < TILES_V; y++) {
    RIGHT s, d;
    coopMatLoad(s, states, state + column * V8 + y * T8, V8, BY_COLUMNS);
    coopMatLoad(d, states, state + (DK + column) * V8 + y * T8, V8, BY_COLUMNS);
    if (GATED != 0)
      for (uint e = 0; e < s.length(); e++) inner += float(s[e]) * float(d[e]);
    [[unroll]] for (uint i = 0; i < TILES_B; i++) {
      LEFT o, v, z;
      const uint at = i * TILE * row8 + y * T8;
      coopMatLoad(o, rows, do_at + at, row8, BY_ROWS);
      coopMatLoad(v, rows, v_at + at, row8, BY_ROWS);
      coopMatLoad(z, rows, z_at + at, row8, BY_ROWS);
      dq[i] = coopMatMulAdd(o, s, dq[i]);
      dk[i] = coopMatMulAdd(v, d, dk[i]);
      zs[i] = coopMatMulAdd(z, s, zs[i]);
    }
  }
  if (GATED != 0) {
    inner = subgroupAdd(inner);
    if (lane == 0) carried[mine] += inner;
  }
  [[unroll]] for (uint i = 0; i < TILES_B; i++) {
    SUM in_, out_;
    coopMatLoad(in_, fade_in, i * T4, 0, BY_COLUMNS);
    coopMatLoad(out_, fade_out, i * T4, 0, BY_COLUMNS);
    dq[i] = (args.scale * factor) * (in_ * dq[i]);
    dk[i] = out_ * dk[i];
    zs[i] = in_ * zs[i];
    if (GATED != 0) {
      SUM16 q, k;
      coopMatLoad(q, rows, q_at + i * TILE * row8 + column / 8, row8, BY_ROWS);
      coopMatLoad(k, rows, k_at + i * TILE * row8 + column / 8, row8, BY_ROWS);
      add_row_sums(SUM(q) * dq[i] - SUM(k) * zs[i], mine * BLOCK + i * TILE);
      add_row_sums(SUM(k) * dk[i], (SUBGROUPS + mine) * BLOCK + i * TILE);
    }
    dk[i] = dk[i] - zs[i];
  }
  stage(k_at + column / 8);
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT k;
    coopMatLoad(k, pool, part + j * TILE * P_PITCH, P_PITCH, BY_ROWS);
    [[unroll]] for (uint i = 0; i < TILES_B; i++) {
      LEFT f, m;
      if (i >= j) {
        coopMatLoad(f, scores, i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
        coopMatLoad(m, pairs, i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
        dq[i] = coopMatMulAdd(f, k, dq[i]);
        dk[i] = coopMatMulAdd(m, k, dk[i]);
      }
      if (i <= j) {
        coopMatLoad(m, pairs, j * TILE * F_PITCH + i * T8, F_PITCH, BY_COLUMNS);
        dk[i] = coopMatMulAdd(m, k, dk[i]);
      }
    }
  }
  stage(q_at + column / 8);
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT q;
    coopMatLoad(q, pool, part + j * TILE * P_PITCH, P_PITCH, BY_ROWS);
    [[unroll]] for (uint i = 0; i <= j; i++) {
      LEFT f;
      coopMatLoad(f, scores, j * TILE * F_PITCH + i * T8, F_PITCH, BY_COLUMNS);
      dk[i] = coopMatMulAdd(f, q, dk[i]);
    }
  }
  const uint keys = args.H * args.Dk;
  [[unroll]] for (uint i = 0; i < TILES_B; i++) {
    add_tile(dq[i], i, column, key_head * args.Dk, 0, true);
    add_tile(dk[i], i, column, keys + key_head * args.Dk, keys, false);
  }
}

// ---------------------------------------------------------------- values and gates

void add_values(uint head) {
  const uint v_from = (1 + N) * args.H * args.Dk + head * args.Dv;
  for (uint i = gl_LocalInvocationIndex; i < BLOCK * DV / 2; i += LANES) {
    const uint r = i / (DV / 2), c = i % (DV / 2) * 2, t = (step0 + r) / N, m = (step0 + r) % N;
    const vec2 z = by * unpackHalf2x16(words[(z_at + r * row8) * 4 + c / 2]);
    const uint to = (seq.row + t) * args.qkv_stride + v_from + m * args.Hv * args.Dv + c;
    if (t < seq.T && c < args.Dv) dqkv[to] += z.x;
    if (t < seq.T && c + 1 < args.Dv) dqkv[to + 1] += z.y;
  }
}

void add_gates(uint head) {
  const uint i = gl_LocalInvocationIndex;
  for (uint r = i; GATED != 0 && r < BLOCK; r += LANES) {
    float a = 0.0, c = 0.0;
    for (uint n = 0; n < SUBGROUPS; n++) {
      a += at_rows[n * BLOCK + r];
      c += at_rows[(SUBGROUPS + n) * BLOCK + r];
    }
    at_rows[r] = a; // nobody else reads or writes these two
    at_rows[SUBGROUPS * BLOCK + r] = c;
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    const uint t = (step0 + r) / N, m = (step0 + r) % N;
    if (t >= seq.T) break;
    const float beta = betas[r];
    const float d = abs(beta) < 1e-18 ? 0.0 : by * diagonal[r] / (beta * beta);
    dbeta[(seq.row + t) * args.beta_stride + m * args.Hv + head] += d;
    if (GATED == 0 || m > 0) continue;
    float sum = 0.0;
    for (uint n = 0; n < SUBGROUPS; n++) sum += carried[n];
    sum = crossing[r] + exp(sums[BLOCK - 1]) * sum;
    for (uint n = r; n < BLOCK; n++) sum += at_rows[n];
    for (uint n = 0; n < r; n++) sum += at_rows[SUBGROUPS * BLOCK + n];
    dg[(seq.row + t) * args.g_stride + head] += by * sum;
  }
}

void main() {
  const uint key_head = gl_WorkGroupID.x, block = gl_WorkGroupID.y, i = gl_LocalInvocationIndex;
  uint first;
  if (!find_block(block, seq, first, step0)) return;
  lane = gl_SubgroupInvocationID;
  mine = gl_SubgroupID;
  part = mine * PART;
  row8 = RULE_MATRIX_ROW(args.H, args.Hv, DK, DV) / 8;
  q_at = block * BLOCK * row8 + key_head * K8;
  k_at = q_at + args.H * K8;
  for (uint e = i; e < TILE * TILE; e += LANES) unit[e / 4][e % 4] = e / TILE == e % TILE ? 1.0 : 0.0;
  for (uint head = 0; head < args.Hv; head++) {
    if (head / args.share % args.H != key_head) continue;
    float least = 126.0;
    for (uint b = lane; b < blocks_of(seq); b += SUBGROUP)
      least = min(least, gates[args.scales_at + (first + b) * args.Hv + head]);
    least = subgroupMin(least);
    by = ldexp(1.0, -int(least));
    const float factor = ldexp(1.0, int(max(least - gates[args.scales_at + block * args.Hv + head], -126.0)));
    v_at = block * BLOCK * row8 + 2 * args.H * K8 + head * V8;
    do_at = v_at + args.Hv * V8;
    z_at = do_at + args.Hv * V8;
    make_gates(block, head);
    make_pairs(factor);
    if (GATED != 0) add_rectangles();
    for (uint e = lane; e < BLOCK; e += SUBGROUP) {
      at_rows[mine * BLOCK + e] = 0.0;
      at_rows[(SUBGROUPS + mine) * BLOCK + e] = 0.0;
    }
    if (lane == 0) carried[mine] = 0.0;
    subgroup_barrier();
    for (uint x = mine; x < TILES_K; x += SUBGROUPS)
      column_tile(x * TILE, (block * args.Hv + head) * 2 * DK * V8, key_head, factor);
    add_values(head);
    barrier();
    add_gates(head);
    barrier();
  }
}
