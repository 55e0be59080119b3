// mamba2_matrix_state.h: contract of mamba2_matrix_state.comp.
#ifndef MAMBA2_MATRIX_STATE_H
#define MAMBA2_MATRIX_STATE_H
#include "mamba2_matrix.h"
#define MAMBA2_MATRIX_STATE_STATES 0    // (chunks, heads, record) out, f16 in eights
#define MAMBA2_MATRIX_STATE_XBC 1       // (T, heads * P + 2 * groups * N) in, f32
#define MAMBA2_MATRIX_STATE_XBC4 2      // the same as vec4, read when ALIGNED
#define MAMBA2_MATRIX_STATE_DT 3        // (T, heads) in, f32
#define MAMBA2_MATRIX_STATE_G 4         // (T, heads) in, f32
#define MAMBA2_MATRIX_STATE_STATE 5     // (slots, heads * N * P) in, f32
#define MAMBA2_MATRIX_STATE_SEQUENCES 6 // (B) in, struct sequence
#define MAMBA2_MATRIX_STATE_BINDINGS 7
#define MAMBA2_MATRIX_STATE_SPECS MAMBA2_MATRIX_SPECS
#endif
