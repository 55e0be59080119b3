// mamba2_matrix_output.h: contract of mamba2_matrix_output.comp.
#ifndef MAMBA2_MATRIX_OUTPUT_H
#define MAMBA2_MATRIX_OUTPUT_H
#include "mamba2_matrix.h"
#define MAMBA2_MATRIX_OUTPUT_Y MAMBA2_CHUNK_BINDINGS       // (T, heads * P) out, f32 or f16
#define MAMBA2_MATRIX_OUTPUT_D (MAMBA2_CHUNK_BINDINGS + 1) // (1, heads) in, f32; (1, heads * P) when args.D_per_element
#define MAMBA2_MATRIX_OUTPUT_BINDINGS (MAMBA2_CHUNK_BINDINGS + 2)
#define MAMBA2_MATRIX_OUTPUT_SPECS MAMBA2_MATRIX_SPECS
#endif
