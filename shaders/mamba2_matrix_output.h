// mamba2_matrix_output.h: contract of mamba2_matrix_output.comp.
#ifndef MAMBA2_MATRIX_OUTPUT_H
#define MAMBA2_MATRIX_OUTPUT_H
#include "mamba2_matrix.h"
#define MAMBA2_MATRIX_OUTPUT_Y 0         // (T, heads * P) out, f32 or f16
#define MAMBA2_MATRIX_OUTPUT_Y4 1        // the same in fours, written when FOURS
#define MAMBA2_MATRIX_OUTPUT_XBC 2       // (T, heads * P + 2 * groups * N) in, f32
#define MAMBA2_MATRIX_OUTPUT_XBC4 3      // the same as vec4, read when ALIGNED
#define MAMBA2_MATRIX_OUTPUT_STATES 4    // (chunks, heads, record) in, f16 in eights
#define MAMBA2_MATRIX_OUTPUT_DT 5        // (T, heads) in, f32
#define MAMBA2_MATRIX_OUTPUT_G 6         // (T, heads) in, f32
#define MAMBA2_MATRIX_OUTPUT_D 7         // (1, heads) in, f32; (1, heads * P) when args.D_per_element
#define MAMBA2_MATRIX_OUTPUT_SEQUENCES 8 // (B) in, struct sequence
#define MAMBA2_MATRIX_OUTPUT_BINDINGS 9
#define MAMBA2_MATRIX_OUTPUT_SPECS MAMBA2_MATRIX_SPECS
#endif
