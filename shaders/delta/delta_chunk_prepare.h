// delta_chunk_prepare.h: contract of delta_chunk_prepare.comp.
#ifndef DELTA_CHUNK_PREPARE_H
#define DELTA_CHUNK_PREPARE_H
#include "delta_chunk.h"
#define DELTA_CHUNK_PREPARE_PREPARED 0  // (chunks, Hv, record) out, f32 as vec4
#define DELTA_CHUNK_PREPARE_QKV 1       // (T, (1 + N) * H * Dk + N * Hv * Dv) in, f32
#define DELTA_CHUNK_PREPARE_BETA 2      // (T, N * Hv) in, f32
#define DELTA_CHUNK_PREPARE_G 3         // (T, Hv) in, f32; read when args.gated
#define DELTA_CHUNK_PREPARE_SEQUENCES 4 // (B) in, struct sequence
#define DELTA_CHUNK_PREPARE_BINDINGS 5
#define DELTA_CHUNK_PREPARE_SPEC_LANES 0
#define DELTA_CHUNK_PREPARE_SPEC_C 1 // 16, 32 or 64
#define DELTA_CHUNK_PREPARE_SPEC_DK 2
#define DELTA_CHUNK_PREPARE_SPEC_SUB 3     // an invocation computes SUB x SUB products; divides 16
#define DELTA_CHUNK_PREPARE_SPEC_SLAB 4    // columns of K and Q staged at once, a multiple of 4, at least 16
#define DELTA_CHUNK_PREPARE_SPEC_ALIGNED 5 // 1: Dk and qkv_stride are multiples of 4
#define DELTA_CHUNK_PREPARE_SPEC_N 6       // householder steps per token, at most C
#define DELTA_CHUNK_PREPARE_SPECS 7
struct delta_chunk_prepare_args {
  uint B;
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint gated;
  float scale;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
};
ARGS(delta_chunk_prepare_args)
#endif
