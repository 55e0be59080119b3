// matvec_ends.glsl: what a workgroup of matvec or matvec_dot does around its sums: fetch() loads what an output needs,
// early; finish() stores the output. Before including it, define TOKENS, NORM, GATED, ACTIVATION and OUTPUTS, the buffers y and
// bias, and CONV with what it includes; total(i) and square_sum(t) come later.
float total(uint i);
float square_sum(uint t);

uint token0; // the workgroup's first token
float start, start_up; // what the output of the last fetch() adds to its sum; when GATED, to gate's and to up's
#ifdef CONV
uint slot, lone; // lone: tokens of the only sequence
bool convolved; // the output is a channel, and its token belongs to a sequence
const uint TAPS = CONV_W != 0 ? CONV_W : 1; // CONV_W 0: there is no convolution
float taps[TAPS], window[TAPS], conv_start;

void fetch_conv(uint n, uint t) {
  uint c = n - args.conv.from, s = 0; // wraps to a large number below conv.from
  convolved = c < args.conv.C;
  slot = 0;
  if (LONE != 0) { // no load depends on the sequence
    lone = sequences[0].T;
  } else {
    while (s < args.conv.B && (sequences[s].T == 0 || sequences[s].row != t)) s++;
    convolved = convolved && s < args.conv.B;
    if (convolved) slot = sequences[s].slot;
  }
  if (!convolved) return;
  conv_start = args.conv.has_bias != 0 ? conv_bias[c] : 0.0;
  [[unroll]] for (uint w = 0; w < CONV_W; w++) taps[w] = conv_weight[w * args.conv.weight_stride + c];
  [[unroll]] for (uint w = 0; w + 1 < CONV_W; w++)
    window[w] = history[slot * args.conv.history_stride + w * args.conv.C + c];
}

void finish_conv(uint n, uint t, float value) {
  uint c = n - args.conv.from;
  if (!convolved || (LONE != 0 && lone == 0)) return;
  window[TAPS - 1] = value;
  float sum = conv_start;
  [[unroll]] for (uint w = 0; w < CONV_W; w++) sum += taps[w] * window[w];
  [[unroll]] for (uint w = 0; w + 1 < CONV_W; w++)
    history[slot * args.conv.history_stride + w * args.conv.C + c] = window[w + 1];
  conv_y[t * args.conv.y_stride + c] = c >= args.conv.silu_from ? silu(sum) : sum;
}
#endif

bool outside(uint row, uint i) { return row + i / TOKENS >= args.N || token0 + i % TOKENS >= args.T; }

// Loads what output i of the workgroup needs.
void fetch(uint row, uint i) {
  if (outside(row, i)) return;
  uint n = args.first + row + i / TOKENS, t = token0 + i % TOKENS;
  start = args.has_bias != 0 ? bias[n] : 0.0;
  if (GATED != 0) start_up = args.has_bias != 0 ? bias[args.N + n] : 0.0;
  if (args.add != 0) start += y[t * args.y_stride + n];
#ifdef CONV
  if (CONV_W != 0) fetch_conv(n, t);
#endif
}

void finish(uint row, uint i) {
  if (outside(row, i)) return;
  uint n = args.first + row + i / TOKENS, t = token0 + i % TOKENS;
  float factor = NORM != 0 ? accurate_inversesqrt(square_sum(i % TOKENS) / float(args.K) + args.eps) : 1.0;
  float value = factor * total(i) + start;
  if (GATED != 0) value = activate(ACTIVATION, value) * (factor * total(OUTPUTS + i) + start_up);
  y[t * args.y_stride + n] = value;
#ifdef CONV
  if (CONV_W != 0) finish_conv(n, t, value);
#endif
}
