// <infiniband/verbs.h> as this library needs it: every function declared there is exported, and the macros that would replace the
// exported functions by inline ones are gone.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/// Exported without a public declaration: "/sys", or $SYSFS_PATH.
extern "C" const char* ibv_get_sysfs_path(void);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
