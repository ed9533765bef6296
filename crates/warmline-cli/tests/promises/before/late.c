/* A wall clock that stands at the first of January 2100, for programs that write what must never
 * expire: LD_PRELOAD it. All other clocks go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
  }
  int came = real(clock, now);
  if (clock == CLOCK_REALTIME) {
    now->tv_sec = 4102444800;
  }
  return came;
}
