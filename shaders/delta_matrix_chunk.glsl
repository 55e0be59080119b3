// delta_matrix_chunk.glsl: which chunk a workgroup of the kernels that prepare chunks has, and room for its gates.
// Workgroups (Hv, chunks): heads next to each other run at about the same time, so that whole rows of qkv are read
// together. Needs STEPS a chunk, TOKENS, SUBGROUP and the buffer sequences.
const float LOWEST_G = -110.0; // e^-104 is the last that f32 holds; sums of these stay exact enough for what follows
shared float betas[STEPS], G[STEPS]; // of steps; G: the sum of gates up to one
uint record, row, count;             // of the chunk: its record of `size`, first token, tokens

// Which sequence has chunk `chunk` of all; count 0 past the last: the host counts as if every sequence ended in a
// broken one.
void find_chunk(uint chunk, uint size) {
  record = (chunk * args.Hv + gl_WorkGroupID.x) * size;
  row = count = 0;
  uint before = 0;
  for (uint z0 = 0; z0 < args.B; z0 += SUBGROUP) {
    uint z = z0 + gl_SubgroupInvocationID;
    sequence own = sequences[min(z, args.B - 1)];
    uint chunks = z < args.B ? (own.T + TOKENS - 1) / TOKENS : 0;
    uint end = before + subgroupInclusiveAdd(chunks);
    uvec4 beyond = subgroupBallot(end > chunk);
    if (subgroupBallotBitCount(beyond) > 0) {
      uint found = subgroupBallotFindLSB(beyond), first = subgroupShuffle(end - chunks, found);
      row = subgroupShuffle(own.row, found) + (chunk - first) * TOKENS;
      count = min(TOKENS, subgroupShuffle(own.T, found) - (chunk - first) * TOKENS);
      return;
    }
    before = subgroupShuffle(end, SUBGROUP - 1);
  }
}
