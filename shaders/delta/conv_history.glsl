// conv_history.glsl: the inputs x of a short convolution of W taps, and those of the calls before, for kernels with
// args.x_stride, args.history_stride and args.C.
// Input number t of the sequence; negative: before this call.
float past(sequence s, int t, uint c) {
  if (t >= 0) return x[(s.row + uint(t)) * args.x_stride + c];
  return history[s.slot * args.history_stride + uint(t + int(W) - 1) * args.C + c];
}

// Of channel c, for who alone sees its history. Ascending: entry w takes what entry w + T held, or an input.
void keep_history(sequence s, uint c) {
  for (uint w = 0; w + 1 < W; w++)
    history[s.slot * args.history_stride + w * args.C + c] = past(s, int(s.T + w) - int(W) + 1, c);
}
