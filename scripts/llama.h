// Included before every C and C++ file of llama.cpp (scripts/llama.cmake).
#ifndef RERANKD_LLAMA_H
#define RERANKD_LLAMA_H

// gcc's headers say that `tileloadd` reads no memory, and before 13.3 that `ldtilecfg` reads 8 of 64 bytes. So gcc may remove
// the stores before them, and the AMX kernels die of an illegal instruction.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg\t%0" ::"m"(*(const char(*)[64])(config)))
#define _tile_storeconfig(config) __asm__ volatile("sttilecfg\t%0" : "=m"(*(char(*)[64])(config)))
#undef _tile_loadd_internal
#define _tile_loadd_internal(tile, base, stride)                                                                  \
  __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)), "r"((long)(stride)) : "memory")
#endif

// Threads wait for each other after every operation, without end in ggml's loop. If another process takes a core, most of
// the time is spent waiting for the thread that lost it. So a wait of more than SPIN nanoseconds sleeps. The sleeping thread's
// core is then free for the other one.
#if !defined(__cplusplus) && !defined(_WIN32)
#include <stdint.h>
#include <time.h>
#define RERANKD_SPIN 50000
static inline uint64_t rerankd_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline void rerankd_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}
static inline void rerankd_relax_(void) {
  static _Thread_local uint64_t began, last;
  for (int i = 0; i < 8; i++) rerankd_pause();
  const uint64_t now = rerankd_now();
  // A gap between two calls means that the thread worked, so this is a new wait.
  if (now - last > 2000) began = now;
  last = now;
  if (now - began > RERANKD_SPIN) {
    const struct timespec nap = {0, 1};
    nanosleep(&nap, 0);
    last = rerankd_now();
  }
}
// ggml defines `ggml_thread_cpu_relax(void)`, which becomes rerankd_relax_void, and calls `ggml_thread_cpu_relax()`, which
// becomes rerankd_relax_.
#define ggml_thread_cpu_relax(x) rerankd_relax_##x(x)
#endif

#endif
