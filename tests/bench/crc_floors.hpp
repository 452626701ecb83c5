// Floors of what every byte costs: the CRC by each kernel that this machine has, and copy + CRC by the best of them.
#pragma once

namespace roci::bench {

/// A row per kernel and size, then floor.copy_crc_both_sides.*, and floor.one_pass_out.*: the same with the sender's copy
/// and CRC in one pass. ROCI_CRC leaves one kernel, as on a processor without better
/// ones.
void crc_floors(bool quick);

}  // namespace roci::bench
