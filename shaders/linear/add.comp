#version 450
#extension GL_GOOGLE_include_directive : require
// y = x + z, (T, N) each. Workgroups (ceil(N / lanes), T): an invocation computes one element; with ALIGNED N and strides
// count fours.
#include "add.h"
layout(local_size_x_id = ADD_SPEC_LANES) in;
layout(constant_id = ADD_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = ADD_Y) writeonly buffer y_block { float y[]; };
layout(set = 0, binding = ADD_Y) writeonly buffer y4_block { vec4 y4[]; };
layout(set = 0, binding = ADD_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = ADD_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = ADD_Z) readonly buffer z_block { float z[]; };
layout(set = 0, binding = ADD_Z) readonly buffer z4_block { vec4 z4[]; };

void main() {
  uint c = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
  if (c >= args.cols) return;
  uint to = t * args.y_stride + c, a = t * args.x_stride + c, b = t * args.z_stride + c;
  if (ALIGNED != 0)
    y4[to] = x4[a] + z4[b];
  else
    y[to] = x[a] + z[b];
}
