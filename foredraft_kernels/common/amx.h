/* Whether the compiler knows AMX. */
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__has_include)
#if __has_include(<amxbf16intrin.h>) && __has_include(<amxint8intrin.h>)
#define HAS_AMX 1
#endif
#endif
#ifndef HAS_AMX
#define HAS_AMX 0
#endif
