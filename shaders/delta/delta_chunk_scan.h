// delta_chunk_scan.h: contract of delta_chunk_scan.comp.
#ifndef DELTA_CHUNK_SCAN_H
#define DELTA_CHUNK_SCAN_H
#include "delta_chunk.h"
#define DELTA_CHUNK_SCAN_O 0         // (T, Hv * Dv) out, f32
#define DELTA_CHUNK_SCAN_QKV 1       // (T, (1 + N) * H * Dk + N * Hv * Dv) in, f32
#define DELTA_CHUNK_SCAN_PREPARED 2  // (chunks, Hv, record) in, f32 as vec4
#define DELTA_CHUNK_SCAN_STATE 3     // (slots, Hv * Dk * Dv) inout, f32
#define DELTA_CHUNK_SCAN_SEQUENCES 4 // (B) in, struct sequence
#define DELTA_CHUNK_SCAN_BINDINGS 5
#define DELTA_CHUNK_SCAN_SPEC_LANES 0 // (C / SUB_T) * (COLUMNS / SUB_C) * GROUPS
#define DELTA_CHUNK_SCAN_SPEC_C 1
#define DELTA_CHUNK_SCAN_SPEC_DK 2
#define DELTA_CHUNK_SCAN_SPEC_COLUMNS 3 // value columns of a workgroup
#define DELTA_CHUNK_SCAN_SPEC_SUB_T 4   // steps of an invocation
#define DELTA_CHUNK_SCAN_SPEC_SUB_C 5   // columns of an invocation, a multiple of 4
#define DELTA_CHUNK_SCAN_SPEC_SUB_K 6   // rows of S of an invocation in the update, a multiple of 4
#define DELTA_CHUNK_SCAN_SPEC_GROUPS 7  // 1: an invocation computes K S and Q S; 2: one of them
#define DELTA_CHUNK_SCAN_SPEC_ALIGNED 8 // 1: Dk, Dv and all strides are multiples of 4
#define DELTA_CHUNK_SCAN_SPEC_N 9       // householder steps per token, at most C
#define DELTA_CHUNK_SCAN_SPEC_KEPT 10   // most vec4 that an invocation loads ahead, of K and Q and of Tm or P
#define DELTA_CHUNK_SCAN_SPECS 11
// Tokens of an invocation, and of all invocations: the number of staged rows of Q, C / N or a few more.
#define DELTA_CHUNK_SCAN_SUB_Q(SUB_T, N) (((SUB_T) + (N)-1) / (N))
#define DELTA_CHUNK_SCAN_QUERIES(C, SUB_T, N) ((C) / (SUB_T)*DELTA_CHUNK_SCAN_SUB_Q(SUB_T, N))
struct delta_chunk_scan_args {
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint Dv;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint state_stride;
};
ARGS(delta_chunk_scan_args)
#endif
