#version 450
#extension GL_GOOGLE_include_directive : require
// y = ... + D x:  dx += D dy,  parts = sum of dy x over the elements that share a column of D. Workgroups (ceil(columns
// of D / lanes), rows): an invocation takes one column of D, for every gl_NumWorkGroups.y-th token.
#include "skip_back.h"
layout(local_size_x_id = SKIP_BACK_SPEC_LANES) in;
layout(set = 0, binding = SKIP_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = SKIP_BACK_D) readonly buffer D_block { float D[]; };
layout(set = 0, binding = SKIP_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = SKIP_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = SKIP_BACK_PARTS) writeonly buffer parts_block { float parts[]; };

void main() {
  uint column = gl_GlobalInvocationID.x;
  if (column >= args.cols) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    float sum = 0.0;
    for (uint i = column * args.share; i < (column + 1) * args.share; i++) {
      float d = dy[t * args.dy_stride + i];
      sum += d * x[t * args.x_stride + i];
      dx[t * args.dx_stride + i] += D[column] * d;
    }
    parts[t * args.cols + column] = sum;
  }
}
