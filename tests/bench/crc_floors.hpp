// Measures the lowest cost per byte on this machine: the CRC with ISA-L and with each of our kernels that the processor supports,
// and a copy plus a CRC with the fastest of these.
#pragma once

namespace roci::bench {

/// Prints one row per kernel and size, then floor.copy_crc_both_sides.* and floor.one_pass_out.*. For
/// floor.one_pass_out.*, the sender copies and computes the CRC in one pass. If ROCI_CRC is set, only the kernel with
/// this name is used, as on a processor without faster kernels.
void crc_floors(bool quick);

}  // namespace roci::bench
