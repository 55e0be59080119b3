// rule_matrix_sequences.glsl: the blocks of sequences. Needs N and BLOCK.
layout(set = 0, binding = RULE_MATRIX_SEQUENCES) restrict readonly buffer sequences_block { sequence sequences[]; };

uint blocks_of(sequence s) { return (s.T * N + BLOCK - 1) / BLOCK; }

// The first block of sequence z.
uint first_block(uint z) {
  uint first = 0;
  for (uint i = 0; i < z; i++) first += blocks_of(sequences[i]);
  return first;
}
