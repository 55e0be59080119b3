#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The sequential part of the chunkwise delta rule: chunks in order, with S (Dk, COLUMNS) in shared memory.
//   R  = V - e^G * (K S)                         V' = Tm R
//   O  = scale e^G * (Q S) + P V'                S <- e^Gn S + (e^(Gn - G) * K)^T V'
// The papers' W and U are never formed; Tm, P, e^G and e^(Gn - G) come from delta_chunk_prepare (delta_chunk.h). qkv
// (T, (1 + N) H Dk + N Hv Dv), state (slots, Hv, Dk, Dv), o (T, Hv Dv). Workgroups (ceil(Dv / COLUMNS), Hv, B): COLUMNS
// value columns of one head of one sequence. K, V and V' have a row for each of a token's N steps, Q and O one for each
// token. An invocation computes SUB_T x SUB_C elements of R and V', and SUB_Q x SUB_C of O. It has the same elements in
// every chunk, so its part of Q S stays in registers. It also computes some SUB_K x SUB_C blocks of S. Four barriers
// per chunk. With two GROUPS one half of the workgroup computes K S, R, V', the other Q S, O: the chain of chunks
// limits the time, so more invocations share it. K and Q are staged in shared memory: without that the kernel takes
// three times as long. Where registers suffice (AHEAD), rows of Tm and P are loaded before the products that come
// first, and K, Q, V of the next chunk before this chunk's last products: so nothing waits for memory. Any Dk that
// fits, Dv, T.
#include "delta_chunk_scan.h"
layout(local_size_x_id = DELTA_CHUNK_SCAN_SPEC_LANES) in;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_C) const uint C = 32;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_DK) const uint DK = 64;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_SUB_T) const uint SUB_T = 4;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_SUB_C) const uint SUB_C = 4;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_SUB_K) const uint SUB_K = 4;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_GROUPS) const uint GROUPS = 1;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_CHUNK_SCAN_SPEC_KEPT) const uint MOST_KEPT = 16;
layout(set = 0, binding = DELTA_CHUNK_SCAN_O) writeonly buffer o_block { float o[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_O) writeonly buffer o4_block { vec4 o4[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_PREPARED) readonly buffer prepared_block { vec4 prepared[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_STATE) buffer state4_block { vec4 state4[]; };
layout(set = 0, binding = DELTA_CHUNK_SCAN_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

const uint C4 = C / 4;
const uint DK4 = (DK + 3) / 4;
const uint ROWS = (DK + SUB_K - 1) / SUB_K * SUB_K; // rows of S, with zeros below DK
const uint V4 = COLUMNS / 4;                        // vec4 of a row of S, R, V'
const uint SUB_C4 = SUB_C / 4, SUB_K4 = SUB_K / 4;
const uint ACROSS = COLUMNS / SUB_C; // invocations along the columns
const uint TILES = C / SUB_T * ACROSS;
const uint TOKENS = C / N;
const uint SUB_Q = DELTA_CHUNK_SCAN_SUB_Q(SUB_T, N);
const uint QUERIES = DELTA_CHUNK_SCAN_QUERIES(C, SUB_T, N);
const uint SUMS = SUB_T * SUB_C4;
const uint PITCH = ROWS / 4 + 1; // vec4 of a staged row; the extra one spreads rows over banks
const uint LANES = TILES * GROUPS;
const uint STAGED = (C + QUERIES) * (ROWS / 4);
const uint SHARE = (STAGED + LANES - 1) / LANES, PREPARED = SUB_T * C4; // vec4 of an invocation, of K and Q; of Tm or P
const bool AHEAD = GROUPS == 2 && SHARE <= MOST_KEPT && PREPARED <= MOST_KEPT;
const uint BATCH = AHEAD ? SHARE : 8; // loads in flight while staging
const uint KEPT = AHEAD ? PREPARED : 1;
shared vec4 S[ROWS * V4];
shared vec4 R[C * V4];
shared vec4 U[C * V4]; // V'
shared vec4 tile[(C + QUERIES) * PITCH]; // rows of K, then of Q
shared vec4 fades[2 * C4]; // fade_in, then fade_out

// Elements d ... d + 3 of the n at i; zeros past the end.
vec4 load4(uint i, uint d, uint n) {
  if (d >= n) return vec4(0.0);
  if (ALIGNED != 0) return qkv4[(i + d) / 4];
  uint left = n - d;
  i += d;
  return vec4(qkv[i], left > 1 ? qkv[i + 1] : 0.0, left > 2 ? qkv[i + 2] : 0.0, left > 3 ? qkv[i + 3] : 0.0);
}

void store4(uint i, uint d, uint n, vec4 value) {
  if (d >= n) return;
  if (ALIGNED != 0)
    o4[(i + d) / 4] = value;
  else
    [[unroll]] for (uint j = 0; j < 4; j++)
      if (d + j < n) o[i + d + j] = value[j];
}

// A chunk: its tokens, where its q, k, v and record begin.
struct part {
  uint count, q, k, v, record;
};

part part_at(sequence s, uint t0, uint chunk, uint head, uint key_head, uint column0) {
  uint at = (s.row + t0) * args.qkv_stride;
  return part(min(TOKENS, s.T - t0), at + key_head * DK, at + (args.H + key_head) * DK,
              at + (1 + N) * args.H * DK + head * args.Dv + column0,
              (chunk * args.Hv + head) * (DELTA_CHUNK_RECORD(C) / 4));
}

// BATCH vec4 of K and Q from i0 on, every LANES-th. Rows past the end repeat the last one: their results are dropped.
void fetch(part p, uint i0, out vec4 batch[BATCH]) {
  [[unroll]] for (uint j = 0; j < BATCH; j++) {
    uint i = min(i0 + j * LANES, STAGED - 1), r = i / (ROWS / 4);
    uint step = min(r, p.count * N - 1), t = r < C ? step / N : min(r - C, p.count - 1);
    batch[j] = load4((r < C ? p.k + step % N * args.H * DK : p.q) + t * args.qkv_stride, i % (ROWS / 4) * 4, DK);
  }
}

void place(uint i0, vec4 batch[BATCH]) {
  [[unroll]] for (uint j = 0; j < BATCH; j++) {
    uint i = i0 + j * LANES;
    if (i < STAGED) tile[i / (ROWS / 4) * PITCH + i % (ROWS / 4)] = batch[j];
  }
}

// fade_in, then fade_out; zeros past their end.
vec4 fetch_fade(part p, uint i) { return i < 2 * C4 ? prepared[p.record + 2 * C * C4 + i] : vec4(0.0); }

void fetch_v(part p, uint i0, uint c0, uint columns, out vec4 v[SUMS]) {
  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    uint step = min(i0 + i, p.count * N - 1);
    uint at = p.v + step / N * args.qkv_stride + step % N * args.Hv * args.Dv;
    [[unroll]] for (uint c = 0; c < SUB_C4; c++) v[i * SUB_C4 + c] = load4(at, (c0 + c) * 4, columns);
  }
}

// a times four rows: long sums are sums of four products, for smaller rounding errors.
vec4 four(vec4 a, vec4 row0, vec4 row1, vec4 row2, vec4 row3) {
  vec4 sum = a[0] * row0;
  sum += a[1] * row1;
  sum += a[2] * row2;
  return sum + a[3] * row3;
}
#define FOUR(a, rows, c) four(a, rows[c], rows[SUB_C4 + c], rows[2 * SUB_C4 + c], rows[3 * SUB_C4 + c])

float fade_in(uint t) { return fades[t / 4][t % 4]; }
float fade_out(uint t) { return fades[C4 + t / 4][t % 4]; }

// Loads this workgroup's columns of S, row by row.
void load_state(uint lane, uint from, uint columns) {
  for (uint i = lane; i < ROWS * V4; i += gl_WorkGroupSize.x) {
    uint row = i / V4, c = i % V4 * 4, at = from + row * args.Dv + c;
    vec4 value = vec4(0.0);
    if (row < DK && c < columns) {
      if (ALIGNED != 0)
        value = state4[at / 4];
      else
        [[unroll]] for (uint j = 0; j < 4; j++)
          if (c + j < columns) value[j] = state[at + j];
    }
    S[i] = value;
  }
  barrier();
}

void store_state(uint lane, uint to, uint columns) {
  for (uint i = lane; i < DK * V4; i += gl_WorkGroupSize.x) {
    uint row = i / V4, c = i % V4 * 4, at = to + row * args.Dv + c;
    vec4 value = S[i];
    if (c >= columns) continue;
    if (ALIGNED != 0)
      state4[at / 4] = value;
    else
      [[unroll]] for (uint j = 0; j < 4; j++)
        if (c + j < columns) state[at + j] = value[j];
  }
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  if (s.T == 0) return;
  uint head = gl_WorkGroupID.y, key_head = head / args.share % args.H;
  uint column0 = gl_WorkGroupID.x * COLUMNS, columns = min(COLUMNS, args.Dv - column0);
  uint state_at = s.slot * args.state_stride + head * DK * args.Dv + column0;
  uint chunk = 0; // index of this sequence's first chunk
  for (uint z = 0; z < gl_WorkGroupID.z; z++) chunk += (sequences[z].T + TOKENS - 1) / TOKENS;
  uint i0 = lane % TILES / ACROSS * SUB_T, q0 = lane % TILES / ACROSS * SUB_Q; // its steps and tokens
  uint c0 = lane % ACROSS * SUB_C4;                                            // and columns (in vec4)
  bool makes_k = GROUPS == 1 || lane < TILES, makes_q = GROUPS == 1 || lane >= TILES;
  uint row0 = makes_k ? i0 : C + q0; // its first row of the tile
  vec4 v[SUMS], batch[BATCH], fade = vec4(0.0);
  if (AHEAD) {
    part first = part_at(s, 0, chunk, head, key_head, column0);
    fetch(first, lane, batch);
    fetch_v(first, i0, c0, columns, v);
    fade = fetch_fade(first, lane);
  }
  load_state(lane, state_at, columns);

  for (uint t0 = 0; t0 < s.T; t0 += TOKENS, chunk++) {
    part p = part_at(s, t0, chunk, head, key_head, column0);
    uint count = p.count, record = p.record;
    if (!AHEAD) fetch_v(p, i0, c0, columns, v);
    for (uint i = lane; i < 2 * C4; i += LANES) fades[i] = AHEAD ? fade : fetch_fade(p, i);
    for (uint i = lane; i < STAGED; i += BATCH * LANES) {
      if (!AHEAD) fetch(p, i, batch);
      place(i, batch);
    }
    vec4 kept[KEPT];
    if (AHEAD) {
      uint rows = record + (makes_k ? i0 * C4 : (C + q0) * C4);
      [[unroll]] for (uint i = 0; i < KEPT; i++) kept[i] = prepared[rows + i];
    }
    barrier();

    // K S, or Q S in the second of two groups: without a branch, so that loads of many d are on their way. One group
    // makes both.
    vec4 kS[SUMS], y[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; i++) kS[i] = y[i] = vec4(0.0);
    for (uint d = 0; d < DK4; d++) {
      vec4 rows[4 * SUB_C4];
      [[unroll]] for (uint r = 0; r < 4; r++)
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) rows[r * SUB_C4 + c] = S[(4 * d + r) * V4 + c0 + c];
      [[unroll]] for (uint i = 0; i < SUB_T; i++) {
        vec4 k = tile[min(row0 + i, C + QUERIES - 1) * PITCH + d];
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) kS[i * SUB_C4 + c] += FOUR(k, rows, c);
        if (GROUPS == 1 && i < SUB_Q) {
          vec4 q = tile[(C + q0 + i) * PITCH + d];
          [[unroll]] for (uint c = 0; c < SUB_C4; c++) y[i * SUB_C4 + c] += FOUR(q, rows, c);
        }
      }
    }
    if (GROUPS == 2) {
      [[unroll]] for (uint i = 0; i < SUMS; i++) y[i] = kS[i];
    }
    [[unroll]] for (uint i = 0; i < SUB_T; i++) {
      uint step = i0 + i, query = min((q0 + i) * N, C - 1);
      [[unroll]] for (uint c = 0; c < SUB_C4; c++) {
        vec4 r = v[i * SUB_C4 + c] - fade_in(step) * kS[i * SUB_C4 + c];
        if (makes_k) R[step * V4 + c0 + c] = step < count * N ? r : vec4(0.0);
        y[i * SUB_C4 + c] *= args.scale * fade_in(query);
      }
    }
    barrier();

    // V' = Tm R. Tm and P are lower triangular, with zeros above. Two GROUPS go over the zeros too, so that all loads
    // are issued together.
    vec4 u[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; i++) u[i] = vec4(0.0);
    uint end = GROUPS == 1 ? (i0 + SUB_T + 3) / 4 : C4;
    if (makes_k) {
      [[unroll]] for (uint j = 0; j < end; j++) {
        vec4 rows[4 * SUB_C4];
        [[unroll]] for (uint r = 0; r < 4; r++)
          [[unroll]] for (uint c = 0; c < SUB_C4; c++) rows[r * SUB_C4 + c] = R[(4 * j + r) * V4 + c0 + c];
        [[unroll]] for (uint i = 0; i < SUB_T; i++) {
          vec4 a = AHEAD ? kept[i * C4 + j] : prepared[record + (i0 + i) * C4 + j];
          [[unroll]] for (uint c = 0; c < SUB_C4; c++) u[i * SUB_C4 + c] += FOUR(a, rows, c);
        }
      }
    }
    if (makes_k) {
      [[unroll]] for (uint i = 0; i < SUB_T; i++)
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) U[(i0 + i) * V4 + c0 + c] = u[i * SUB_C4 + c];
    }
    barrier();
    if (AHEAD && t0 + TOKENS < s.T) {
      part next = part_at(s, t0 + TOKENS, chunk + 1, head, key_head, column0);
      fetch(next, lane, batch);
      fetch_v(next, i0, c0, columns, v);
      fade = fetch_fade(next, lane);
    }

    // O = ... + P V'
    if (GROUPS == 1) end = min(((q0 + SUB_Q) * N + 3) / 4, C4);
    if (makes_q) {
      [[unroll]] for (uint j = 0; j < end; j++) {
        vec4 rows[4 * SUB_C4];
        [[unroll]] for (uint r = 0; r < 4; r++)
          [[unroll]] for (uint c = 0; c < SUB_C4; c++) rows[r * SUB_C4 + c] = U[(4 * j + r) * V4 + c0 + c];
        [[unroll]] for (uint i = 0; i < SUB_Q; i++) {
          vec4 a = AHEAD ? kept[i * C4 + j] : prepared[record + (C + q0 + i) * C4 + j];
          [[unroll]] for (uint c = 0; c < SUB_C4; c++) y[i * SUB_C4 + c] += FOUR(a, rows, c);
        }
      }
    }
    [[unroll]] for (uint i = 0; i < SUB_Q; i++) {
      uint to = (s.row + t0 + q0 + i) * args.o_stride + head * args.Dv + column0;
      if (makes_q && q0 + i < count) {
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) store4(to, (c0 + c) * 4, columns, y[i * SUB_C4 + c]);
      }
    }

    // S <- e^Gn S + (e^(Gn - G) * K)^T V'
    float decay = fade_in(C - 1);
    for (uint job = lane; job < ROWS / SUB_K * ACROSS; job += gl_WorkGroupSize.x) {
      uint d0 = job / ACROSS * SUB_K, c1 = job % ACROSS * SUB_C4;
      vec4 sums[SUB_K * SUB_C4];
      [[unroll]] for (uint d = 0; d < SUB_K; d++)
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) sums[d * SUB_C4 + c] = vec4(0.0);
      for (uint t = 0; t < C; t++) { // V' is 0 past the end
        float weight = fade_out(t);
        vec4 row[SUB_C4];
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) row[c] = weight * U[t * V4 + c1 + c];
        [[unroll]] for (uint d = 0; d < SUB_K4; d++) {
          vec4 k = tile[t * PITCH + d0 / 4 + d];
          [[unroll]] for (uint r = 0; r < 4; r++)
            [[unroll]] for (uint c = 0; c < SUB_C4; c++) sums[(4 * d + r) * SUB_C4 + c] += k[r] * row[c];
        }
      }
      [[unroll]] for (uint d = 0; d < SUB_K; d++)
        [[unroll]] for (uint c = 0; c < SUB_C4; c++) {
          uint at = (d0 + d) * V4 + c1 + c;
          S[at] = decay * S[at] + sums[d * SUB_C4 + c];
        }
    }
    barrier();
  }
  store_state(lane, state_at, columns);
}
