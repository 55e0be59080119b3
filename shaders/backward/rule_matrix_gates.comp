#version 450
#extension GL_GOOGLE_include_directive : require
// Workgroups (blocks): the block's sequence, and beta and g of all value heads. Steps past the end have zeros: they change no state.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(set = 0, binding = RULE_MATRIX_GATES) restrict writeonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_GATES_WHOLE) restrict writeonly buffer whole_block { sequence whole; };
layout(set = 0, binding = RULE_MATRIX_GATES_BLOCKS) restrict writeonly buffer blocks_block { uvec4 blocks[]; };
layout(set = 0, binding = RULE_MATRIX_GATES_BETA) restrict readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = RULE_MATRIX_GATES_G) restrict readonly buffer g_block { float g[]; };
#include "rule_matrix_sequences.glsl"

void main() {
  const uint block = gl_WorkGroupID.x;
  uint first = 0, z = 0; // of the block's sequence
  for (; z < args.B && block >= first + blocks_of(sequences[z]); z++) first += blocks_of(sequences[z]);
  const sequence s = z < args.B ? sequences[z] : sequence(0, 0, 0, 0);
  if (gl_LocalInvocationIndex == 0) {
    blocks[block] = uvec4(s.row, s.T, first, s.slot);
    if (block == 0) whole = sequence(0, args.blocks * BLOCK, 0, 0);
  }
  const uint step = (block - first) * BLOCK;
  for (uint i = gl_LocalInvocationIndex; i < BLOCK * args.Hv; i += gl_WorkGroupSize.x) {
    const uint t = (step + i / args.Hv) / N, m = (step + i / args.Hv) % N, head = i % args.Hv;
    const uint to = block * BLOCK * args.Hv + i;
    const bool there = t < s.T;
    gates[to] = there ? beta[(s.row + t) * args.beta_stride + m * args.Hv + head] : 0.0;
    gates[args.g_at + to] = there && args.gated != 0 && m == 0 ? g[(s.row + t) * args.g_stride + head] : 0.0;
  }
}
