// Includes <infiniband/verbs.h> for this library. All functions that the header declares are exported. The macros that would
// replace exported functions by inline ones are undefined.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/// Returns "/sys", or $SYSFS_PATH. It is exported without a public declaration.
extern "C" const char* ibv_get_sysfs_path(void);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
