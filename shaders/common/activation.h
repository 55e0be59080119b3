// activation.h: values of the activations, as enum activation of host/ops/ops.h.
#ifndef ACTIVATION_H
#define ACTIVATION_H
#define ACT_IDENTITY 0
#define ACT_SILU 1
#define ACT_RELU 2
#define ACT_ELU1 3
#define ACT_POWLU 4
#define ACT_SIGMOID 5
#endif
