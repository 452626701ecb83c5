// An empty folder for the files of a test. The destructor removes the folder, also if the test fails.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace roci {

struct TemporaryFolder {
    std::filesystem::path path;
    TemporaryFolder() {
        char name[] = "/tmp/roci-test-XXXXXX";
        if (mkdtemp(name) == nullptr) throw std::system_error(errno, std::generic_category(), name);
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code none;
        std::filesystem::remove_all(path, none);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    std::string operator/(const char* name) const { return path / name; }
};

}  // namespace roci
