// What rocid says that it can do: every capability number in one place. Say only what is implemented.
#pragma once

#include <cstdint>

namespace roci::host {

struct Capabilities {
    // enum ibv_device_cap_flags
    static constexpr uint64_t kPortActiveEvent = 1 << 10, kSysImageGuid = 1 << 11, kRcRnrNakGen = 1 << 12;

    uint64_t device_cap_flags = kPortActiveEvent | kSysImageGuid | kRcRnrNakGen;
    uint64_t max_mr_size = ~uint64_t{0};
    uint64_t page_size_cap = 0xfffff000;
    uint64_t clock_khz = 1'000'000;  ///< Cqe::timestamp counts nanoseconds
    uint64_t timestamp_mask = ~uint64_t{0};
    uint32_t vendor_id = 0xffffff;  ///< none: IEEE has given us no OUI
    uint32_t max_rd_atomic = 16;    ///< as initiator and as responder, a QP
    uint32_t atomic_cap = 1;        ///< IBV_ATOMIC_HCA
    uint32_t max_srq_wr = 32768, max_srq_sge = 27;
    uint32_t local_ca_ack_delay = 15;          ///< 4.096 us * 2^15
    uint32_t max_message = uint32_t{1} << 31;  ///< IBA 9.4.1
    uint32_t max_mw = 0, max_mcast_groups = 0, max_mcast_attach = 0;
    uint32_t pkeys = 1;                           ///< RoCE: only the default P_Key (A16.4.2)
    uint32_t active_width = 1, active_speed = 8;  ///< 1X, 10 Gb/s
    uint32_t port_cap_flags = 1 << 16;            ///< IBV_PORT_CM_SUP
    uint32_t max_moderation_count = 65535, max_moderation_us = 65535;
    const char* firmware = "0.1.0";

    // Of one session.
    uint32_t max_pds = 65536, max_regions = 65536, max_channels = 4096, max_cqs = 65536, max_srqs = 16384;
    uint64_t max_mapped_bytes = uint64_t{1} << 42;
};

}  // namespace roci::host
