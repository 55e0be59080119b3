// hh_chunk_scan.h: contract of hh_chunk_scan.comp.
#ifndef HH_CHUNK_SCAN_H
#define HH_CHUNK_SCAN_H
#include "hh_chunk.h"
#define HH_CHUNK_SCAN_O 0         // (T, Hv * Dv) out, f32
#define HH_CHUNK_SCAN_O4 1        // the same as vec4; so below: used instead when ALIGNED
#define HH_CHUNK_SCAN_QKV 2       // (T, 2 * H * R * D + Hv * Dv) in, f32
#define HH_CHUNK_SCAN_QKV4 3      //
#define HH_CHUNK_SCAN_PREPARED 4  // (chunks, Hv, record) in, f32
#define HH_CHUNK_SCAN_PREPARED4 5 //
#define HH_CHUNK_SCAN_STATE 6     // (slots, Hv * R * D * Dv) inout, f32
#define HH_CHUNK_SCAN_STATE4 7    //
#define HH_CHUNK_SCAN_SEQUENCES 8 // (B) in, struct sequence
#define HH_CHUNK_SCAN_BINDINGS 9
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
