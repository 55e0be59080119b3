// rule_matrix.h: contract of the kernels of the delta rule's backward pass by chunks on cooperative matrices (coopmat).
//
// The call becomes a sequence of steps of one update each (householder step m of token t is step t N + m; its q and dO
// are zeros unless it is the token's last, its g is zero unless it is the first). Each sequence is padded with empty
// steps to a multiple of BLOCK, so that no kernel between the first and the last has edges. In this order:
//   rule_matrix_gates    beta and g of every step
//   rule_matrix_pack     q, k, v and dO as f16; dO times a power of two for each head and block, for it may be large
//   delta_matrix_prepare Tm, P and fades of chunks of 16 (delta_matrix.h)
//   rule_matrix_states   forward again: S before each block; V' replaces V
//   rule_matrix_reverse  from last to first: Z, and the gradient dS of the state after each block
//   rule_matrix_grads    for all blocks at once: gradients of q, k, v, beta and g
//   rule_matrix_small    the gradient of beta where it is below RULE_MATRIX_SMALL_BETA
// V' and Z of a step do not depend on where chunks begin: V' is beta (v - S~^T k), and Z the gradient of v. So the
// kernels that walk over chunks take short ones, and the last one takes long ones.
//
// rows (steps, ROW) f16, in this order: q (H, DK), k (H, DK), v or V' (Hv, DV), dO (Hv, DV), Z (Hv, DV)
// states (blocks, Hv, 2, DK / 16, DV / 16, 16, 16) f16: S, then dS, each in tiles of 16 x 16
// blocks (blocks) uvec4: of the block's sequence the first row, T (0: no sequence has the block), its first block and slot
// gates f32: beta (steps, Hv), at g_at g (steps, Hv), at scales_at the exponent of dO's factor (blocks, Hv)
// DK, DV: Dk and Dv rounded up to a multiple of 16. Z and dS have the factor of the sequence's largest dO.
#ifndef RULE_MATRIX_H
#define RULE_MATRIX_H
#include "control.h"
#include "delta_matrix.h"
#include "interface.h"
#define RULE_MATRIX_ROW(H, Hv, DK, DV) (2 * (H) * (DK) + 3 * (Hv) * (DV)) // elements
#define RULE_MATRIX_CHUNK 16                                              // steps of a chunk of states and reverse

#define RULE_MATRIX_ROWS 0      // in or out, as uvec4
#define RULE_MATRIX_SEQUENCES 1 // of gates, states and reverse: (B) in, struct sequence
#define RULE_MATRIX_BLOCKS 1    // of the others: in
// rule_matrix_gates
#define RULE_MATRIX_GATES 2       // of this and of pack: out, f32
#define RULE_MATRIX_GATES_WHOLE 0 // (1) out, struct sequence: all steps as one sequence
#define RULE_MATRIX_GATES_BETA 3  // (T, N * Hv) in, f32
#define RULE_MATRIX_GATES_G 4     // (T, Hv) in, f32; gated
#define RULE_MATRIX_GATES_BLOCKS 5 // out
#define RULE_MATRIX_GATES_BINDINGS 6
// rule_matrix_pack
#define RULE_MATRIX_PACK_QKV 3    // (T, (1 + N) H Dk + N Hv Dv) in, f32; UNIT at a time
#define RULE_MATRIX_PACK_DO 4     // (T, Hv * Dv) in, f32; UNIT at a time
#define RULE_MATRIX_PACK_DSTATE 5 // (slots, Hv * Dk * Dv) in, f32
#define RULE_MATRIX_PACK_BINDINGS 6
// rule_matrix_states
#define RULE_MATRIX_STATES 2        // of the following kernels: in or out, as uvec4
#define RULE_MATRIX_PREPARED 3      // (chunks, Hv, record) in, as uvec4: delta_matrix.h
#define RULE_MATRIX_STATES_BEFORE 4 // (slots, Hv * Dk * Dv) in, f32; has_before
#define RULE_MATRIX_STATES_BINDINGS 5
// rule_matrix_reverse
#define RULE_MATRIX_REVERSE_DSTATE 4 // (slots, Hv * Dk * Dv) inout, f32
#define RULE_MATRIX_REVERSE_GATES 5  // in, f32
#define RULE_MATRIX_REVERSE_BINDINGS 6
// rule_matrix_grads
#define RULE_MATRIX_GRADS_GATES 3 // in, f32
#define RULE_MATRIX_GRADS_DQKV 4  // (T, (1 + N) H Dk + N Hv Dv) out, or inout if `add` or value heads share keys, f32
#define RULE_MATRIX_GRADS_DBETA 5 // (T, N * Hv) inout, f32
#define RULE_MATRIX_GRADS_DG 6    // (T, Hv) inout, f32; gated
#define RULE_MATRIX_GRADS_BINDINGS 7
// rule_matrix_small
#define RULE_MATRIX_SMALL_BETA 1e-3 // |beta| below which V' and Z, in f16, lose digits
#define RULE_MATRIX_SMALL_GATES 3   // in, f32
#define RULE_MATRIX_SMALL_QKV 4     // (T, (1 + N) H Dk + N Hv Dv) in, f32
#define RULE_MATRIX_SMALL_DBETA 5   // (T, N * Hv) inout, f32
#define RULE_MATRIX_SMALL_BINDINGS 6

#define RULE_MATRIX_SPEC_LANES 0
#define RULE_MATRIX_SPEC_BLOCK 1 // a multiple of RULE_MATRIX_CHUNK
#define RULE_MATRIX_SPEC_N 2
#define RULE_MATRIX_GATES_SPECS 3
#define RULE_MATRIX_SPEC_DK 3
#define RULE_MATRIX_SPEC_DV 4
#define RULE_MATRIX_SMALL_SPECS 5
#define RULE_MATRIX_SPEC_UNIT 5 // of pack: 4 or 1, divides every offset and stride
#define RULE_MATRIX_PACK_SPECS 6
#define RULE_MATRIX_SPEC_SUBGROUP 5 // of the others; divides LANES
#define RULE_MATRIX_SPEC_TILE 6     // of the device's coopmat products, which are square: 8 or 16
#define RULE_MATRIX_SPEC_LOCKSTEP 7 // 1: a subgroup runs in lockstep and needs no subgroup barrier
#define RULE_MATRIX_SPEC_WIDTH 8    // of states and reverse: value columns of a subgroup, 16 or 32, which divides DV
#define RULE_MATRIX_STATES_SPECS 9
#define RULE_MATRIX_REVERSE_SPECS 9
#define RULE_MATRIX_SPEC_GATED 8 // of grads
// Of grads; 1: N is 1, Dk and Dv are DK and DV, and rows of dqkv begin at multiples of 4.
#define RULE_MATRIX_SPEC_WHOLE 9
#define RULE_MATRIX_SPEC_SPLIT 10 // of grads: parts of a block's steps, which divide its tiles and the subgroups
#define RULE_MATRIX_SPEC_SCORES 11 // of grads: where its shared memory has scores, and what it has, 16 bytes each
#define RULE_MATRIX_SPEC_POOL 12   // (plan_back_rule.c)
#define RULE_MATRIX_SPEC_OWN 13    // of grads: tiles of columns of a subgroup, which divide DK's
#define RULE_MATRIX_GRADS_SPECS 14
struct rule_matrix_args {
  uint B;
  uint H;
  uint Hv;
  uint Dk;
  uint Dv;
  uint share; // value head j uses key head j / share mod H
  uint gated;
  uint has_before;
  uint add; // of grads: to what dqkv is; 0: dqkv is overwritten
  uint blocks;     // at least those of all sequences
  uint qkv_stride; // of qkv, or of dqkv
  uint do_stride;
  uint state_stride;
  uint beta_stride; // of beta, or of dbeta
  uint g_stride;    // of g, or of dg
  uint g_at;
  uint scales_at;
  float scale;
};
ARGS(rule_matrix_args)
#endif
