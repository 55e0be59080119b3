// rule_matrix_scan.glsl: what rule_matrix_states and rule_matrix_reverse share: constants, staging, and the state.
//
// A workgroup walks over the chunks of one head of one sequence. Each of its subgroups owns WIDTH value columns, and
// holds its part of the state transposed (WIDTH, DK) in f32 accumulators. So the state, and what it is multiplied into,
// are always left operands. With CONVERSIONS an accumulator becomes a left operand in registers, else through the
// subgroup's own part of `copy`. Keys, queries and the chunk's record are staged for all subgroups, one chunk ahead.
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_LANES) const uint LANES = 128;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_DK) const uint DK = 128;
layout(constant_id = RULE_MATRIX_SPEC_DV) const uint DV = 128;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(constant_id = RULE_MATRIX_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = RULE_MATRIX_SPEC_TILE) const uint TILE = 16;
layout(constant_id = RULE_MATRIX_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
layout(constant_id = RULE_MATRIX_SPEC_WIDTH) const uint WIDTH = 16;
layout(set = 0, binding = RULE_MATRIX_ROWS) restrict buffer rows_block { uvec4 rows[]; };
layout(set = 0, binding = RULE_MATRIX_STATES) restrict writeonly buffer states_block { uvec4 states[]; };
layout(set = 0, binding = RULE_MATRIX_PREPARED) restrict readonly buffer prepared_block { uvec4 prepared[]; };
#include "rule_matrix_sequences.glsl"

#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define BY_ROWS gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMNS gl_CooperativeMatrixLayoutColumnMajor

const uint C = RULE_MATRIX_CHUNK, SUBGROUPS = LANES / SUBGROUP;
const uint T8 = TILE / 8; // a tile's row in units of 16 bytes
const uint K8 = DK / 8, V8 = DV / 8, W8 = WIDTH / 8;
const uint TILES_K = DK / TILE, TILES_C = C / TILE, TILES = WIDTH / TILE; // of keys, of steps, of value columns
const uint RECORD = DELTA_MATRIX_RECORD(C, 1), FADES_AT = DELTA_MATRIX_FADES(C, 1);
// Staged: keys and, in reverse, queries; Tm^T and P; fades. Pitches of rows are odd, which spreads them over banks.
const uint K_PITCH = K8 + 1, C_PITCH = 3, W_PITCH = W8 + 1;
const uint STAGED_ROWS = KEY_SETS * C;
const uint KEYS = STAGED_ROWS * K_PITCH, FACTORS = 2 * C * C_PITCH, FADES = 3 * C / 4;
const uint OWN = WIDTH * C_PITCH; // of a subgroup's tile (steps, WIDTH), or (WIDTH, steps), which is not smaller
shared uvec4 keys[2 * KEYS];
shared uvec4 factors[2 * FACTORS];
shared vec4 fades[2 * FADES];
shared uvec4 own[2 * SUBGROUPS * OWN]; // f16: inputs, then outputs; and operands (WIDTH, steps)
#ifndef CONVERSIONS
const uint S_PITCH = K_PITCH;
shared uvec4 copy[SUBGROUPS * WIDTH * S_PITCH]; // f16: the state
#endif
shared float corner[SUBGROUPS * TILE * TILE];

uint lane, mine, stager; // mine: the subgroup
uint head, column0;      // the subgroup's first column
bool inside;             // it has columns
uint row8, key_head, start, chunks; // start: the sequence's first step in rows
uint values_at, do_at, z_at;        // of the subgroup's columns in a row, in units of 16 bytes
sequence seq;

void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

void begin() {
  lane = gl_SubgroupInvocationID;
  mine = gl_SubgroupID;
  stager = gl_LocalInvocationIndex;
  head = gl_WorkGroupID.y;
  seq = sequences[gl_WorkGroupID.z];
  start = first_block(gl_WorkGroupID.z) * BLOCK;
  chunks = blocks_of(seq) * (BLOCK / C);
  column0 = (gl_WorkGroupID.x * SUBGROUPS + mine) * WIDTH;
  inside = column0 < DV;
  if (!inside) column0 = 0;
  key_head = head / args.share % args.H;
  row8 = RULE_MATRIX_ROW(args.H, args.Hv, DK, DV) / 8;
  values_at = 2 * args.H * K8 + head * V8 + column0 / 8;
  do_at = values_at + args.Hv * V8;
  z_at = do_at + args.Hv * V8;
}

// ---------------------------------------------------------------- staging

const uint K_EACH = (STAGED_ROWS * K8 + LANES - 1) / LANES, R_EACH = (RECORD + LANES - 1) / LANES;
const uint O_EACH = (C * W8 + SUBGROUP - 1) / SUBGROUP; // of a tile (steps, WIDTH)
uvec4 next_keys[K_EACH], next_record[R_EACH], next_own[O_EACH];

void fetch(uint chunk, uint from) {
  const uint step = start + chunk * C, record = (step / C * args.Hv + head) * RECORD;
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * LANES + stager, r = i / K8, set = r / C; // K, then Q
    if (STAGED_ROWS * K8 % LANES == 0 || i < STAGED_ROWS * K8)
      next_keys[n] = rows[(step + r % C) * row8 + ((1 - set) * args.H + key_head) * K8 + i % K8];
  }
  [[unroll]] for (uint n = 0; n < R_EACH; n++) {
    uint i = n * LANES + stager;
    if (RECORD % LANES == 0 || i < RECORD) next_record[n] = prepared[record + i];
  }
  [[unroll]] for (uint n = 0; n < O_EACH; n++) {
    uint i = n * SUBGROUP + lane;
    if (C * W8 % SUBGROUP == 0 || i < C * W8) next_own[n] = rows[(step + i / W8) * row8 + from + i % W8];
  }
}

void put(uint turn) {
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * LANES + stager;
    if (STAGED_ROWS * K8 % LANES == 0 || i < STAGED_ROWS * K8)
      keys[turn * KEYS + i / K8 * K_PITCH + i % K8] = next_keys[n];
  }
  [[unroll]] for (uint n = 0; n < R_EACH; n++) {
    uint i = n * LANES + stager;
    if (i < FADES_AT)
      factors[turn * FACTORS + i / 2 * C_PITCH + i % 2] = next_record[n];
    else if (i < RECORD)
      fades[turn * FADES + i - FADES_AT] = uintBitsToFloat(next_record[n]);
  }
}

const uint INPUTS = 0, OPERANDS = SUBGROUPS * OWN;

void put_own() {
  [[unroll]] for (uint n = 0; n < O_EACH; n++) {
    uint i = n * SUBGROUP + lane;
    if (C * W8 % SUBGROUP == 0 || i < C * W8) own[INPUTS + mine * OWN + i / W8 * W_PITCH + i % W8] = next_own[n];
  }
}

// Writes the tile in `own` to rows. It comes late, so that nobody waits for the tile to be stored.
void write_own(uint chunk, uint to) {
  subgroup_barrier();
  [[unroll]] for (uint n = 0; n < O_EACH; n++) {
    uint i = n * SUBGROUP + lane;
    if (inside && (C * W8 % SUBGROUP == 0 || i < C * W8))
      rows[(start + chunk * C + i / W8) * row8 + to + i % W8] = own[INPUTS + mine * OWN + i / W8 * W_PITCH + i % W8];
  }
  subgroup_barrier();
}

// ---------------------------------------------------------------- operands

// Tiles (WIDTH, steps) as left operands.
void operands(SUM x[TILES_C][TILES], out LEFT y[TILES_C][TILES]) {
#ifdef CONVERSIONS
  [[unroll]] for (uint j = 0; j < TILES_C; j++)
    [[unroll]] for (uint r = 0; r < TILES; r++) y[j][r] = LEFT(x[j][r]);
#else
  const uint at = OPERANDS + mine * OWN;
  subgroup_barrier();
  [[unroll]] for (uint j = 0; j < TILES_C; j++)
    [[unroll]] for (uint r = 0; r < TILES; r++)
      coopMatStore(SUM16(x[j][r]), own, at + r * TILE * C_PITCH + j * T8, C_PITCH, BY_ROWS);
  subgroup_barrier();
  [[unroll]] for (uint j = 0; j < TILES_C; j++)
    [[unroll]] for (uint r = 0; r < TILES; r++)
      coopMatLoad(y[j][r], own, at + r * TILE * C_PITCH + j * T8, C_PITCH, BY_ROWS);
#endif
}

// The state as left operands, row x of its tiles.
void state_operand(SUM S[TILES_K][TILES], uint x, out LEFT s[TILES]) {
#ifdef CONVERSIONS
  [[unroll]] for (uint r = 0; r < TILES; r++) s[r] = LEFT(S[x][r]);
#else
  [[unroll]] for (uint r = 0; r < TILES; r++)
    coopMatLoad(s[r], copy, (mine * WIDTH + r * TILE) * S_PITCH + x * T8, S_PITCH, BY_ROWS);
#endif
}

void copy_state(SUM S[TILES_K][TILES]) {
#ifndef CONVERSIONS
  subgroup_barrier();
  [[unroll]] for (uint x = 0; x < TILES_K; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++)
      coopMatStore(SUM16(S[x][r]), copy, (mine * WIDTH + r * TILE) * S_PITCH + x * T8, S_PITCH, BY_ROWS);
  subgroup_barrier();
#endif
}

// state^T K^T, (WIDTH, steps)
void times_keys(SUM S[TILES_K][TILES], uint turn, out SUM U[TILES_C][TILES]) {
  SUM odd[TILES_C][TILES]; // two chains of products, for each waits for the one before
  [[unroll]] for (uint j = 0; j < TILES_C; j++)
    [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = odd[j][r] = SUM(0.0);
  [[unroll]] for (uint x = 0; x < TILES_K; x++) {
    LEFT s[TILES];
    state_operand(S, x, s);
    [[unroll]] for (uint j = 0; j < TILES_C; j++) {
      RIGHT k;
      coopMatLoad(k, keys, turn * KEYS + j * TILE * K_PITCH + x * T8, K_PITCH, BY_COLUMNS);
      [[unroll]] for (uint r = 0; r < TILES; r++)
        if (x % 2 == 0)
          U[j][r] = coopMatMulAdd(s[r], k, U[j][r]);
        else
          odd[j][r] = coopMatMulAdd(s[r], k, odd[j][r]);
    }
  }
  [[unroll]] for (uint j = 0; j < TILES_C; j++)
    [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = U[j][r] + odd[j][r];
}

// One row of fades in all rows of a tile. set 0: to the step, 1: from the step to the end, 2: of the query.
SUM fade(uint turn, uint set, uint j) {
  SUM f;
  coopMatLoad(f, fades, turn * FADES + (set * C + j * TILE) / 4, 0, BY_ROWS);
  return f;
}

// ---------------------------------------------------------------- the state in memory

// Keeps the state for the block: f16, (DK, DV). which: 0 S, 1 dS.
void keep_state(SUM S[TILES_K][TILES], uint block, uint which) {
  const uint to = (((block * args.Hv + head) * 2 + which) * DK * DV + column0 * 16) / 8, at = OPERANDS + mine * OWN;
  [[unroll]] for (uint x0 = 0; x0 < DK / 16; x0++) {
    subgroup_barrier();
    [[unroll]] for (uint x = 0; x < 16 / TILE; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++)
        coopMatStore(SUM16(S[x0 * (16 / TILE) + x][r]), own, at + x * TILE * W_PITCH + r * T8, W_PITCH, BY_COLUMNS);
    subgroup_barrier();
    [[unroll]] for (uint n = 0; n < O_EACH; n++) {
      uint i = n * SUBGROUP + lane;
      if (inside && i < 16 * W8) states[to + x0 * 16 * V8 + i] = own[at + i / 2 % 16 * W_PITCH + i / 32 * 2 + i % 2];
    }
  }
  subgroup_barrier();
}

// A tile of a call's state (Dk, Dv), times a factor; zeros outside, or if it is not `there`. A condition around the load
// would make NVIDIA's compiler keep the state in local memory.
#define LOAD_TILE(name, buffer)                                                                                        \
  void name(out SUM S, uint at, uint x, uint r, bool there, float by) {                                                \
    const uint from = mine * TILE * TILE;                                                                              \
    subgroup_barrier();                                                                                                \
    [[unroll]] for (uint n = 0; n < TILE * TILE / SUBGROUP; n++) {                                                     \
      const uint i = n * SUBGROUP + lane, d = x * TILE + i / TILE, c = column0 + r * TILE + i % TILE;                  \
      corner[from + i] = there && inside && d < args.Dk && c < args.Dv ? by * buffer[at + d * args.Dv + c] : 0.0;      \
    }                                                                                                                  \
    subgroup_barrier();                                                                                                \
    coopMatLoad(S, corner, from, TILE, BY_COLUMNS);                                                                    \
  }
