// What rocid's control group still allows (memory.max of cgroup v2, memory.limit_in_bytes of v1). rocid refuses requests before
// the kernel's out-of-memory killer ends it, and with it the sessions of all users.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace roci::rocid {

class MemoryBudget {
public:
    /// `mount`: where the control groups are mounted. `membership`: a file like /proc/self/cgroup.
    explicit MemoryBudget(std::string mount = "/sys/fs/cgroup", std::string membership = "/proc/self/cgroup");
    ~MemoryBudget();
    MemoryBudget(const MemoryBudget&) = delete;

    /// Reads the limits of the control group and its ancestors, which an administrator may change.
    void refresh();
    /// True: there is a limit.
    bool limited() const { return !levels_.empty(); }
    /// Bytes that rocid may still allocate, of the tightest limit. No value: there is no limit.
    std::optional<uint64_t> available() const;
    /// True if rocid keeps a reserve after it has allocated another `bytes`. Else a reason in `why`.
    bool allows(uint64_t bytes, std::string& why) const;

    struct Version;  ///< of control groups: names of files

private:
    struct Level {
        const Version* version;
        std::string folder;
        uint64_t limit;
        int used;  ///< descriptor of the file with what is used
        uint64_t available() const;
    };
    void forget();
    void look(const Version& version, const std::string& folder);
    std::string mount_, membership_;
    std::vector<Level> levels_;  ///< those with a limit
};

}  // namespace roci::rocid
