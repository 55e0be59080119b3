// rule_matrix_block.glsl: finds blocks of steps in sequences. Needs N and BLOCK.
layout(set = 0, binding = RULE_MATRIX_SEQUENCES) restrict readonly buffer sequences_block { sequence sequences[]; };

uint blocks_of(sequence s) { return (s.T * N + BLOCK - 1) / BLOCK; }

// The first block of sequence z.
uint first_block(uint z) {
  uint first = 0;
  for (uint i = 0; i < z; i++) first += blocks_of(sequences[i]);
  return first;
}

// The sequence of a block, its first block and the first of its steps in that sequence. False: no sequence has it.
bool find_block(uint block, out sequence s, out uint first, out uint step) {
  first = 0;
  for (uint z = 0; z < args.B; z++) {
    s = sequences[z];
    uint blocks = blocks_of(s);
    step = (block - first) * BLOCK;
    if (block < first + blocks) return true;
    first += blocks;
  }
  return false;
}
