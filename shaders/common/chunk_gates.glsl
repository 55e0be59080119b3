// chunk_gates.glsl: decays inside a chunk, in log space. Needs the constant C, g (T, heads) and args.g_stride.
#include "accurate.glsl"
const float LOWEST_G = -1e4; // e^-104 is the last that f32 holds; a sum of these is no infinity
shared float gates[C];
shared vec2 G[C]; // the sum up to and including a token, and what rounding took from it

// G of tokens row ... row + count - 1; past the end G stays what it is. Ends with a barrier.
void chunk_gates(uint lane, uint row, uint count, uint head) {
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x)
    gates[i] = i < count ? max(g[(row + i) * args.g_stride + head], LOWEST_G) : 0.0;
  barrier();
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    precise float sum = 0.0, lost = 0.0;
    for (uint j = 0; j <= i; j++) { // Knuth's exact sum of two
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

// e^(G_i - G_j) for i >= j, anything up to 1 for i < j. One hard decay makes all later G large, and their differences,
// which matter, would be as coarse as they are.
float decay_between(uint i, uint j) {
  precise vec2 d = G[i] - G[j];
  return accurate_exp(min(d.x + d.y, 0.0));
}
