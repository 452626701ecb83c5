// Includes <infiniband/verbs.h> for this library. The functions that the header declares get default visibility, so that they can
// be exported. The macros that would replace exported functions by inline ones are undefined.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/// Returns $SYSFS_PATH, or "/sys" if the variable is not set. rdma-core exports this function without a public declaration.
extern "C" const char* ibv_get_sysfs_path(void);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
