/*
 * A preloaded library that moves a server's clocks while it runs.
 *
 * The offsets live in a small file that is mapped into memory: the harness writes it, and the next look at the clock
 * sees it. The time is taken by raw system calls, because allocators ask for it before anything else, even the
 * dynamic linker's work for this library, is ready. It works on programs that get the time from the C library;
 * Go programs do not.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* In nanoseconds; the layout that clock-shim.ts writes. */
struct offsets {
  int64_t realtime;
  int64_t monotonic;
  /* Where the wall clock stands still; 0 if it runs. */
  int64_t frozen;
};

static const struct offsets none;
static volatile const struct offsets *offsets = &none;

__attribute__((constructor)) static void map_offsets(void) {
  const char *path = getenv("HOLDFAST_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(struct offsets), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offsets = mapped;
}

static int64_t offset_of(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return offsets->realtime;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
      return offsets->monotonic;
    default: /* processor time */
      return 0;
  }
}

static void add(struct timespec *time, int64_t nanoseconds) {
  int64_t sum = time->tv_nsec + nanoseconds % SECOND;
  time->tv_sec += nanoseconds / SECOND;
  if (sum >= SECOND) {
    time->tv_sec += 1;
    sum -= SECOND;
  } else if (sum < 0) {
    time->tv_sec -= 1;
    sum += SECOND;
  }
  time->tv_nsec = sum;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  int64_t frozen = offsets->frozen;
  if (frozen != 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    time->tv_sec = frozen / SECOND;
    time->tv_nsec = frozen % SECOND;
    return result;
  }
  if (result == 0) add(time, offset_of(clock));
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

/*
 * A deadline was computed from a moved clock, and the kernel will compare it with the real one: without this, every
 * timed wait of a Java program would last longer by the offset. glibc notes in this bit by which clock a condition
 * variable counts.
 */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
  clockid_t clock = (condition->__data.__wrefs & 2) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
  struct timespec real = *deadline;
  add(&real, -offset_of(clock));
  if (real.tv_sec < 0) real.tv_sec = real.tv_nsec = 0;
  return pthread_cond_clockwait(condition, mutex, clock, &real);
}

/*
 * Valkey 9 looks at the clock once in a millisecond and counts on with the processor's counter, if the kernel says that the
 * counter is constant. Without its answer, Valkey looks every time.
 */
FILE *fopen64(const char *restrict path, const char *restrict mode) {
  if (strcmp(path, "/proc/cpuinfo") == 0) {
    errno = ENOENT;
    return NULL;
  }
  FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
  return real(path, mode);
}
