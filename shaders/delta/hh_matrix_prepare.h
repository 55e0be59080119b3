// hh_matrix_prepare.h: contract of hh_matrix_prepare.comp.
#ifndef HH_MATRIX_PREPARE_H
#define HH_MATRIX_PREPARE_H
#include "hh_matrix.h"
#define HH_MATRIX_PREPARE_PREPARED 0  // (chunks, Hv, record) out, as uvec4
#define HH_MATRIX_PREPARE_QKV 1       // (T, 2 * H * pitch + Hv * Dv) in, f32 or f16; UNIT at a time
#define HH_MATRIX_PREPARE_BETA 2      // (T, Hv) in, f32
#define HH_MATRIX_PREPARE_G 3         // (T, Hv) in, f32; read when args.gated
#define HH_MATRIX_PREPARE_MASK 4      // (T or 1, Hv * R * R) in, f32: logits, or M when NONNEG is HH_GIVEN
#define HH_MATRIX_PREPARE_SEQUENCES 5 // (B) in, struct sequence
#define HH_MATRIX_PREPARE_BINDINGS 6
#define HH_MATRIX_PREPARE_SPEC_LANES 0 // a multiple of SUBGROUP; best with one lane per column, (R + 1) * C / R
#define HH_MATRIX_PREPARE_SPEC_SUBGROUP 1
#define HH_MATRIX_PREPARE_SPEC_TILE_M 2 // of the device's coopmat products: (M, K) x (K, N); 8 or 16 each
#define HH_MATRIX_PREPARE_SPEC_TILE_N 3
#define HH_MATRIX_PREPARE_SPEC_TILE_K 4
#define HH_MATRIX_PREPARE_SPEC_C 5       // 16, 32, 48 or 64, at least R
#define HH_MATRIX_PREPARE_SPEC_DK 6      // R * D rounded up to a multiple of 16
#define HH_MATRIX_PREPARE_SPEC_R 7       // blocks of a head
#define HH_MATRIX_PREPARE_SPEC_D 8       // rows of a block
#define HH_MATRIX_PREPARE_SPEC_SLAB 9    // columns of K and Q staged at once, a multiple of 16
#define HH_MATRIX_PREPARE_SPEC_UNIT 10   // 8, 4 or 1: divides args.pitch and qkv_stride
#define HH_MATRIX_PREPARE_SPEC_NONNEG 11 // HH_...
#define HH_MATRIX_PREPARE_SPECS 12
struct hh_matrix_prepare_args {
  uint B;
  uint H;
  uint Hv;
  uint pitch; // elements from a key to the next: R * D, or more with zeros between
  uint gated;
  float scale;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
  uint mask_stride; // 0: one row serves every token
};
ARGS(hh_matrix_prepare_args)
#endif
