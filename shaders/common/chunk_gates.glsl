// chunk_gates.glsl: decays within a chunk, in log space. Needs the constant C, g (T, heads) and args.g_stride.
#include "accurate.glsl"
const float LOWEST_G = -1e4; // e^-104 is about the smallest f32; sums of this stay finite
shared float gates[C];
shared vec2 G[C]; // the sum up to and including a token, and its rounding error

// Computes G of tokens row ... row + count - 1; after the last one G stays constant. Ends with a barrier.
void chunk_gates(uint lane, uint row, uint count, uint head) {
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x)
    gates[i] = i < count ? max(g[(row + i) * args.g_stride + head], LOWEST_G) : 0.0;
  barrier();
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    precise float sum = 0.0, lost = 0.0;
    for (uint j = 0; j <= i; j++) { // Knuth's exact sum of two values
      precise float next = sum + gates[j], added = next - sum;
      lost += (sum - (next - added)) + (gates[j] - added);
      sum = next;
    }
    G[i] = vec2(sum, lost);
  }
  barrier();
}

// e^G_i
float decay_from_start(uint i) { return accurate_exp(G[i].x + G[i].y); }

// e^(G_i - G_j) for i >= j, any value up to 1 for i < j. After one strong decay all later G are large, and without
// their rounding errors the differences would lose precision.
float decay_between(uint i, uint j) {
  precise vec2 d = G[i] - G[j];
  return accurate_exp(min(d.x + d.y, 0.0));
}
