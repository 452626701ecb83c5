// Includes <infiniband/verbs.h> for this library. The functions of <infiniband/verbs.h> get default visibility, so that the
// library can export them. Three of its macros replace exported functions by inline functions, so this header undefines these
// macros.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/// Returns $SYSFS_PATH, or "/sys" if the variable is not set. rdma-core exports this function without a public declaration.
extern "C" const char* ibv_get_sysfs_path(void);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
