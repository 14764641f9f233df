/* The denoiser's structs, for structs.py. */
#include "common/abi.h"
#include "structs.h"

EXPORTED const abi_number *fd_denoiser_abi(void) {
    static const abi_number numbers[] = {
        {"version", ABI_VERSION}, SIZE(draft_graph), SIZE(draft_settings), {NULL, 0},
    };
    return numbers;
}
