// rule_matrix_block.glsl: a block's place in its sequence, from the table that rule_matrix_gates writes. Needs N and BLOCK.
layout(set = 0, binding = RULE_MATRIX_BLOCKS) restrict readonly buffer blocks_block { uvec4 blocks[]; };

uint row, T, slot;       // of the sequence: its first row, its tokens, its slot of states
uint first, block_count; // its first block, and its blocks
uint step0;              // of the block, in its sequence

// False: no sequence has this block.
bool find_block(uint block) {
  const uvec4 b = blocks[block];
  row = b.x;
  T = b.y;
  first = b.z;
  slot = b.w;
  block_count = (T * N + BLOCK - 1) / BLOCK;
  step0 = (block - first) * BLOCK;
  return T > 0;
}
