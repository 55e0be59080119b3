#version 450
#extension GL_GOOGLE_include_directive : require
// to = or += the sums of `each` rows of `from`, each column by itself.
// Workgroups (ceil(cols / SUM_ROWS_COLUMNS), ceil(rows / each)). Invocations of one column take every n-th row, with
// compensated sums (Neumaier), which one of them then adds in order.
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
  uint begin = gl_WorkGroupID.y * args.each, end = min(begin + args.each, args.rows);
  float sum = 0.0, rest = 0.0;
  if (c < args.cols)
    for (uint r = begin + lane / SUM_ROWS_COLUMNS; r < end; r += gl_WorkGroupSize.x / SUM_ROWS_COLUMNS)
      add(sum, rest, from[r * args.stride + args.first + c]);
  parts[lane] = sum + rest;
  barrier();
  if (lane >= SUM_ROWS_COLUMNS || c >= args.cols) return;
  sum = rest = 0.0;
  for (uint i = lane; i < gl_WorkGroupSize.x; i += SUM_ROWS_COLUMNS) add(sum, rest, parts[i]);
  uint at = gl_WorkGroupID.y * args.cols + c;
  to[at] = args.add != 0 ? to[at] + (sum + rest) : sum + rest;
}
