// hh_chunk_scan.h: contract of hh_chunk_scan.comp.
#ifndef HH_CHUNK_SCAN_H
#define HH_CHUNK_SCAN_H
#include "hh_chunk.h"
#define HH_CHUNK_SCAN_O 0         // (T, Hv * Dv) out, f32
#define HH_CHUNK_SCAN_QKV 1       // (T, 2 * H * R * D + Hv * Dv) in, f32
#define HH_CHUNK_SCAN_PREPARED 2  // (chunks, Hv, record) in, f32
#define HH_CHUNK_SCAN_STATE 3     // (slots, Hv * R * D * Dv) inout, f32
#define HH_CHUNK_SCAN_SEQUENCES 4 // (B) in, struct sequence
#define HH_CHUNK_SCAN_BINDINGS 5
#define HH_CHUNK_SCAN_SPEC_LANES 0
#define HH_CHUNK_SCAN_SPEC_C 1 // tokens, a multiple of 4
#define HH_CHUNK_SCAN_SPEC_D 2 // Dk / R, rows of a block
#define HH_CHUNK_SCAN_SPEC_R 3
#define HH_CHUNK_SCAN_SPEC_COLUMNS 4 // value columns of a workgroup, a multiple of 4
#define HH_CHUNK_SCAN_SPEC_ALIGNED 5 // 1: D, Dv and all strides are multiples of 4
#define HH_CHUNK_SCAN_SPECS 6
struct hh_chunk_scan_args {
  uint H;
  uint Hv;
  uint Dv;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint state_stride;
};
ARGS(hh_chunk_scan_args)
#endif
