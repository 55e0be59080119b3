// conv_history.glsl: the inputs x of a short convolution of W taps, and those of earlier calls, for kernels with
// args.x_stride, args.history_stride and args.C.
// Input t of the sequence; negative: before this call.
float past(sequence s, int t, uint c) {
  if (t >= 0) return x[(s.row + uint(t)) * args.x_stride + c];
  return history[s.slot * args.history_stride + uint(t + int(W) - 1) * args.C + c];
}

// Updates the history of channel c, which only this invocation reads. In ascending order entry w takes entry w + T, or
// an input.
void keep_history(sequence s, uint c) {
  for (uint w = 0; w + 1 < W; w++)
    history[s.slot * args.history_stride + w * args.C + c] = past(s, int(s.T + w) - int(W) + 1, c);
}
