#version 450
#extension GL_GOOGLE_include_directive : require
// Workgroups (ceil(Hv / lanes), blocks): an invocation writes beta and g of one value head of a block. Steps past the
// end have zeros: they change no state.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(set = 0, binding = RULE_MATRIX_GATES) restrict writeonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_GATES_WHOLE) restrict writeonly buffer whole_block { sequence whole; };
layout(set = 0, binding = RULE_MATRIX_GATES_BETA) restrict readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = RULE_MATRIX_GATES_G) restrict readonly buffer g_block { float g[]; };
#include "rule_matrix_block.glsl"

void main() {
  const uint head = gl_GlobalInvocationID.x;
  if (gl_WorkGroupID.y == 0 && head == 0) whole = sequence(0, args.blocks * BLOCK, 0, 0);
  if (head >= args.Hv) return;
  sequence s;
  uint first, step;
  const bool found = find_block(gl_WorkGroupID.y, s, first, step);
  for (uint i = 0; i < BLOCK; i++, step++) {
    uint t = step / N, m = step % N, to = (gl_WorkGroupID.y * BLOCK + i) * args.Hv + head;
    const bool there = found && t < s.T;
    gates[to] = there ? beta[(s.row + t) * args.beta_stride + m * args.Hv + head] : 0.0;
    gates[args.g_at + to] = there && args.gated != 0 && m == 0 ? g[(s.row + t) * args.g_stride + head] : 0.0;
  }
}
