#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The sequential part of the chunkwise Head-in-Head rule (docs/mixers.md): chunks in order, with S in shared memory.
// With n a token of the chunk and a, b blocks of D rows:
//   Y_b = K_b S_b, Z = scale e^G sum_b Q_b S_b      Y[(n,a)] <- v_n - sum_b (e^G_n M^n_ab) Y_b[n]
//   V' = Tm Y                                       O = Z + P V'
//   S_b <- e^Gn S_b + (e^(Gn - G) * K_b)^T V'_b
// Tm, P, e^G M, e^G and e^(Gn - G) come from hh_chunk_prepare (hh_chunk.h).
// qkv (T, 2 H R D + Hv Dv), state (slots, Hv, R D, Dv), o (T, Hv Dv). Workgroups (ceil(Dv / COLUMNS), Hv, B): COLUMNS
// value columns of one head of one sequence. Every line above is a round of small jobs, with 4 x 4 elements each if
// there are enough; a barrier separates rounds, four per chunk. Any D, R, Dv, T; C a multiple of 4.
#include "hh_chunk_scan.h"
layout(local_size_x_id = HH_CHUNK_SCAN_SPEC_LANES) in;
layout(constant_id = HH_CHUNK_SCAN_SPEC_C) const uint C = 16;
layout(constant_id = HH_CHUNK_SCAN_SPEC_D) const uint D = 16;
layout(constant_id = HH_CHUNK_SCAN_SPEC_R) const uint R = 4;
layout(constant_id = HH_CHUNK_SCAN_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = HH_CHUNK_SCAN_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = HH_CHUNK_SCAN_O) writeonly buffer o_block { float o[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_O) writeonly buffer o4_block { vec4 o4[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_PREPARED) readonly buffer prepared_block { float prepared[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_PREPARED) readonly buffer prepared4_block { vec4 prepared4[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_STATE) buffer state4_block { vec4 state4[]; };
layout(set = 0, binding = HH_CHUNK_SCAN_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

const uint DK = R * D;
const uint D4 = (D + 3) / 4;
const uint ROWS = R * D4 * 4; // rows of S, every block with zeros below D
const uint CR = C * R;
const uint V4 = COLUMNS / 4; // vec4 of a row of S, Y, V'
shared vec4 S[ROWS * V4];
shared vec4 Y[CR * V4];
shared vec4 U[CR * V4]; // Q_b S_b, then V'
shared vec4 Z[C * V4];

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
  else [[unroll]]
    for (uint j = 0; j < 4; j++)
      if (d + j < n) o[i + d + j] = value[j];
}

// The row of the head that row `row` of S holds; DK and more: zeros.
uint head_row(uint row) { return row % (4 * D4) < D ? row / (4 * D4) * D + row % (4 * D4) : DK; }

void load_state(uint lane, uint from, uint columns) {
  for (uint i = lane; i < ROWS * V4; i += gl_WorkGroupSize.x) {
    uint row = head_row(i / V4), c = i % V4 * 4, at = from + row * args.Dv + c;
    vec4 value = vec4(0.0);
    if (row < DK && c < columns) {
      if (ALIGNED != 0)
        value = state4[at / 4];
      else [[unroll]]
        for (uint j = 0; j < 4; j++)
          if (c + j < columns) value[j] = state[at + j];
    }
    S[i] = value;
  }
  barrier();
}

void store_state(uint lane, uint to, uint columns) {
  for (uint i = lane; i < ROWS * V4; i += gl_WorkGroupSize.x) {
    uint row = head_row(i / V4), c = i % V4 * 4, at = to + row * args.Dv + c;
    vec4 value = S[i];
    if (row >= DK || c >= columns) continue;
    if (ALIGNED != 0)
      state4[at / 4] = value;
    else [[unroll]]
      for (uint j = 0; j < 4; j++)
        if (c + j < columns) state[at + j] = value[j];
  }
}

// Y_b = K_b S_b and U_b = Q_b S_b: a job is 4 tokens of one block. Tokens past the end repeat the last one.
void read_state(uint lane, uint q_at, uint k_at, uint count) {
  for (uint job = lane; job < C / 4 * R * V4; job += gl_WorkGroupSize.x) {
    uint c = job % V4, b = job / V4 % R, n0 = job / V4 / R * 4;
    vec4 kS[4], qS[4];
    [[unroll]] for (uint i = 0; i < 4; i++) kS[i] = qS[i] = vec4(0.0);
    for (uint d = 0; d < D4; d++) {
      vec4 rows[4];
      [[unroll]] for (uint e = 0; e < 4; e++) rows[e] = S[((b * D4 + d) * 4 + e) * V4 + c];
      [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = min(n0 + i, count - 1) * args.qkv_stride + b * D;
        vec4 k = load4(k_at + at, 4 * d, D), q = load4(q_at + at, 4 * d, D);
        [[unroll]] for (uint e = 0; e < 4; e++) {
          kS[i] += k[e] * rows[e];
          qS[i] += q[e] * rows[e];
        }
      }
    }
    [[unroll]] for (uint i = 0; i < 4; i++) {
      Y[((n0 + i) * R + b) * V4 + c] = kS[i];
      U[((n0 + i) * R + b) * V4 + c] = qS[i];
    }
  }
  barrier();
}

// Y[(n,a)] = v_n - sum_b (e^G_n M^n_ab) Y_b[n], and Z: a job is one token, which no other invocation reads meanwhile.
void mix_blocks(uint lane, uint v_at, uint columns, uint count, uint record) {
  for (uint job = lane; job < C * V4; job += gl_WorkGroupSize.x) {
    uint c = job % V4, n = job / V4, from = record + HH_CHUNK_MASKS(C, R) + n * R * R;
    vec4 y[R], z = vec4(0.0), v = n < count ? load4(v_at + n * args.qkv_stride, 4 * c, columns) : vec4(0.0);
    [[unroll]] for (uint b = 0; b < R; b++) {
      y[b] = Y[(n * R + b) * V4 + c];
      z += U[(n * R + b) * V4 + c];
    }
    [[unroll]] for (uint a = 0; a < R; a++) {
      vec4 sum = v;
      [[unroll]] for (uint b = 0; b < R; b++) sum -= prepared[from + a * R + b] * y[b];
      Y[(n * R + a) * V4 + c] = sum;
    }
    Z[job] = args.scale * prepared[record + HH_CHUNK_FADE(C, R) + n] * z;
  }
  barrier();
}

// V' = Tm Y: a job is four rows; Tm is lower triangular.
void solve(uint lane, uint record) {
  for (uint job = lane; job < CR / 4 * V4; job += gl_WorkGroupSize.x) {
    uint c = job % V4, i0 = job / V4 * 4;
    vec4 sums[4];
    [[unroll]] for (uint i = 0; i < 4; i++) sums[i] = vec4(0.0);
    for (uint j = 0; j < i0 / 4 + 1; j++) {
      vec4 rows[4];
      [[unroll]] for (uint e = 0; e < 4; e++) rows[e] = Y[(4 * j + e) * V4 + c];
      [[unroll]] for (uint i = 0; i < 4; i++) {
        vec4 x = prepared4[(record + (i0 + i) * CR) / 4 + j];
        [[unroll]] for (uint e = 0; e < 4; e++) sums[i] += x[e] * rows[e];
      }
    }
    [[unroll]] for (uint i = 0; i < 4; i++) U[(i0 + i) * V4 + c] = sums[i];
  }
  barrier();
}

// O = Z + P V': a job is one token.
void write_outputs(uint lane, uint o_at, uint columns, uint count, uint record) {
  for (uint job = lane; job < count * V4; job += gl_WorkGroupSize.x) {
    uint c = job % V4, n = job / V4, from = (record + HH_CHUNK_P(C, R) + n * CR) / 4;
    vec4 sum = Z[job];
    for (uint j = 0; j < ((n + 1) * R + 3) / 4; j++) {
      vec4 x = prepared4[from + j];
      [[unroll]] for (uint e = 0; e < 4; e++) sum += x[e] * U[(4 * j + e) * V4 + c];
    }
    store4(o_at + n * args.o_stride, 4 * c, columns, sum);
  }
}

// S_b <- e^Gn S_b + (e^(Gn - G) * K_b)^T V'_b: a job is four rows.
void write_state(uint lane, uint k_at, uint count, uint record) {
  float decay = prepared[record + HH_CHUNK_FADE(C, R) + C - 1];
  for (uint job = lane; job < ROWS / 4 * V4; job += gl_WorkGroupSize.x) {
    uint c = job % V4, row4 = job / V4, b = row4 / D4, at = k_at + b * D, d = row4 % D4 * 4;
    vec4 sums[4];
    [[unroll]] for (uint e = 0; e < 4; e++) sums[e] = decay * S[(4 * row4 + e) * V4 + c];
    for (uint n = 0; n < count; n++) {
      vec4 k = prepared[record + HH_CHUNK_FADE(C, R) + C + n] * load4(at + n * args.qkv_stride, d, D);
      vec4 u = U[(n * R + b) * V4 + c];
      [[unroll]] for (uint e = 0; e < 4; e++) sums[e] += k[e] * u;
    }
    [[unroll]] for (uint e = 0; e < 4; e++) S[(4 * row4 + e) * V4 + c] = sums[e];
  }
  barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  uint head = gl_WorkGroupID.y, key_head = head / (args.Hv / args.H);
  uint column0 = gl_WorkGroupID.x * COLUMNS, columns = min(COLUMNS, args.Dv - column0);
  uint state_at = s.slot * args.state_stride + head * DK * args.Dv + column0;
  uint chunk = 0; // index of this sequence's first chunk
  for (uint z = 0; z < gl_WorkGroupID.z; z++) chunk += (sequences[z].T + C - 1) / C;
  load_state(lane, state_at, columns);
  for (uint t0 = 0; t0 < s.T; t0 += C, chunk++) {
    uint count = min(C, s.T - t0);
    uint qkv_at = (s.row + t0) * args.qkv_stride;
    uint q_at = qkv_at + key_head * DK, k_at = q_at + args.H * DK;
    uint record = (chunk * args.Hv + head) * HH_CHUNK_RECORD(C, R);
    read_state(lane, q_at, k_at, count);
    mix_blocks(lane, qkv_at + 2 * args.H * DK + head * args.Dv + column0, columns, count, record);
    solve(lane, record);
    write_outputs(lane, (s.row + t0) * args.o_stride + head * args.Dv + column0, columns, count, record);
    write_state(lane, k_at, count, record);
  }
  store_state(lane, state_at, columns);
}
