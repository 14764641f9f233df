/* How functions are compiled: INLINE into each caller, so that constant arguments choose code and
 * instruction sets are the caller's; EXPORTED for Python. Others stay inside the library. */
#pragma once

#define INLINE static inline __attribute__((always_inline))
#define EXPORTED __attribute__((visibility("default")))
