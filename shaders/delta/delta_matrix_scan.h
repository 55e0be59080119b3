// delta_matrix_scan.h: contract of delta_matrix_scan.comp and delta_matrix_scan_khr.comp.
#ifndef DELTA_MATRIX_SCAN_H
#define DELTA_MATRIX_SCAN_H
#include "hh_matrix.h"
#define DELTA_MATRIX_SCAN_O 0         // (T, Hv * Dv) out, f32 or f16; UNIT_O at a time
#define DELTA_MATRIX_SCAN_QKV 1       // (T, (1 + N) * H * pitch + N * Hv * Dv) in, as o; UNIT_K or UNIT_V at a time
#define DELTA_MATRIX_SCAN_PREPARED 2  // (chunks, Hv, record) in, as uvec4
#define DELTA_MATRIX_SCAN_STATE 3     // (slots, Hv * Dk * Dv) inout, f32
#define DELTA_MATRIX_SCAN_SEQUENCES 4 // (B) in, struct sequence
#define DELTA_MATRIX_SCAN_MAPS 5      // (B * segments, Hv, map) out, f32 as vec4, or f16 as uvec4; with SEGMENTS
#define DELTA_MATRIX_SCAN_REACH 6     // (T, Hv, DK) out, f16 as uvec4; with SEGMENTS
#define DELTA_MATRIX_SCAN_BINDINGS 7
#define DELTA_MATRIX_SCAN_SPEC_LANES 0 // (COMPUTERS + STAGERS) * SUBGROUP
#define DELTA_MATRIX_SCAN_SPEC_SUBGROUP 1
#define DELTA_MATRIX_SCAN_SPEC_TILE_M 2 // of the device's coopmat products; all equal in delta_matrix_scan.comp
#define DELTA_MATRIX_SCAN_SPEC_TILE_N 3
#define DELTA_MATRIX_SCAN_SPEC_TILE_K 4
#define DELTA_MATRIX_SCAN_SPEC_C 5         // as in delta_matrix_prepare.h
#define DELTA_MATRIX_SCAN_SPEC_DK 6        //
#define DELTA_MATRIX_SCAN_SPEC_N 7         //
#define DELTA_MATRIX_SCAN_SPEC_COMPUTERS 8 // subgroups that own value columns
#define DELTA_MATRIX_SCAN_SPEC_TILES 9     // tiles of columns of each
#define DELTA_MATRIX_SCAN_SPEC_STAGERS 10  // more subgroups, which stage a chunk ahead; 0: the computers stage
#define DELTA_MATRIX_SCAN_SPEC_UNIT_K 11   // 8, 4 or 1: divides args.pitch and qkv_stride
#define DELTA_MATRIX_SCAN_SPEC_UNIT_V 12   // divides args.Dv, qkv_stride and the offset of a token's values
#define DELTA_MATRIX_SCAN_SPEC_UNIT_O 13   // divides args.Dv and o_stride
#define DELTA_MATRIX_SCAN_SPEC_EDGES 14    // DELTA_MATRIX_EDGE_... bits: sizes that are not multiples of their tiles
#define DELTA_MATRIX_SCAN_SPEC_LOCKSTEP 15 // 1: a subgroup runs in lockstep and needs no subgroup barrier
#define DELTA_MATRIX_SCAN_SPEC_MODE 16     // DELTA_MATRIX_WHOLE or DELTA_MATRIX_SEGMENTS
#define DELTA_MATRIX_SCAN_SPEC_R 17        // blocks of Head-in-Head, if > 1 with N = 1; 1: the delta rule
#define DELTA_MATRIX_SCAN_SPEC_D 18        // rows of a block
// AHEAD 1 or 2: a chunk is fetched that many chunks ahead and staged while the previous one is computed. 0: it is
// staged before it is computed; always with STAGERS, with blocks, and in delta_matrix_scan_khr.comp.
#define DELTA_MATRIX_SCAN_SPEC_AHEAD 19
#define DELTA_MATRIX_SCAN_SPECS 20
#define DELTA_MATRIX_EDGE_KEYS 1    // args.pitch is not DK
#define DELTA_MATRIX_EDGE_ROWS 2    // args.Dk is not DK
#define DELTA_MATRIX_EDGE_COLUMNS 4 // args.Dv is not a multiple of a workgroup's columns
#define DELTA_MATRIX_WHOLE 0        // sequences from beginning to end
#define DELTA_MATRIX_SEGMENTS 1     // segments: computes maps, outputs and reach, all but the first from zero
struct delta_matrix_scan_args {
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint Dk;
  uint pitch; // elements from a key to the next: Dk, or more with zeros between
  uint Dv;
  uint o_stride;
  uint qkv_stride;
  uint state_stride;
  uint segments; // segments of a sequence
};
ARGS(delta_matrix_scan_args)
#endif
