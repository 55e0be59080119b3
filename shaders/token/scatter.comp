#version 450
#extension GL_GOOGLE_include_directive : require
// to[slot of sequence s] = from[s].
// to (slots, cols), from (B, cols). Workgroups (ceil(cols / lanes), B): an invocation copies one element.
#include "scatter.h"
layout(local_size_x_id = SCATTER_SPEC_LANES) in;
layout(set = 0, binding = SCATTER_TO) writeonly buffer to_block { uint to[]; };
layout(set = 0, binding = SCATTER_FROM) readonly buffer from_block { uint from[]; };
layout(set = 0, binding = SCATTER_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

void main() {
  uint c = gl_GlobalInvocationID.x, s = gl_WorkGroupID.y;
  if (c < args.cols) to[sequences[s].slot * args.to_stride + c] = from[s * args.from_stride + c];
}
