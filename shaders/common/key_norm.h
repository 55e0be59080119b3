// key_norm.h: values of the norms of keys, as enum key_norm of host/ops/ops.h.
#ifndef KEY_NORM_H
#define KEY_NORM_H
#define NORM_NONE 0
#define NORM_L2 1
#define NORM_SUM 2
#define NORM_L1 3
#endif
