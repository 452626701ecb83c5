// Limits of each user, rules of the configuration that change these limits, and limits of rocid as a whole.
#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

namespace roci::host {

/// Limits of one user. Each limit applies to all sessions of the user together.
struct UserLimits {
    uint64_t sessions = 512;
    uint64_t qps = 32768, cqs = 32768, cq_entries = 1 << 24, srqs = 16384, pds = 32768, xrc_domains = 16384;
    uint64_t keys = 1 << 19, address_handles = 32768;
    uint64_t mappings = 24576, mapped_bytes = uint64_t{16} << 40;
    uint64_t arena_bytes = uint64_t{8} << 30, device_memory = uint64_t{1} << 30;
    uint64_t channels = 16384, cm_ids = 65536, resolving = 512;
    uint64_t control_rate = 100'000;                        ///< control operations per second; 0: no limit
    uint64_t bytes_per_second = 0, packets_per_second = 0;  ///< limits of the frames that the user's QPs send; 0: no limit
};

/// The names of the limits, as used in refusals, in `roci status --limits` and in the configuration.
struct LimitName {
    const char* name;
    uint64_t UserLimits::*limit;
};
inline constexpr LimitName kUserLimits[] = {
    {"sessions", &UserLimits::sessions},
    {"qps", &UserLimits::qps},
    {"cqs", &UserLimits::cqs},
    {"cq_entries", &UserLimits::cq_entries},
    {"srqs", &UserLimits::srqs},
    {"pds", &UserLimits::pds},
    {"xrc_domains", &UserLimits::xrc_domains},
    {"keys", &UserLimits::keys},
    {"address_handles", &UserLimits::address_handles},
    {"mappings", &UserLimits::mappings},
    {"mapped_bytes", &UserLimits::mapped_bytes},
    {"arena_bytes", &UserLimits::arena_bytes},
    {"device_memory", &UserLimits::device_memory},
    {"channels", &UserLimits::channels},
    {"cm_ids", &UserLimits::cm_ids},
    {"resolving", &UserLimits::resolving},
    {"control_rate", &UserLimits::control_rate},
    {"bytes_per_second", &UserLimits::bytes_per_second},
    {"packets_per_second", &UserLimits::packets_per_second},
};

/// A rule that sets a limit of all users, of one user, or of the users with a primary group. If several rules for a limit apply
/// to a user, the last rule takes effect.
struct LimitRule {
    enum class Whom : uint8_t { everybody, user, group };
    Whom whom = Whom::everybody;
    uint32_t id = 0;
    uint64_t UserLimits::*limit = nullptr;
    uint64_t value = 0;
};

struct Limits {
    uint32_t max_sessions = 1024;
    uint32_t max_qps = 65536;  ///< limit for all devices together
    uint32_t max_keys = 1 << 20;
    uint32_t max_ahs = 65536;
    uint32_t max_qp_wr = 32768;
    uint32_t max_sge = 30;
    uint32_t max_inline = 956;
    uint32_t max_cqe = 1 << 22;
    uint64_t max_arena_bytes = uint64_t{4} << 30;  ///< per session, bytes
    // Limits of all users together. With these limits, rocid stays below vm.max_map_count and within the address space of a
    // process.
    uint64_t max_mappings = 49152;
    uint64_t max_mapped_bytes = uint64_t{64} << 40;
    UserLimits user;
    std::vector<LimitRule> rules;

    UserLimits of_user(uint32_t uid, uint32_t gid) const {
        UserLimits l = user;
        for (const LimitRule& r : rules)
            if (r.whom == LimitRule::Whom::everybody || r.id == (r.whom == LimitRule::Whom::user ? uid : gid))
                l.*r.limit = r.value;
        return l;
    }
};

}  // namespace roci::host
