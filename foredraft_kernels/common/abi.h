/* What Python compares before it calls anything: the sizes of the structs that it mirrors, bounds,
 * and a version, which grows when the meaning of an argument or a field changes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/functions.h"

#define ABI_VERSION 8

typedef struct {
    const char *name; /* NULL after the last */
    int64_t value;
} abi_number;

#define SIZE(type) {#type, sizeof(type)}
#define BOUND(name) {#name, name}
