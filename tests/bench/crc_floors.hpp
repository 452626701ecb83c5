// Measures the floors per byte of this machine: the CRC by each kernel that the machine can run, and copy + CRC by the fastest
// kernel.
#pragma once

namespace roci::bench {

/// Prints a row per kernel and size, then floor.copy_crc_both_sides.* and floor.one_pass_out.*. For floor.one_pass_out.* the
/// sender copies and computes the CRC in one pass. If ROCI_CRC is set, only the kernel that it names is used, as on a processor
/// without faster kernels.
void crc_floors(bool quick);

}  // namespace roci::bench
