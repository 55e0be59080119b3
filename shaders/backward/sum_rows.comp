#version 450
#extension GL_GOOGLE_include_directive : require
// to += the sum of the rows of `from`, each column by itself.
// Workgroups (ceil(cols / SUM_ROWS_COLUMNS)). Invocations of one column take every n-th row, with compensated sums
// (Neumaier), which one of them then adds in order.
#include "sum_rows.h"
layout(local_size_x_id = SUM_ROWS_SPEC_LANES) in;
layout(set = 0, binding = SUM_ROWS_TO) buffer to_block { float to[]; };
layout(set = 0, binding = SUM_ROWS_FROM) readonly buffer from_block { float from[]; };

shared float parts[gl_WorkGroupSize.x];

void add(inout float sum, inout float rest, float x) {
  precise float next = sum + x;
  precise float lost = abs(sum) >= abs(x) ? (sum - next) + x : (x - next) + sum;
  rest += lost;
  sum = next;
}

void main() {
  uint lane = gl_LocalInvocationID.x, c = gl_WorkGroupID.x * SUM_ROWS_COLUMNS + lane % SUM_ROWS_COLUMNS;
  float sum = 0.0, rest = 0.0;
  if (c < args.cols)
    for (uint r = lane / SUM_ROWS_COLUMNS; r < args.rows; r += gl_WorkGroupSize.x / SUM_ROWS_COLUMNS)
      add(sum, rest, from[r * args.stride + args.first + c]);
  parts[lane] = sum + rest;
  barrier();
  if (lane >= SUM_ROWS_COLUMNS || c >= args.cols) return;
  sum = rest = 0.0;
  for (uint i = lane; i < gl_WorkGroupSize.x; i += SUM_ROWS_COLUMNS) add(sum, rest, parts[i]);
  to[c] += sum + rest;
}
