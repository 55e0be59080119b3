#version 450
#extension GL_GOOGLE_include_directive : require
// y = x + z, (T, N) each. Workgroups (ceil(N / lanes), T): an invocation computes one element.
#include "add.h"
layout(local_size_x_id = ADD_SPEC_LANES) in;
layout(set = 0, binding = ADD_Y) writeonly buffer y_block { float y[]; };
layout(set = 0, binding = ADD_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = ADD_Z) readonly buffer z_block { float z[]; };

void main() {
  uint c = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
  if (c < args.cols) y[t * args.y_stride + c] = x[t * args.x_stride + c] + z[t * args.z_stride + c];
}
