// Computes the memory that rocid may still allocate under the limit of its control group (memory.max of cgroup v2,
// memory.limit_in_bytes of v1). rocid refuses requests before the limit is reached. Otherwise the kernel's out-of-memory killer
// would end rocid and so the sessions of all users.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pmd_glue/clock.hpp"

namespace roci::rocid {

class MemoryBudget {
public:
    /// `mount` is the folder where the control groups are mounted. `membership` is a file like /proc/self/cgroup.
    explicit MemoryBudget(std::string mount = "/sys/fs/cgroup", std::string membership = "/proc/self/cgroup",
                          std::function<Nanos()> now = pmd::Clock::monotonic);
    ~MemoryBudget();
    MemoryBudget(const MemoryBudget&) = delete;

    /// Reads the limits of the control group and of its ancestors, because an administrator may have changed them. Does nothing
    /// if the limits were read less than kAge ago, because clients can cause many calls.
    void refresh();
    /// Returns true if the control group or an ancestor has a memory limit.
    bool limited() const { return !levels_.empty(); }
    /// Returns the bytes that rocid may still allocate under the tightest limit, or no value if there is no limit.
    std::optional<uint64_t> available() const;
    /// Returns the bytes that rocid may allocate until only a quarter of a limit is left. Considers the limit with the fewest
    /// such bytes. Returns no value if there is no limit.
    std::optional<uint64_t> available_above_quarter() const;
    /// Returns true if rocid may allocate another `bytes` and a reserve remains. Otherwise sets `why` to the reason.
    bool allows(uint64_t bytes, std::string& why) const;

    /// The maximum age in ns of the stored limits and of the stored figures of memory.stat. The used bytes are read at each call.
    static constexpr Nanos kAge = 10'000'000;
    struct Version;  ///< names of the files of one version of control groups

private:
    struct Level {
        const Version* version;
        std::string folder;
        uint64_t limit;
        int used;                                   ///< descriptor of the file with the used bytes
        mutable std::optional<Nanos> read_at = {};  ///< time at which `reclaimable` was read
        mutable uint64_t reclaimable = 0;           ///< from memory.stat
        uint64_t available(Nanos now) const;
    };
    void read_limits();
    void forget();
    void look(const Version& version, const std::string& folder);
    std::string mount_, membership_;
    std::function<Nanos()> now_;
    Nanos limits_read_at_ = 0;
    std::vector<Level> levels_;  ///< the control group and its ancestors, as far as they have a limit
};

}  // namespace roci::rocid
