// Exported functions that rdma-core's other libraries call to read sysfs.
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "verbs.hpp"

namespace {

/// A file that the system's librdmacm or libibumad reads, and the content that ibv_read_sysfs_file() returns for the file. So the
/// kernel modules that provide these files need not be loaded.
struct Answer {
    std::string_view file;
    std::string_view text;
};
constexpr Answer kAnswers[] = {{"rdma_cm/abi_version", "4"}, {"infiniband_verbs/abi_version", "6"}};

int give(std::string_view text, char* buffer, size_t size) {
    if (text.size() >= size) return -1;
    text.copy(buffer, text.size());
    buffer[text.size()] = '\0';
    return int(text.size());
}

/// Reads the file as a terminated string without the last newline. Returns the length, or -1 if the file cannot be read or does
/// not fit into the buffer.
int read_text(const char* path, char* buffer, size_t size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, buffer, size);
    close(fd);
    if (n < 0 || size == 0) return -1;
    if (n > 0 && buffer[n - 1] == '\n') {
        buffer[n - 1] = '\0';
        return int(n - 1);
    }
    if (size_t(n) == size) return -1;
    buffer[n] = '\0';
    return int(n);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

const char* ibv_get_sysfs_path(void) {
    static const std::string* const path = [] {
        const char* env = secure_getenv("SYSFS_PATH");
        auto* p = new std::string(env != nullptr ? env : "/sys");
        if (p->size() >= IBV_SYSFS_PATH_MAX) p->resize(IBV_SYSFS_PATH_MAX - 1);
        while (!p->empty() && p->back() == '/') p->pop_back();
        return p;
    }();
    return path->c_str();
}

int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, size_t size) {
    const std::string path = std::string(directory) + "/" + file;
    for (const Answer& a : kAnswers)
        if (path.ends_with(a.file)) return give(a.text, buffer, size);
    return read_text(path.c_str(), buffer, size);
}

#pragma GCC visibility pop
}
