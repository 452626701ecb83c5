// Includes <infiniband/verbs.h> for this library: all functions declared there are exported, and the macros that would replace
// exported functions by inline ones are undefined.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/// Exported without a public declaration: "/sys", or $SYSFS_PATH.
extern "C" const char* ibv_get_sysfs_path(void);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
