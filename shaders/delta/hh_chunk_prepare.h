// hh_chunk_prepare.h: contract of hh_chunk_prepare.comp.
#ifndef HH_CHUNK_PREPARE_H
#define HH_CHUNK_PREPARE_H
#include "hh_chunk.h"
#define HH_CHUNK_PREPARE_PREPARED 0  // (chunks, Hv, record) out, f32
#define HH_CHUNK_PREPARE_QKV 1       // (T, 2 * H * R * D + Hv * Dv) in, f32
#define HH_CHUNK_PREPARE_BETA 2      // (T, Hv) in, f32
#define HH_CHUNK_PREPARE_G 3         // (T, Hv) in, f32; read when args.gated
#define HH_CHUNK_PREPARE_MASK 4      // (T or 1, Hv * R * R) in, f32: logits, or M when NONNEG is HH_GIVEN
#define HH_CHUNK_PREPARE_SEQUENCES 5 // (B) in, struct sequence
#define HH_CHUNK_PREPARE_BINDINGS 6
#define HH_CHUNK_PREPARE_SPEC_LANES 0
#define HH_CHUNK_PREPARE_SPEC_C 1 // tokens, a multiple of 4
#define HH_CHUNK_PREPARE_SPEC_D 2 // Dk / R, rows of a block
#define HH_CHUNK_PREPARE_SPEC_R 3
#define HH_CHUNK_PREPARE_SPEC_ALIGNED 4 // 1: D and qkv_stride are multiples of 4
#define HH_CHUNK_PREPARE_SPEC_NONNEG 5  // HH_...
#define HH_CHUNK_PREPARE_SPECS 6
struct hh_chunk_prepare_args {
  uint B;
  uint H;
  uint Hv;
  uint gated;
  float scale;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
  uint mask_stride; // 0: one row serves every token
};
ARGS(hh_chunk_prepare_args)
#endif
