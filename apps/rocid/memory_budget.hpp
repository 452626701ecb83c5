// Computes how much memory rocid's control group still allows (memory.max of cgroup v2, memory.limit_in_bytes of v1). rocid
// refuses requests early, so that the kernel's out-of-memory killer does not end rocid and with it the sessions of all users.
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

    /// Reads the limits of the control group and its ancestors, which an administrator may change. Reads them at most once per
    /// kAge, because clients cause the calls.
    void refresh();
    /// Returns true if there is a limit.
    bool limited() const { return !levels_.empty(); }
    /// Returns the bytes that rocid may still allocate under the tightest limit, or no value if there is no limit.
    std::optional<uint64_t> available() const;
    /// Returns the bytes that rocid may allocate until only a quarter of a limit is left, or no value if there is no limit.
    std::optional<uint64_t> available_above_quarter() const;
    /// Returns true if a reserve remains after rocid has allocated another `bytes`. Otherwise sets `why`.
    bool allows(uint64_t bytes, std::string& why) const;

    /// The maximum age of limits and of the figures in memory.stat. The used bytes are always read anew.
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
    std::vector<Level> levels_;  ///< those with a limit
};

}  // namespace roci::rocid
