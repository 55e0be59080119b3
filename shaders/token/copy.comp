#version 450
#extension GL_GOOGLE_include_directive : require
// to = from, or 0.
// to, from (rows, cols), four elements at a time when ALIGNED. Workgroups (ceil(cols / lanes), rows), folded into the
// device's limits: an invocation copies every (gl_NumWorkGroups.x * lanes)-th column of every gl_NumWorkGroups.y-th
// row.
#include "copy.h"
layout(local_size_x_id = COPY_SPEC_LANES) in;
layout(constant_id = COPY_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = COPY_TO) writeonly buffer to_block { uint to[]; };
layout(set = 0, binding = COPY_FROM) readonly buffer from_block { uint from[]; };
layout(set = 0, binding = COPY_TO) writeonly buffer to4_block { uvec4 to4[]; };
layout(set = 0, binding = COPY_FROM) readonly buffer from4_block { uvec4 from4[]; };

void main() {
  for (uint r = gl_WorkGroupID.y; r < args.rows; r += gl_NumWorkGroups.y) {
    for (uint c = gl_GlobalInvocationID.x; c < args.cols; c += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
      uint i = r * args.to_stride + c, j = r * args.from_stride + c;
      if (ALIGNED != 0)
        to4[i] = args.zero != 0 ? uvec4(0) : from4[j];
      else
        to[i] = args.zero != 0 ? 0 : from[j];
    }
  }
}
