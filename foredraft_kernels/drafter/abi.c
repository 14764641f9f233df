/* The drafter's structs and bounds, for structs.py. */
#include "common/abi.h"
#include "searches.h"
#include "structs.h"

EXPORTED const abi_number *fd_drafter_abi(void) {
    static const abi_number numbers[] = {
        {"version", ABI_VERSION}, SIZE(linear), SIZE(layer), SIZE(model), SIZE(request),
        SIZE(block_scores), SIZE(counted_text), SIZE(tree_scores), SIZE(beam_settings),
        BOUND(MAX_CANDIDATES), BOUND(MAX_HEAD_DIM), BOUND(MAX_EDGE_RANK), BOUND(MAX_WIDTH),
        BOUND(MAX_ORDER), {NULL, 0},
    };
    return numbers;
}
