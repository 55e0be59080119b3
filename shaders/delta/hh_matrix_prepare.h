// hh_matrix_prepare.h: contract of hh_matrix_prepare.comp: that of delta_matrix_prepare.h with N = 1, and masks.
#ifndef HH_MATRIX_PREPARE_H
#define HH_MATRIX_PREPARE_H
#include "delta_matrix_prepare.h"
#include "hh_matrix.h"
#define HH_MATRIX_PREPARE_MASK 5 // (T or 1, Hv * R * R) in, f32: logits, or M when NONNEG is HH_GIVEN
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
#endif
