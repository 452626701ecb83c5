// The lowest possible cost per byte: the CRC by each kernel that this machine can run, and copy + CRC by the fastest kernel.
#pragma once

namespace roci::bench {

/// Prints a row per kernel and size, then floor.copy_crc_both_sides.* and floor.one_pass_out.*. In the latter the sender copies
/// and computes the CRC in one pass. With ROCI_CRC only that kernel is used, as on a processor without faster ones.
void crc_floors(bool quick);

}  // namespace roci::bench
