#version 450
#extension GL_GOOGLE_include_directive : require
// dgate = or += dy x act'(gate),  dx likewise dy act(gate). Workgroups (ceil(F / lanes), rows): an invocation takes every
// gl_NumWorkGroups.y-th row. dgate and dx may be columns of one tensor.
#include "glu_back.h"
#include "slope.glsl"
layout(local_size_x_id = GLU_BACK_SPEC_LANES) in;
layout(set = 0, binding = GLU_BACK_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = GLU_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = GLU_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = GLU_BACK_DGATE) buffer dgate_block { float dgate[]; };
layout(set = 0, binding = GLU_BACK_DX) buffer dx_block { float dx[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= args.F) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint g = t * args.gate_stride + i, u = t * args.x_stride + args.x_from + i;
    float d = dy[t * args.dy_stride + i];
    dgate[g] = (args.add != 0 ? dgate[g] : 0.0) + d * x[u] * slope(args.activation, gate[g]);
    dx[u] = (args.add != 0 ? dx[u] : 0.0) + d * activate(args.activation, gate[g]);
  }
}
