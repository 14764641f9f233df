/* The verifier's structs and bounds, for structs.py. */
#include "common/abi.h"
#include "structs.h"

EXPORTED const abi_number *fd_verifier_abi(void) {
    static const abi_number numbers[] = {
        {"version", ABI_VERSION}, SIZE(segment), SIZE(batch), SIZE(linear), SIZE(layer), SIZE(model),
        SIZE(hidden_states), SIZE(ngram_text), BOUND(MAX_HEAD_DIM), BOUND(MAX_ORDERS),
        BOUND(MAX_PLACES), {NULL, 0},
    };
    return numbers;
}
