// delta_matrix_stage.glsl: constants and memory accesses of both forms of delta_matrix_scan. For all subgroups it
// stages the chunk's K and Q, Tm and P, and fades. Each computing subgroup loads the values and stores the outputs of
// its own columns. Fetched data stays in registers until shared memory has room for it.
#include "delta_matrix_scan.h"
layout(local_size_x_id = DELTA_MATRIX_SCAN_SPEC_LANES) in;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_C) const uint C = 16;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_COMPUTERS) const uint COMPUTERS = 4;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_TILES) const uint TILES = 2;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_STAGERS) const uint STAGERS = 0;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_UNIT_K) const uint UNIT_K = 8;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_UNIT_V) const uint UNIT_V = 8;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_UNIT_O) const uint UNIT_O = 8;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_EDGES) const uint EDGES = 0;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_MODE) const uint MODE = DELTA_MATRIX_WHOLE;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_R) const uint R = 1;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_D) const uint D = 128;
layout(constant_id = DELTA_MATRIX_SCAN_SPEC_AHEAD) const uint AHEAD = 0;
const bool KEY_EDGES = (EDGES & DELTA_MATRIX_EDGE_KEYS) != 0, COLUMN_EDGES = (EDGES & DELTA_MATRIX_EDGE_COLUMNS) != 0;
#define QKV_BINDING DELTA_MATRIX_SCAN_QKV
#include "delta_matrix_load.glsl"
#define O_BINDING DELTA_MATRIX_SCAN_O
#define O_ACCESS restrict writeonly
#include "delta_matrix_output.glsl"
layout(set = 0, binding = DELTA_MATRIX_SCAN_PREPARED) restrict readonly buffer prepared_block { uvec4 prepared[]; };
layout(set = 0, binding = DELTA_MATRIX_SCAN_STATE) restrict buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_MATRIX_SCAN_MAPS) writeonly buffer maps_block { vec4 maps[]; };
layout(set = 0, binding = DELTA_MATRIX_SCAN_MAPS) writeonly buffer maps16_block { uvec4 maps16[]; };
layout(set = 0, binding = DELTA_MATRIX_SCAN_REACH) restrict writeonly buffer reach_block { uvec4 reach[]; };
layout(set = 0, binding = DELTA_MATRIX_SCAN_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};

const uint TOKENS = C / (N * R);
const uint QUERIES = DELTA_MATRIX_QUERIES(C, N * R);
const uint RECORD = R > 1 ? HH_MATRIX_RECORD(C, R) : DELTA_MATRIX_RECORD(C, N);
const uint FADES_AT = R > 1 ? HH_MATRIX_FADES(C, R) : DELTA_MATRIX_FADES(C, N);
const uint ALONE = R > 1 ? HH_MATRIX_ALONE(C, R, D) : C;
const uint KEY_ROWS = ALONE == 0 ? TOKENS : C;           // staged rows; ALONE > 0: a row has one block of its key
const uint FACTOR_ROWS = R > 1 ? C + QUERIES : C;        // rows of Tm, or of W
const uint VALUE_ROWS = R > 1 ? QUERIES : C;
const uint WIDTH = TILES * TILE_N; // value columns of a subgroup
const uint COLUMNS = COMPUTERS * WIDTH;
const uint BUFFERS = STAGERS + AHEAD > 0 ? 2 : 1;
const uint SETS = AHEAD == 2 ? 2 : 1; // sets of registers for loads in flight
const uint STAGING = (STAGERS > 0 ? STAGERS : COMPUTERS) * SUBGROUP; // invocations that stage
// 16 bytes each; pitches of rows are odd, which spreads them over banks
const uint K8 = DK / 8, K_PITCH = K8 + 1;
const uint C8 = C / 8, C_PITCH = C8 + 1;
const uint W8 = WIDTH / 8, V_PITCH = COLUMNS / 8 + 1;
const uint FADES = (2 * C + QUERIES) / 4;
const uint K_EACH = (KEY_ROWS * K8 + STAGING - 1) / STAGING, Q_EACH = (QUERIES * K8 + STAGING - 1) / STAGING;
// Loads of a record: the factors and, with AHEAD, the fades after them, since joint loads need fewer registers.
const uint FACTORS = (FACTOR_ROWS + QUERIES) * C8, JOINT = AHEAD > 0 ? FACTORS + FADES : FACTORS;
const uint P_EACH = (JOINT + STAGING - 1) / STAGING, F_EACH = (FADES + STAGING - 1) / STAGING;
const uint V_EACH = (VALUE_ROWS * W8 + SUBGROUP - 1) / SUBGROUP, O_EACH = (QUERIES * W8 + SUBGROUP - 1) / SUBGROUP;
const uint KEYS = (KEY_ROWS + QUERIES) * K_PITCH, PREPARED = (FACTOR_ROWS + QUERIES) * C_PITCH; // of one buffer
shared uvec4 keys[BUFFERS * KEYS];          // K, then Q; f16
shared uvec4 factors[BUFFERS * PREPARED];   // Tm, or W, then P; f16
shared vec4 fades[BUFFERS * FADES];         // as in a record
#ifdef VALUES_TWICE
const uint UNKNOWNS = R > 1 ? C : 0; // rows that become operands through memory: V' replaces V, or lies beside it
#else
const uint UNKNOWNS = 0;
#endif
shared uvec4 values[(UNKNOWNS + VALUE_ROWS) * V_PITCH]; // V, then O; f16
#ifdef FADES_OUT
shared float16_t fades_out[BUFFERS * C]; // fade_out in f16
#endif
// Rows of the state in whole tiles for any args.Dk. Other tiles pass through `corner` one by one.
const uint WHOLE_ROWS = COLUMN_EDGES ? 0 : (EDGES & DELTA_MATRIX_EDGE_ROWS) != 0 ? DK - 16 : DK;
shared float corner[WHOLE_ROWS < DK ? COMPUTERS * TILE_M * TILE_N : 1];
// On lavapipe a subgroup runs in lockstep, and a subgroup barrier would stop the whole workgroup.
void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

fetched8 next_k[SETS][K_EACH], next_q[SETS][Q_EACH], next_v[SETS][V_EACH];
uvec4 next_p[SETS][P_EACH];
vec4 next_fade[F_EACH];
sequence seq;
uint head, column0; // column0: the subgroup's first column
bool first;         // it is the first segment of its sequence
uint map_at, DVP;   // the segment's map
uint stager, computer, lane;
uint k_at, q_at, v_at, o_at; // offsets of token 0 of the sequence

// Rows past the end of the sequence, or of the chunk's tokens, have any row's data: Tm and P are 0 there, and no other
// result of theirs is kept. A condition around every load would cost more than the loads.
uint key_row(uint t0, uint r) {
  uint t = R > 1 ? r % TOKENS : r / N;
  return k_at + min(t0 + t, seq.T - 1) * args.qkv_stride + r % N * args.H * args.pitch;
}
uint query_row(uint t0, uint r) { return q_at + min(t0 + r, seq.T - 1) * args.qkv_stride; }
uint value_row(uint t0, uint r) {
  return v_at + min(t0 + r / N, seq.T - 1) * args.qkv_stride + r % N * args.Hv * args.Dv;
}

// Keeps those of elements d ... d + 7 that are in block b; zeros for the others.
uvec4 only_block(uvec4 x, uint d, uint b) {
  [[unroll]] for (uint i = 0; i < 4; i++) {
    x[i] &= (d + 2 * i) / D == b ? 0xffffffff : 0xffff0000;
    x[i] &= (d + 2 * i + 1) / D == b ? 0xffffffff : 0xffff;
  }
  return x;
}

void fetch_keys(uint set, uint t0) {
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * STAGING + stager;
    if (KEY_ROWS * K8 % STAGING == 0 || i < KEY_ROWS * K8)
      next_k[set][n] = fetch8_of(key_row(t0, i / K8), i % K8 * 8, args.pitch, UNIT_K, KEY_EDGES);
  }
  [[unroll]] for (uint n = 0; n < Q_EACH; n++) {
    uint i = n * STAGING + stager;
    if (QUERIES * K8 % STAGING == 0 || i < QUERIES * K8)
      next_q[set][n] = fetch8_of(query_row(t0, i / K8), i % K8 * 8, args.pitch, UNIT_K, KEY_EDGES);
  }
}

// t0: first token of the fetched chunk.
void put_keys(uint set, uint turn, uint t0) {
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * STAGING + stager, r = i / K8, c = i % K8;
    if (KEY_ROWS * K8 % STAGING == 0 || i < KEY_ROWS * K8) {
      uvec4 x = finish8_of(next_k[set][n], key_row(t0, r), c * 8, args.pitch, UNIT_K, KEY_EDGES);
      keys[turn * KEYS + r * K_PITCH + c] = R > 1 && ALONE > 0 ? only_block(x, c * 8, r / TOKENS) : x;
    }
  }
  [[unroll]] for (uint n = 0; n < Q_EACH; n++) {
    uint i = n * STAGING + stager, r = i / K8, c = i % K8;
    if (QUERIES * K8 % STAGING == 0 || i < QUERIES * K8)
      keys[turn * KEYS + (KEY_ROWS + r) * K_PITCH + c] =
          finish8_of(next_q[set][n], query_row(t0, r), c * 8, args.pitch, UNIT_K, KEY_EDGES);
  }
}

void fetch_record(uint set, uint record) {
  [[unroll]] for (uint n = 0; n < P_EACH; n++) {
    uint i = n * STAGING + stager;
    if (JOINT % STAGING == 0 || i < JOINT) next_p[set][n] = prepared[record + i];
  }
  [[unroll]] for (uint n = 0; AHEAD == 0 && n < F_EACH; n++) {
    uint i = n * STAGING + stager;
    if (FADES % STAGING == 0 || i < FADES) next_fade[n] = uintBitsToFloat(prepared[record + FADES_AT + i]);
  }
}

// A branch selects the destination: computing it would keep registers occupied, and NVIDIA's compiler would spill.
void put_record(uint set, uint turn) {
  [[unroll]] for (uint n = 0; n < P_EACH; n++) {
    uint i = n * STAGING + stager, f = i - FACTORS;
    if ((AHEAD == 0 && FACTORS % STAGING == 0) || i < FACTORS)
      factors[turn * PREPARED + i / C8 * C_PITCH + i % C8] = next_p[set][n];
    else if (AHEAD > 0 && f < FADES)
      fades[turn * FADES + f] = uintBitsToFloat(next_p[set][n]);
  }
  [[unroll]] for (uint n = 0; AHEAD == 0 && n < F_EACH; n++) {
    uint i = n * STAGING + stager;
    if (FADES % STAGING == 0 || i < FADES) fades[turn * FADES + i] = next_fade[n];
#ifdef FADES_OUT
    if (i >= C / 4 && i < C / 2)
      [[unroll]] for (uint k = 0; k < 4; k++) fades_out[turn * C + 4 * i - C + k] = float16_t(next_fade[n][k]);
#endif
  }
}

void fetch_values(uint set, uint t0) {
  [[unroll]] for (uint n = 0; n < V_EACH; n++) {
    uint i = n * SUBGROUP + lane;
    if (VALUE_ROWS * W8 % SUBGROUP == 0 || i < VALUE_ROWS * W8)
      next_v[set][n] = fetch8_of(value_row(t0, i / W8), column0 + i % W8 * 8, args.Dv, UNIT_V, COLUMN_EDGES);
  }
}

void put_values(uint set, uint t0) {
  [[unroll]] for (uint n = 0; n < V_EACH; n++) {
    uint i = n * SUBGROUP + lane, r = i / W8, c = i % W8;
    if (VALUE_ROWS * W8 % SUBGROUP == 0 || i < VALUE_ROWS * W8) {
      uvec4 x = finish8_of(next_v[set][n], value_row(t0, r), column0 + c * 8, args.Dv, UNIT_V, COLUMN_EDGES);
      values[(UNKNOWNS + r) * V_PITCH + computer * W8 + c] = x;
    }
  }
}

// Stores the subgroup's outputs of tokens t0 ... from `values`; identity: stores reach.
void store_outputs(uint t0, const bool identity) {
  const bool whole = t0 + QUERIES <= seq.T && QUERIES == TOKENS;
  [[unroll]] for (uint n = 0; n < O_EACH; n++) {
    uint i = n * SUBGROUP + lane, r = i / W8, c = column0 + i % W8 * 8, t = t0 + r;
    if ((QUERIES * W8 % SUBGROUP == 0 || i < QUERIES * W8) && (whole || (t < seq.T && r < TOKENS))) {
      uvec4 x = values[(UNKNOWNS + r) * V_PITCH + computer * W8 + i % W8];
      if (identity) {
        if (c < DK) reach[((seq.row + t) * args.Hv + head) * K8 + c / 8] = x;
      } else if (!COLUMN_EDGES || c < args.Dv) {
        put8(o_at + t * args.o_stride + c, args.Dv - c, UNIT_O, x);
      }
    }
  }
}

// Finds the data of this workgroup and returns the record of its first chunk. seq becomes the segment. identity: the
// columns belong to M and reach, not to values.
uint begin(out bool identity) {
  lane = gl_SubgroupInvocationID;
  computer = gl_SubgroupID;
  stager = gl_LocalInvocationIndex - (STAGERS > 0 ? COMPUTERS * SUBGROUP : 0);
  head = gl_WorkGroupID.y;
  const uint z = gl_WorkGroupID.z / args.segments, segment = gl_WorkGroupID.z % args.segments;
  const uint across = (args.Dv + COLUMNS - 1) / COLUMNS; // workgroups
  seq = sequences[z];
  uint chunk = 0;
  for (uint i = 0; i < z; i++) chunk += (sequences[i].T + TOKENS - 1) / TOKENS;
  identity = MODE == DELTA_MATRIX_SEGMENTS && gl_WorkGroupID.x >= across;
  column0 = (gl_WorkGroupID.x - (identity ? across : 0)) * COLUMNS + computer * WIDTH;
  first = segment == 0;
  if (MODE == DELTA_MATRIX_SEGMENTS) {
    uint chunks = (seq.T + TOKENS - 1) / TOKENS, each = (chunks + args.segments - 1) / args.segments;
    uint begins = min(segment * each * TOKENS, seq.T), ends = min(begins + each * TOKENS, seq.T);
    chunk += segment * each;
    seq.row += begins;
    seq.T = ends - begins;
    if (identity && first) seq.T = 0; // the state before it is known
    DVP = across * COLUMNS;
    map_at = (gl_WorkGroupID.z * args.Hv + head) * DELTA_MATRIX_MAP(DK, DVP);
  }
  uint key_head = head / args.share % args.H, row = seq.row * args.qkv_stride;
  q_at = row + key_head * args.pitch;
  k_at = q_at + args.H * args.pitch;
  v_at = row + (1 + N) * args.H * args.pitch + head * args.Dv;
  o_at = seq.row * args.o_stride + head * args.Dv;
  return (chunk * args.Hv + head) * RECORD;
}

#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
// With blocks: whether J steps from j on and X columns of a key from x on have a block in common, which holds the
// steps' key.
#define HOLDS(j, J, x, X) (R == 1 || (((j) + (J) - 1) / TOKENS >= (x) / D && (j) / TOKENS <= ((x) + (X) - 1) / D))
#define KEY_ROW(j) (ALONE == 0 ? (j) % TOKENS : (j))
#define ROWS gl_CooperativeMatrixLayoutRowMajor
#define COLS gl_CooperativeMatrixLayoutColumnMajor

// A tile of the identity, written through the memory of keys. With segments TILE_M equals TILE_N.
SUM unit_tile() {
  for (uint i = gl_LocalInvocationIndex; i < TILE_N * TILE_N / 4; i += gl_WorkGroupSize.x) {
    const uvec4 columns = i % (TILE_N / 4) * 4 + uvec4(0, 1, 2, 3);
    keys[i] = floatBitsToUint(vec4(equal(columns, uvec4(i / (TILE_N / 4)))));
  }
  barrier();
  SUM unit;
  coopMatLoad(unit, keys, 0, TILE_N / 4, ROWS);
  barrier();
  return unit;
}
