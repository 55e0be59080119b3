#version 450
#extension GL_GOOGLE_include_directive : require
// dgate = or += dy x act'(gate),  dx likewise dy act(gate). Workgroups (ceil(F / lanes), rows): an invocation takes every
// gl_NumWorkGroups.y-th row, one column of it, with ALIGNED four. dgate and dx may be columns of one tensor. TO_F16: they
// are rounded to f16; with ALIGNED and without `add`.
#include "glu_back.h"
#include "slope.glsl"
layout(local_size_x_id = GLU_BACK_SPEC_LANES) in;
layout(constant_id = GLU_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = GLU_BACK_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = GLU_BACK_GATE) readonly buffer gate4_block { vec4 gate4[]; };
layout(set = 0, binding = GLU_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = GLU_BACK_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = GLU_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = GLU_BACK_DY) readonly buffer dy4_block { vec4 dy4[]; };
#ifdef TO_F16
layout(set = 0, binding = GLU_BACK_DGATE) writeonly buffer dgate_block { uvec2 dgate4[]; };
layout(set = 0, binding = GLU_BACK_DX) writeonly buffer dx_block { uvec2 dx4[]; };
#include "rounded.glsl"
uvec2 rounded4(vec4 v) { return uvec2(rounded(v.x, v.y), rounded(v.z, v.w)); }
#else
layout(set = 0, binding = GLU_BACK_DGATE) buffer dgate_block { float dgate[]; };
layout(set = 0, binding = GLU_BACK_DGATE) buffer dgate4_block { vec4 dgate4[]; };
layout(set = 0, binding = GLU_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = GLU_BACK_DX) buffer dx4_block { vec4 dx4[]; };
#endif

void four(uint g, uint u, uint d) {
  vec4 z = gate4[g], by_gate = dy4[d] * x4[u], by_x = dy4[d];
  for (uint k = 0; k < 4; k++) {
    by_gate[k] *= slope(args.activation, z[k]);
    by_x[k] *= activate(args.activation, z[k]);
  }
#ifdef TO_F16
  dgate4[g] = rounded4(by_gate);
  dx4[u] = rounded4(by_x);
#else
  dgate4[g] = (args.add != 0 ? dgate4[g] : vec4(0.0)) + by_gate;
  dx4[u] = (args.add != 0 ? dx4[u] : vec4(0.0)) + by_x;
#endif
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= (ALIGNED != 0 ? args.F / 4 : args.F)) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint g = t * args.gate_stride, u = t * args.x_stride + args.x_from, d = t * args.dy_stride;
    if (ALIGNED != 0) four(g / 4 + i, u / 4 + i, d / 4 + i);
#ifndef TO_F16
    if (ALIGNED == 0) {
      float dy_i = dy[d + i];
      dgate[g + i] = (args.add != 0 ? dgate[g + i] : 0.0) + dy_i * x[u + i] * slope(args.activation, gate[g + i]);
      dx[u + i] = (args.add != 0 ? dx[u + i] : 0.0) + dy_i * activate(args.activation, gate[g + i]);
    }
#endif
  }
}
