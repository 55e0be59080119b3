// delta_matrix_chunk.glsl: finds the chunk of a workgroup in the kernels that prepare chunks, and its gates. Workgroups
// (Hv, chunks): neighbouring heads run at about the same time, so that whole rows of qkv are read together. Needs STEPS
// per chunk, N per token, TOKENS, LANES, SUBGROUP, and the buffers beta, g, sequences.
const float LOWEST_G = -110.0; // e^-104 is about the smallest f32; sums of this stay precise enough
shared float betas[STEPS], G[STEPS]; // per step; G: the sum of g up to and including it
uint record, row, count;             // of the chunk: its record of `size`, first token, number of tokens

// An inclusive scan; the built-in one takes twice the shuffles if invocations may be missing.
#define SCAN(type)                                                                                                     \
  type sum_to(type x) {                                                                                                \
    [[unroll]] for (uint d = 1; d < SUBGROUP; d *= 2) {                                                                \
      type other = subgroupShuffle(x, max(gl_SubgroupInvocationID, d) - d);                                            \
      x += gl_SubgroupInvocationID >= d ? other : type(0);                                                             \
    }                                                                                                                  \
    return x;                                                                                                          \
  }
SCAN(uint)
SCAN(float)

// Finds the sequence of chunk `chunk`. count is 0 past the last one: the host assumes a partial chunk at the end of
// every sequence.
void find_chunk(uint chunk, uint size) {
  record = (chunk * args.Hv + gl_WorkGroupID.x) * size;
  row = count = 0;
  uint before = 0;
  for (uint z0 = 0; z0 < args.B; z0 += SUBGROUP) {
    uint z = z0 + gl_SubgroupInvocationID;
    sequence own = sequences[min(z, args.B - 1)];
    uint chunks = z < args.B ? (own.T + TOKENS - 1) / TOKENS : 0;
    uint end = before + sum_to(chunks);
    uvec4 beyond = subgroupBallot(end > chunk);
    if (subgroupBallotBitCount(beyond) > 0) {
      uint found = subgroupBallotFindLSB(beyond), done = (chunk - subgroupShuffle(end - chunks, found)) * TOKENS;
      row = subgroupShuffle(own.row, found) + done;
      count = min(TOKENS, subgroupShuffle(own.T, found) - done);
      return;
    }
    before = subgroupShuffle(end, SUBGROUP - 1);
  }
}

// Computes betas and G in two steps, so that loads are issued before anything waits. Steps past the end have zeros.
const uint GATES_EACH = (STEPS + SUBGROUP - 1) / SUBGROUP;
float next_beta[GATES_EACH], next_g[GATES_EACH];
void fetch_gates(uint head) {
  [[unroll]] for (uint n = 0; n < GATES_EACH; n++) {
    uint i = n * SUBGROUP + gl_SubgroupInvocationID, at = row + min(i / N, count - 1);
    next_beta[n] = beta[at * args.beta_stride + i % N * args.Hv + head];
    next_g[n] = g[at * args.g_stride + head];
  }
}

void put_gates() {
  float before = 0.0;
  [[unroll]] for (uint n = 0; n < GATES_EACH; n++) {
    uint i = n * SUBGROUP + gl_SubgroupInvocationID;
    bool decays = args.gated != 0 && i / N < count && i % N == 0; // once a token, before its first step
    float sum = before + sum_to(decays ? max(next_g[n], LOWEST_G) : 0.0);
    before = subgroupShuffle(sum, SUBGROUP - 1);
    if (gl_SubgroupID == 0 && i < STEPS) {
      betas[i] = i / N < count ? next_beta[n] : 0.0;
      G[i] = sum;
    }
  }
}
