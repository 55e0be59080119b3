#version 450
#extension GL_GOOGLE_include_directive : require
// sums[first + g] = the sum of (factor x)^2 over `each` numbers from g * each on. One workgroup for each sum. Every
// invocation takes every n-th number, with compensated sums (Neumaier), which one of them then adds in order.
#include "sum_squares.h"
layout(local_size_x_id = SUM_SQUARES_SPEC_LANES) in;
layout(constant_id = SUM_SQUARES_SPEC_FLAT) const uint FLAT = 0;
layout(set = 0, binding = SUM_SQUARES_SUMS) writeonly buffer sums_block { float sums[]; };
layout(set = 0, binding = SUM_SQUARES_FROM) readonly buffer from_block { float from[]; };

shared vec2 parts[gl_WorkGroupSize.x];

void add(inout vec2 sum, float x) {
  precise float next = sum.x + x;
  precise float lost = abs(sum.x) >= abs(x) ? (sum.x - next) + x : (x - next) + sum.x;
  sum = vec2(next, sum.y + lost);
}

void main() {
  uint lane = gl_LocalInvocationID.x, begin = gl_WorkGroupID.x * args.each, end = min(args.n, begin + args.each);
  vec2 sum = vec2(0.0);
  for (uint e = begin + lane; e < end; e += gl_WorkGroupSize.x) {
    float x = args.factor * from[place(args.from, row_column(FLAT != 0, args.cols, e))];
    add(sum, x * x);
  }
  parts[lane] = sum;
  barrier();
  if (lane != 0) return;
  for (uint i = 1; i < gl_WorkGroupSize.x; i++) {
    add(sum, parts[i].x);
    sum.y += parts[i].y;
  }
  sums[2 * (args.first + gl_WorkGroupID.x)] = sum.x;
  sums[2 * (args.first + gl_WorkGroupID.x) + 1] = sum.y;
}
