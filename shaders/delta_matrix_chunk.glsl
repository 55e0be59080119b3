// delta_matrix_chunk.glsl: which chunk a workgroup of the kernels that prepare chunks has, and its gates. Workgroups
// (Hv, chunks): heads next to each other run at about the same time, so that whole rows of qkv are read together.
// Needs STEPS a chunk, N a token, TOKENS, LANES, SUBGROUP, and the buffers beta, g, sequences.
const float LOWEST_G = -110.0; // e^-104 is the last that f32 holds; sums of these stay exact enough for what follows
shared float betas[STEPS], gates[STEPS], G[STEPS]; // of steps; G: the sum of gates up to one
uint record, row, count;               // of the chunk: its record of `size`, first token, tokens

// Which sequence has chunk `chunk` of all; count 0 past the last: the host counts as if every sequence ended in a
// broken one.
void find_chunk(uint chunk, uint size) {
  record = (chunk * args.Hv + gl_WorkGroupID.x) * size;
  row = count = 0;
  uint before = 0;
  for (uint z0 = 0; z0 < args.B; z0 += SUBGROUP) {
    uint z = z0 + gl_SubgroupInvocationID;
    uint chunks = z < args.B ? (sequences[z].T + TOKENS - 1) / TOKENS : 0;
    uint end = before + subgroupInclusiveAdd(chunks);
    uvec4 beyond = subgroupBallot(end > chunk);
    if (subgroupBallotBitCount(beyond) > 0) {
      uint found = subgroupBallotFindLSB(beyond), first = subgroupShuffle(end - chunks, found);
      sequence q = sequences[z0 + found];
      row = q.row + (chunk - first) * TOKENS;
      count = min(TOKENS, q.T - (chunk - first) * TOKENS);
      return;
    }
    before = subgroupShuffle(end, SUBGROUP - 1);
  }
}

void load_gates(uint lane, uint head) {
  for (uint i = lane; i < STEPS; i += LANES) {
    uint t = i / N, m = i % N;
    bool exists = t < count;
    betas[i] = exists ? beta[(row + t) * args.beta_stride + m * args.Hv + head] : 0.0;
    bool decays = args.gated != 0 && exists && m == 0; // once a token, before its first step
    gates[i] = decays ? max(g[(row + t) * args.g_stride + head], LOWEST_G) : 0.0;
  }
}

void sum_gates(uint lane) {
  for (uint i = lane; i < STEPS; i += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < STEPS; j++) sum += j <= i ? gates[j] : 0.0;
    G[i] = sum;
  }
}
