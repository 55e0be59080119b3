// delta_matrix_prepare.h: contract of delta_matrix_prepare.comp, and what hh_matrix_prepare.comp shares of it.
#ifndef DELTA_MATRIX_PREPARE_H
#define DELTA_MATRIX_PREPARE_H
#include "delta_matrix.h"
#define DELTA_MATRIX_PREPARE_PREPARED 0  // (chunks, Hv, record) out, as uvec4
#define DELTA_MATRIX_PREPARE_QKV 1       // (T, (1 + N) * H * pitch + N * Hv * Dv) in, f32 or f16; UNIT at a time
#define DELTA_MATRIX_PREPARE_BETA 2      // (T, N * Hv) in, f32
#define DELTA_MATRIX_PREPARE_G 3         // (T, Hv) in, f32; read when args.gated
#define DELTA_MATRIX_PREPARE_SEQUENCES 4 // (B) in, struct sequence
#define DELTA_MATRIX_PREPARE_BINDINGS 5
#define DELTA_MATRIX_PREPARE_SPEC_LANES 0 // a multiple of SUBGROUP
#define DELTA_MATRIX_PREPARE_SPEC_SUBGROUP 1
#define DELTA_MATRIX_PREPARE_SPEC_TILE_M 2 // of the device's coopmat products: (M, K) x (K, N); 8 or 16 each
#define DELTA_MATRIX_PREPARE_SPEC_TILE_N 3
#define DELTA_MATRIX_PREPARE_SPEC_TILE_K 4
#define DELTA_MATRIX_PREPARE_SPEC_C 5      // 16, 32, 48 or 64
#define DELTA_MATRIX_PREPARE_SPEC_DK 6     // Dk rounded up to a multiple of 16
#define DELTA_MATRIX_PREPARE_SPEC_N 7      // householder steps per token, at most C
#define DELTA_MATRIX_PREPARE_SPEC_SLAB 8   // columns of K and Q staged at once, a multiple of 16
#define DELTA_MATRIX_PREPARE_SPEC_UNIT 9   // 8, 4 or 1: divides args.pitch and qkv_stride
#define DELTA_MATRIX_PREPARE_SPEC_EDGES 10 // 0: args.pitch is DK, and SLAB divides it
#define DELTA_MATRIX_PREPARE_SPECS 11
struct delta_matrix_prepare_args {
  uint B;
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint pitch; // elements from a key to the next: Dk, or more with zeros between
  uint gated;
  float scale;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
  uint mask_stride; // of Head-in-Head; 0: one row serves every token
};
ARGS(delta_matrix_prepare_args)
#endif
