#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// dgate = or += dy x act'(gate),  dx likewise dy act(gate). Workgroups (ceil(F / lanes), rows): an invocation takes every
// gl_NumWorkGroups.y-th row, one unit of it. dgate and dx may be columns of one tensor. TO_F16: they
// are rounded to f16; with ALIGNED and without `add`.
#include "glu_back.h"
#include "slope.glsl"
layout(local_size_x_id = GLU_BACK_SPEC_LANES) in;
layout(constant_id = GLU_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = GLU_BACK_SPEC_ACTIVATION) const uint ACTIVATION = ACT_SILU;
#include "units.glsl"
UNITS(readonly, GLU_BACK_GATE, gate)
UNITS(readonly, GLU_BACK_X, x)
UNITS(readonly, GLU_BACK_DY, dy)
#ifdef TO_F16
layout(set = 0, binding = GLU_BACK_DGATE) writeonly buffer dgate_block { uvec2 dgate4[]; };
layout(set = 0, binding = GLU_BACK_DX) writeonly buffer dx_block { uvec2 dx4[]; };
#include "rounded.glsl"
#define GIVE(name, at, v) name##4[at] = rounded4(v);
#else
UNITS(, GLU_BACK_DGATE, dgate)
UNITS(, GLU_BACK_DX, dx)
#define GIVE(name, at, v) STORE(name, at, (args.add != 0 ? LOAD(name, at) : vec4(0.0)) + v)
#endif

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= args.F / UNIT) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint g = t * args.gate_stride / UNIT + i, u = (t * args.x_stride + args.x_from) / UNIT + i;
    vec4 z = LOAD(gate, g), by_x = LOAD(dy, t * args.dy_stride / UNIT + i), by_gate = by_x * LOAD(x, u);
    [[unroll]] for (uint k = 0; k < UNIT; k++) {
      vec2 a = activate_and_slope(ACTIVATION, z[k]);
      by_x[k] *= a.x;
      by_gate[k] *= a.y;
    }
    GIVE(dgate, g, by_gate)
    GIVE(dx, u, by_x)
  }
}
