#include "paths.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace roci::cli {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
    std::error_code none;
    return fs::read_symlink("/proc/self/exe", none).parent_path();
}

bool runnable(const fs::path& file) { return access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file); }

/// The folders in which Rocinante's libraries may be. Relative paths start at the folder of the roci binary. The first two paths
/// are for an installation, which may have been moved. The next two paths are for the build tree. The last path is Meson's
/// installation folder.
constexpr const char* kLibraryFolders[] = {
    "../lib/rocinante",          "../" ROCI_LIBDIR "/rocinante", "../../verbs_api/libibverbs",
    "../../verbs_api/librdmacm", "../../verbs_api/preload",      ROCI_PREFIX "/" ROCI_LIBDIR "/rocinante",
};
constexpr const char* kPreload = "librocinante-view.so";
constexpr const char* kLibraries[] = {"libibverbs.so.1", "librdmacm.so.1"};

std::string first_folder_with(const char* library) {
    for (const char* relative : kLibraryFolders) {
        const fs::path folder = (own_folder() / relative).lexically_normal();
        std::error_code none;
        if (fs::exists(folder / library, none)) return folder;
    }
    return {};
}

}  // namespace

std::string find_rocid() {
    for (const char* relative : {"rocid", "../rocid/rocid", "../sbin/rocid", ROCI_SBINDIR "/rocid"}) {
        const fs::path candidate = (own_folder() / relative).lexically_normal();
        if (runnable(candidate)) return candidate;
    }
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
        if (!folder.empty() && runnable(fs::path(folder) / "rocid")) return fs::path(folder) / "rocid";
    return {};
}

std::string preload_library() {
    const std::string folder = first_folder_with(kPreload);
    return folder.empty() ? "" : folder + "/" + kPreload;
}

std::vector<std::string> library_folders() {
    std::vector<std::string> out;
    for (const char* library : kLibraries) {
        const std::string folder = first_folder_with(library);
        if (folder.empty() && out.empty()) return {};
        if (!folder.empty() && (out.empty() || out.back() != folder)) out.push_back(folder);
    }
    return out;
}

}  // namespace roci::cli
