#include "service_manager.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <spdlog/spdlog.h>

namespace roci::rocid {

void tell_service_manager(std::string_view state) {
    const char* const path = std::getenv("NOTIFY_SOCKET");
    if (path == nullptr || *path == '\0') return;
    sockaddr_un a{};
    const size_t length = std::strlen(path);
    a.sun_family = AF_UNIX;
    std::memcpy(a.sun_path, path, std::min(length, sizeof a.sun_path));
    if (a.sun_path[0] == '@') a.sun_path[0] = '\0';  // an abstract name
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (length > sizeof a.sun_path) errno = ENAMETOOLONG;
    if (length > sizeof a.sun_path || fd < 0 ||
        sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&a),
               socklen_t(offsetof(sockaddr_un, sun_path) + length)) < 0)
        spdlog::warn("the service manager at $NOTIFY_SOCKET, {}, is not told: {}", path, std::strerror(errno));
    if (fd >= 0) close(fd);
}

}  // namespace roci::rocid
