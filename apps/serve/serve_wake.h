// serve_wake.h: a thread that wakes connections whose texts have grown, while the device computes the next step.
#ifndef SERVE_WAKE_H
#define SERVE_WAKE_H
#include "serve_call.h"

struct waker;
struct waker *waker_start(void); // NULL: no thread can be started
// Wakes these calls' connections soon. It takes the calls over: each is held once, and dropped then.
void waker_add(struct waker *waker, struct call *const *calls, size_t n);
void waker_stop(struct waker *waker); // after the last ones are woken
#endif
