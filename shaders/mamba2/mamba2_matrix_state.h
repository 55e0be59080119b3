// mamba2_matrix_state.h: contract of mamba2_matrix_state.comp.
#ifndef MAMBA2_MATRIX_STATE_H
#define MAMBA2_MATRIX_STATE_H
#include "mamba2_matrix.h"
#define MAMBA2_MATRIX_STATE_STATE MAMBA2_CHUNK_BINDINGS // (slots, heads * N * P) in, f32
#define MAMBA2_MATRIX_STATE_BINDINGS (MAMBA2_CHUNK_BINDINGS + 1)
#define MAMBA2_MATRIX_STATE_SPECS MAMBA2_MATRIX_SPECS
#endif
